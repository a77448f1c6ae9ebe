//! The metadata of the distributed file system, without a master: which node leads which file,
//! which nodes keep its record and its chunks, and what happens when nodes join or leave
//! (elastic-blocks §2.4).
//!
//! [`RingNode`] is the decider of one node, a state machine: it is told facts as [`Event`]s and
//! returns actions as [`Effect`]s. It must never touch a disk, a clock or a socket, or hold records
//! in memory.
//!
//! It reads records through [`Records`] while it decides. They are no facts from outside: a read
//! shows what effects of this node have saved, in the order of the effects, so the same events on
//! the same saved state give the same effects (`tests/faults` runs a second node beside each one to
//! check it). They do not come with the events, because no event says which will be needed: a list
//! reads up to 20,000 names, a tick scans 1,000, and a digest reads a whole partition. If each read
//! were an effect, and its result a later event, a view or a name could change between any two
//! of them, and every operation would have to begin with the question whether it still holds.
//!
//! The node routes events to its parts; each has a state that no other part changes:
//!
//! - `RingMembership`: the view that the node is in, and the leases of members (`membership.rs`,
//!   `lease.rs`)
//! - `ViewPaxos`: the choice of the next view (`paxos.rs`)
//! - `PartitionReplicas`: the partitions of which the node has entries (`replica.rs`)
//! - `LedPartitions`: the partitions that it leads, until it serves them (`view_change.rs`)
//! - `LedNames`: operations on the names in them (`serve.rs`, `rename.rs`, `syncing.rs`)
//! - `ChunkRepair`: repair of chunks (`repair.rs`, `scan.rs`, `under_replicated.rs`, `lost.rs`)
//! - `ChunkFetches`: chunks to fetch for leaders (`fetch.rs`)
//!
//! How they work together:
//!
//! - The members agree on one [`View`] after another (`paxos.rs`). A view has a [`Ring`], which
//!   maps names to partitions, and each partition to a leader and further replicas (`ring.rs`).
//! - When a view begins, the leader of each partition collects the entries that replicas of earlier
//!   views have. From then on these replicas refuse leaders of earlier views. The leader brings the
//!   replicas of the new view to the same state (`view_change.rs`, `replica.rs`), and then serves.
//! - A write is acknowledged when a quorum has stored it durably (`serve.rs`). Any two quorums of a
//!   partition overlap, so no acknowledged write is missed.
//! - A leader answers only while enough replicas have promised to wait for it (`lease.rs`).
//! - When more than half of the members are lost for good, a person can let the others continue
//!   (`recover.rs`).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod after_write;
mod ballot;
mod decision;
mod event;
mod fetch;
mod folder_use;
mod lease;
mod list;
mod lost;
mod membership;
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
mod scan;
mod serve;
mod step;
mod syncing;
#[cfg(test)]
mod tests;
mod under_replicated;
mod view;
mod view_change;

pub use ballot::{Acceptor, Ballot, Proposal};
pub use event::{
    Config, Effect, Event, FileAnswer, FileChunks, FileOperation, ListDepth, Listing,
    PersistentState, Refusal, Replaceable, Save,
};
pub use message::{MessageBody, Page, RingMessage};
pub use node::RingNode;
pub use placement::replica_targets;
pub use record::{Digest, NameEntry, RecordVersion, Records, Round, Stored};
pub use ring::Ring;
pub use view::{DEFAULT_PARTITIONS, View, majority, read_quorum, write_quorum};
