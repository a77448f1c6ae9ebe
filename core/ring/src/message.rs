//! What the nodes say to each other.

use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord};
use serde::{Deserialize, Serialize};

use crate::paxos::{Ballot, Proposal};
use crate::record::{RecordVersion, Round, Stored};
use crate::record_view::Digest;
use crate::view::View;

/// A message, and in which view it was said. Who is in another view does not listen: who is behind, is told the view first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingMessage {
    /// The sender's view; 0 if it knows none.
    pub view: u64,
    /// What it says.
    pub body: MessageBody,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum MessageBody {
    /// What did you say? I do not know your view.
    Behind,
    /// This is the view.
    Decided(View),

    // paxos.rs: who is in the next view
    /// Will you hear no lower ballot than this?
    Prepare(Ballot),
    /// I will, and this I have accepted already.
    Promise(Ballot, Option<Proposal>),
    /// Do you accept this?
    Accept(Proposal),
    /// I did.
    Accepted(Ballot),
    /// I have promised to hear no lower ballot than this.
    Outbid(Ballot),

    // lease.rs
    /// I am here.
    Heartbeat {
        /// By the sender's clock.
        sent_us: u64,
        /// How often the sender had started: then its clock begins anew.
        boot: u64,
        /// Whether all partitions that it leads have a quorum in this view.
        has_settled: bool,
        /// Whether it knows that of all members.
        is_settled: bool,
    },
    /// To `Heartbeat`: I heard you, and wait for you.
    Heard {
        /// As it was sent.
        sent_us: u64,
        /// As it was sent.
        boot: u64,
    },

    // view_change.rs and replica.rs: bringing records from the last views' replicas to this view's
    /// What do you have of this partition?
    Collect {
        /// Which.
        partition: u16,
        /// Of the leader that asks.
        round: Round,
        /// Only names after this one.
        after: String,
        /// Of all that the leader has, if that counts: who has the same need not send it.
        digest: Option<Digest>,
    },
    /// To `Collect`.
    Collected {
        /// Which partition.
        partition: u16,
        /// As it was asked.
        round: Round,
        /// As it was asked.
        after: String,
        /// What is there.
        page: Page,
    },
    /// This partition has a leader; are you up to date?
    OfferSync {
        /// Which.
        partition: u16,
        /// In which round.
        round: Round,
    },
    /// To `Offer` and `Fill`: not yet. What is there after this name?
    RequestPage {
        /// Which partition.
        partition: u16,
        /// In which round.
        round: Round,
        /// The name.
        after: String,
        /// Of all that is here, if nothing has come yet.
        digest: Option<Digest>,
    },
    /// To `Want`: what is there already.
    SameContent {
        /// Which partition.
        partition: u16,
        /// In which round.
        round: Round,
    },
    /// To `Want`: exactly this.
    SyncPage {
        /// Which partition.
        partition: u16,
        /// In which round.
        round: Round,
        /// As it was wanted.
        after: String,
        /// What is there.
        page: Page,
    },
    /// To `Offer` and `Fill`: I am up to date.
    InSync {
        /// Which partition.
        partition: u16,
        /// In which round.
        round: Round,
    },

    // serve.rs and replica.rs
    /// Write this.
    Write {
        /// The name's partition.
        partition: u16,
        /// Of its leader.
        round: Round,
        /// The name.
        name: FileName,
        /// What is there from now on.
        stored: Stored,
    },
    /// To `Write`: it is durable here.
    Written {
        /// The name.
        name: FileName,
        /// The version that was written.
        version: RecordVersion,
    },

    // rename.rs
    /// The leader of the new name to that of the old: move this file.
    Move {
        /// Its old name.
        from: FileName,
        /// The version that it must have there.
        version: RecordVersion,
        /// Its new name.
        to: FileName,
        /// Version of what stands there for it.
        token: RecordVersion,
    },
    /// To `Move`: it is moved.
    Moved {
        /// Its new name.
        to: FileName,
        /// As it was asked.
        token: RecordVersion,
        /// Its old name.
        from: FileName,
        /// What is known of it.
        record: FileRecord,
    },
    /// To `Move`: there is no such file, and never again will be.
    Gone {
        /// The new name.
        to: FileName,
        /// As it was asked.
        token: RecordVersion,
    },
    /// To `Moved`: I know.
    Arrived {
        /// The old name.
        from: FileName,
        /// As it was told.
        token: RecordVersion,
    },

    // repair.rs
    /// The leader of a file to a node: have this chunk.
    FetchChunk {
        /// The file.
        name: FileName,
        /// The chunk; its replicas are who has it.
        chunk: Chunk,
    },
    /// To `Have`: whether it does.
    ChunkStatus {
        /// The file.
        name: FileName,
        /// The chunk.
        object: ObjectId,
        /// Whether it has it.
        is_here: bool,
    },
    /// A file with these chunks was removed.
    Drop(Vec<ObjectId>),
}

/// Some of what is in a partition, in the order of names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// What is there.
    pub entries: Vec<(FileName, Stored)>,
    /// Whether there is more after it.
    pub has_more: bool,
}
