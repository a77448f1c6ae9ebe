//! Coordinated I/O: many programs share slow storage without disturbing each other
//! (io-coordination).
//!
//! Programs that `eyas io run` starts ask for a turn before they read or write shared storage
//! (`preload/`, through the shared memory in `board/`). They ask the [`agent`] of their node. The
//! agent reads ahead for all of them, one large read in place of many small ones, and has all
//! requests ordered by the decider `core/ioq`: its own decider for the node alone, or that of the
//! [coordinator](serve()) for all nodes that share a storage. Executors ask the coordinator
//! directly, with a [`TurnClient`]. Nothing here may block a program: a request that is not
//! answered proceeds.
//!
//! | process | entry point |
//! | --- | --- |
//! | coordinator, one for a cluster | `serve.rs`; decides with `core/ioq` |
//! | agent, one for each user of a node | `agent.rs`; decides, or asks (`request_tracker.rs`) |
//! | program | `preload/`, a library that asks the agent through `board/` |
//! | executor | `turn_client.rs` asks the coordinator |

#![forbid(unsafe_code)]

pub mod agent;
mod coordinator_link;
#[cfg(test)]
mod faults;
mod node;
mod protocol;
mod request_tracker;
mod rules;
mod serve;
mod storage_name;
mod turn_client;

pub use eyas_ioq as ioq;

pub use crate::protocol::{IoStatus, StorageConfigs};
pub use crate::rules::{
    MAX_JUNCTION_PERCENT, MIN_FACTOR, Rules, RulesError, StorageRules, UnknownPolicy, class_id,
    parse_patience, parse_policy, parse_quantum, parse_stripe,
};
pub use crate::serve::{serve, status};
pub use crate::turn_client::{GrantedTurn, TurnClient};
