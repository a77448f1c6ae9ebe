//! The messages between nodes.

use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord};
use serde::{Deserialize, Serialize};

use crate::ballot::{Ballot, Proposal};
use crate::record::{Digest, RecordVersion, Round, Stored};
use crate::view::View;

/// A message, with the view of its sender. A node ignores messages of other views, except that the
/// node with the later view sends that view to the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingMessage {
    /// Number of the sender's view; 0 if it knows none.
    pub view: u64,
    /// The content of the message.
    pub body: MessageBody,
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MessageBody {
    /// The sender does not know the view of the receiver, and asks for it.
    Behind,
    /// The view that was chosen.
    Decided(View),

    // paxos.rs: the choice of the next view
    /// Phase 1a: promise to ignore lower ballots than this one.
    Prepare(Ballot),
    /// Phase 1b: the promise, with the proposal that the sender has accepted last.
    Promise(Ballot, Option<Proposal>),
    /// Phase 2a: accept this proposal.
    Accept(Proposal),
    /// Phase 2b: the proposal of this ballot is accepted.
    Accepted(Ballot),
    /// The sender has promised to ignore lower ballots than this one.
    Outbid(Ballot),

    // lease.rs
    /// Sent at every tick to all members.
    Heartbeat {
        /// The time at the sender's clock.
        sent_us: u64,
        /// Number of times that the sender has started; its clock begins anew with each start.
        boot: u64,
        /// Whether all partitions that the sender leads have a quorum in this view.
        has_settled: bool,
        /// Whether the sender knows that this holds for all members.
        is_settled: bool,
    },
    /// Answer to `Heartbeat`: the sender waits for the leader that sent the heartbeat.
    Heard {
        /// Copied from the heartbeat.
        sent_us: u64,
        /// Copied from the heartbeat.
        boot: u64,
    },

    // view_change.rs and replica.rs: synchronization of the replicas of a view
    /// A leader asks a replica of an earlier view for its entries of a partition.
    Collect {
        /// The partition.
        partition: u16,
        /// The round of the leader.
        round: Round,
        /// Return only names after this one.
        after: String,
        /// Digest of the leader's own entries, if they count. A replica with the same digest sends
        /// none.
        digest: Option<Digest>,
    },
    /// Answer to `Collect`.
    Collected {
        /// The partition.
        partition: u16,
        /// Copied from the question.
        round: Round,
        /// Copied from the question.
        after: String,
        /// The entries.
        page: Page,
    },
    /// A leader asks a replica of this view whether it is synchronized.
    OfferSync {
        /// The partition.
        partition: u16,
        /// The round of the leader.
        round: Round,
    },
    /// Answer to `OfferSync` and `SyncPage`: the replica is not synchronized yet, and asks for the
    /// next entries.
    RequestPage {
        /// The partition.
        partition: u16,
        /// The round of the leader.
        round: Round,
        /// Return only names after this one.
        after: String,
        /// Digest of the replica's own entries, in the first question.
        digest: Option<Digest>,
    },
    /// Answer to `RequestPage`: the replica has the same entries as the leader.
    SameContent {
        /// The partition.
        partition: u16,
        /// The round of the leader.
        round: Round,
    },
    /// Answer to `RequestPage`: all entries of the leader in this range of names. The replica
    /// removes all others.
    SyncPage {
        /// The partition.
        partition: u16,
        /// The round of the leader.
        round: Round,
        /// Copied from the question.
        after: String,
        /// The entries.
        page: Page,
    },
    /// Answer to `OfferSync` and `SyncPage`: the replica is synchronized.
    InSync {
        /// The partition.
        partition: u16,
        /// The round of the leader.
        round: Round,
    },

    // serve.rs and replica.rs
    /// A leader asks a replica to store an entry.
    Write {
        /// The partition of the name.
        partition: u16,
        /// The round of the leader.
        round: Round,
        /// The name.
        name: FileName,
        /// The entry and its version.
        stored: Stored,
    },
    /// Answer to `Write`: the entry is durable on this replica.
    Written {
        /// The name.
        name: FileName,
        /// The version that was written.
        version: RecordVersion,
    },

    // rename.rs
    /// The leader of the new name asks the leader of the old name to move a file.
    Move {
        /// The old name.
        from: FileName,
        /// The version that the file must have there.
        version: RecordVersion,
        /// The new name.
        to: FileName,
        /// Version of the `Arriving` entry under the new name; identifies the rename.
        token: RecordVersion,
    },
    /// Answer to `Move`: the file has left its old name.
    Moved {
        /// The new name.
        to: FileName,
        /// Copied from the question.
        token: RecordVersion,
        /// The old name.
        from: FileName,
        /// The record of the file.
        record: FileRecord,
    },
    /// Answer to `Move`: there is no such file under the old name, and never will be.
    Gone {
        /// The new name.
        to: FileName,
        /// Copied from the question.
        token: RecordVersion,
    },
    /// Answer to `Moved`: the file has arrived under its new name.
    Arrived {
        /// The old name.
        from: FileName,
        /// Copied from `Moved`.
        token: RecordVersion,
    },

    // repair.rs
    /// The leader of a file asks a node to fetch a chunk.
    FetchChunk {
        /// The file.
        name: FileName,
        /// The chunk; its replicas are the nodes that have it.
        chunk: Chunk,
    },
    /// Answer to `FetchChunk`.
    ChunkStatus {
        /// The file.
        name: FileName,
        /// The chunk.
        object: ObjectId,
        /// Whether the node has the chunk now.
        is_here: bool,
    },
    /// The file of these chunks was removed: delete them.
    Drop(Vec<ObjectId>),
}

/// Entries of a partition, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// The entries.
    pub entries: Vec<(FileName, Stored)>,
    /// Whether more entries follow.
    pub has_more: bool,
}
