//! Coordinated I/O: many programs share slow storage without trampling each other (io-coordination).
//!
//! Programs that `eyas io run` starts ask before they read or write shared storage (`preload/`, by the board). Whom they
//! ask is the [`agent`] of their node: it reads what several small reads want in one large one, and has everything put in
//! order by the decider `core/ioq`: on its node alone, or, by the [coordinator](serve()), among all that share a storage. Nothing here may stand in a program's way: whoever is not answered goes ahead.

#![forbid(unsafe_code)]

pub mod agent;
mod client;
mod link;
mod order;
mod protocol;
mod rules;
mod serve;
mod storage;
mod storages;

pub use eyas_ioq as ioq;

pub use crate::client::{Client, Turn};
pub use crate::protocol::Status;
pub use crate::rules::{Rules, RulesError, Treatment, class_id, parse_policy};
pub use crate::serve::{serve, status};
