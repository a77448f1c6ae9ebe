//! The order of requests to shared storage (io-coordination, all of it): many streams, each sequential, are put back into
//! an order that a disk likes.
//!
//! [`Servers`] is what a coordinator decides, a pure state machine: facts come in as [`Event`]s, what is to be done goes out
//! as [`Effect`]s. It must never touch a disk, a clock or a socket. What it decides is advice: when in doubt it lets a request
//! go, and counts it.
//!
//! - A request waits in the queue of its file, operation and class. Requests that continue each other are a *chain*; what
//!   can be granted of it at once, from its head on, is a *run* (`queue.rs`: virtual aggregation, §4.2).
//! - A policy says which run goes first (`policies/`), above it the classes' reservations, limits and weights (`quality.rs`).
//! - A run of several clients is granted to one after the other, in the order of offsets: each [`Grant`] is one client's
//!   turn (`turns.rs`), and nothing else is granted between, as long as the server does one thing at a time.
//! - The next grant leaves when the one before is done, or is predicted to be (`prediction.rs`, §4.1). An idle server may be
//!   held for the request that would continue a chain (`anticipation.rs`, §6.3.3).
//! - How many are out at a time is found out, or said (`climb.rs`).
//! - A grant that is not completed within its lease is revoked, and the queue goes on.
//!
//! Beside it stands [`Worth`]: whether a storage's requests are to be ordered at all.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod anticipation;
mod budget;
mod climb;
mod config;
mod event;
mod falling;
mod forecast;
mod kinetic;
mod measures;
mod policies;
mod prediction;
mod quality;
mod queue;
mod run;
mod server;
mod servers;
#[cfg(test)]
mod tests;
mod turns;
mod worth;

pub use budget::Budget;
pub use config::{Config, Quality};
pub use event::{Call, ClassId, ClientId, Effect, Event, Grant, GrantId, Request, RequestId, RunId, ServerId};
pub use measures::{Measures, Sequentiality, Waits};
pub use policies::{Mlf, POLICIES, Policy, Sojf, Wsjf};
pub use server::MAX_QUEUED;
pub use servers::Servers;
pub use worth::{Waited, Worth};
