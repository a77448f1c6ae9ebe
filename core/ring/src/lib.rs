//! The distributed file system without a master: who leads which file, who keeps its record and its chunks, and what is
//! done when nodes come and go (elastic-blocks §2.4).
//!
//! [`Node`] is what one node decides, a pure state machine: facts come in as [`Event`]s, what is to be done goes out as
//! [`Effect`]s. It must never touch a disk, a clock or a socket; it reads records through [`Records`].
//!
//! - The members agree on one [`View`] after another (`paxos.rs`). A view has a [`Ring`], on which names fall into
//!   partitions, each with a leader and further replicas (`ring.rs`).
//! - When a view begins, the leader of a partition collects what replicas of the views before have, who refuse the leaders of
//!   those from then on, and brings this view's replicas to the same state (`view_change.rs`, `replica.rs`). Then it serves.
//! - A write is acknowledged when a quorum has it durable (`serve.rs`). Any two quorums of a partition meet, and so nothing
//!   acknowledged is overlooked.
//! - A leader answers only while enough replicas have promised to wait for it (`lease.rs`).
//! - When more than half of the members are lost for good, a person can have the others go on (`recover.rs`).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod event;
mod fetch;
mod lease;
mod list;
mod lost;
mod message;
mod node;
mod paxos;
mod placement;
mod record;
mod record_view;
mod recover;
mod rename;
mod repair;
mod replica;
mod ring;
mod serve;
#[cfg(test)]
mod tests;
mod under_replicated;
mod view;
mod view_change;

pub use event::{Config, Effect, Event, FileAnswer, FileOperation, Listing, Refusal, Save, Saved};
pub use message::{MessageBody, Page, RingMessage};
pub use node::RingNode;
pub use paxos::{Acceptor, Ballot, Proposal};
pub use placement::replica_targets;
pub use record::{NameEntry, RecordVersion, Records, Round, Stored};
pub use record_view::Digest;
pub use ring::Ring;
pub use view::{DEFAULT_PARTITIONS, View, majority, read_quorum, write_quorum};
