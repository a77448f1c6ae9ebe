//! What a node is told, and what it wants done: the whole of its traffic with the world.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileId, FileName, FileRecord, FileSystemId, NodeId};
use serde::{Deserialize, Serialize};

use crate::message::RingMessage;
use crate::paxos::Acceptor;
use crate::record::{RecordVersion, Round, Stored};
use crate::view::{DEFAULT_PARTITIONS, View};

/// How a node is set up. Times and replication must be the same on all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of which file system it is, or is to be.
    pub system: FileSystemId,
    /// Which node this is.
    pub node: NodeId,
    /// Whether it begins a file system if it knows of none. One node of a cluster does, once; others join.
    pub found: bool,
    /// Into how many partitions the names of a file system that it begins fall. At least 1.
    pub partitions: u16,
    /// How many replicas a record of a file system that it begins can do without, and one. At least 1.
    pub replication: u8,
    /// How often it looks what is due, and tells others that it is there, microseconds.
    pub tick_us: u64,
    /// When what was not answered is sent again, microseconds.
    pub resend_us: u64,
    /// A member that nobody has heard of for so long is left out of the next view, microseconds.
    pub patience_us: u64,
    /// The same for one whose process has ended, it seems; it may be starting again.
    pub restart_us: u64,
    /// After so long a view is followed by another, even of the same members: what was removed before it is forgotten then,
    /// microseconds.
    pub tidy_us: u64,
    /// How long a replica that answers its leader promises to wait for it, microseconds.
    pub lease_us: u64,
}

impl Config {
    /// A node that joins others, with times for a network of one room.
    pub fn new(system: FileSystemId, node: NodeId) -> Self {
        Config {
            system,
            node,
            found: false,
            partitions: DEFAULT_PARTITIONS,
            replication: eyas_types::dfs::DEFAULT_REPLICATION,
            tick_us: 100_000,
            resend_us: 500_000,
            patience_us: 5_000_000,
            restart_us: 2_000_000,
            tidy_us: 24 * 3_600_000_000,
            lease_us: 2_000_000,
        }
    }
}

/// What a node that starts finds saved: all that it wanted saved before, except for records. The default is what a new
/// node finds.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// How often it has started.
    pub boots: u64,
    /// The last view that it knew.
    pub view: Option<View>,
    /// What it has promised about the next one.
    pub acceptor: Acceptor,
    /// The last view that it knew to be settled.
    pub settled: u64,
    /// The round in which it was last brought up to date, by partition; the first round of all, if never.
    pub rounds: BTreeMap<u16, Round>,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// Which nodes are said to live, whenever that changes. It is a hint.
    Alive(BTreeSet<NodeId>),
    /// A node has closed its connection to this one, as it does when its process ends. It may have another.
    Closed(NodeId),
    /// A message has come.
    Received {
        /// From whom.
        from: NodeId,
        /// What it says.
        message: RingMessage,
    },
    /// A client wants something.
    Requested {
        /// A number of its own among all that are not answered.
        request: u64,
        /// What it wants.
        operation: FileOperation,
    },
    /// A chunk that was to be fetched is in the store.
    Fetched {
        /// Which.
        object: ObjectId,
    },
    /// A chunk that was to be fetched is not to be had.
    FetchFailed {
        /// Which.
        object: ObjectId,
    },
    /// Replicas of chunks are damaged or missing. Told to the leader of the file, by whoever found it.
    BadReplicas {
        /// The file.
        name: FileName,
        /// The chunks.
        objects: Vec<ObjectId>,
        /// Where.
        node: NodeId,
    },
    /// Good replicas of chunks that were [searched](Effect::Search) for. Told to the leader of the file, by the node that
    /// has them.
    GoodReplicas {
        /// The file.
        name: FileName,
        /// The chunks.
        objects: Vec<ObjectId>,
        /// Which node.
        node: NodeId,
    },
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Save this. It must be durable before anything is done that comes after it, also in later calls.
    Save(Save),
    /// Send this to another node. It may be lost, come late, out of order, or twice.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: RingMessage,
    },
    /// Answer a client.
    Answer {
        /// Its request.
        request: u64,
        /// The answer.
        answer: Result<FileAnswer, Refusal>,
    },
    /// Fetch a chunk into this node's store from one of these.
    Fetch {
        /// Which.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
        /// Of its content, as in [`Chunk`](eyas_types::dfs::Chunk).
        checksum: u64,
        /// Who has it.
        from: Vec<NodeId>,
    },
    /// Ask all members, this node included, for chunks of a file of which no good replica is known. It may be lost.
    Search {
        /// The file.
        name: FileName,
        /// The chunks.
        objects: Vec<ObjectId>,
    },
    /// Remove a chunk from this node's store.
    Drop {
        /// Which.
        object: ObjectId,
    },
}

/// What is to be found when the node starts again.
#[derive(Clone, Debug, PartialEq)]
pub enum Save {
    /// How often it has started, in [`Saved::boots`].
    Boots(u64),
    /// In [`Saved::view`].
    View(View),
    /// In [`Saved::acceptor`].
    Acceptor(Acceptor),
    /// In [`Saved::settled`].
    Settled(u64),
    /// In [`Saved::rounds`].
    Round {
        /// Of which partition.
        partition: u16,
        /// Which.
        round: Round,
    },
    /// What is under a name from now on.
    Record {
        /// The name's partition.
        partition: u16,
        /// The name.
        name: FileName,
        /// What is there.
        stored: Stored,
    },
    /// Nothing is under a name any more.
    Erase {
        /// The name's partition.
        partition: u16,
        /// The name.
        name: FileName,
    },
    /// Nothing is in a partition any more.
    Clear {
        /// Which.
        partition: u16,
    },
}

/// What a client wants of a leader. Each can be asked again when no answer came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOperation {
    /// A new file, where none is. Done also if this very file, by its id, is there.
    Create {
        /// Its name.
        name: FileName,
        /// What is known of it.
        record: FileRecord,
    },
    /// Another record of a file, or another file in its place, if it still has that version. Done also if it has this very
    /// record.
    Replace {
        /// Its name.
        name: FileName,
        /// Of the record that is replaced.
        version: RecordVersion,
        /// The new one.
        record: FileRecord,
    },
    /// Remove a file.
    Remove {
        /// Its name.
        name: FileName,
        /// Which.
        id: FileId,
    },
    /// Call a file by another name, which no file has. Asked of the leader of the new name. Done also if this very file has
    /// that name.
    Rename {
        /// Its name.
        from: FileName,
        /// Of its record.
        version: RecordVersion,
        /// Which file.
        id: FileId,
        /// Its new name, another one.
        to: FileName,
    },
    /// What is known of a file.
    Stat {
        /// Its name.
        name: FileName,
    },
    /// Which files of a folder this node leads, in the order of their names. A file that is renamed meanwhile may be missing
    /// in the sum of what all nodes list, or be in it by both names; others are in it.
    List {
        /// In which view.
        view: u64,
        /// The folder; the empty text for all.
        folder: String,
        /// Only names after this one.
        after: String,
        /// No more than so many.
        most: u32,
    },
    /// Go on without members that are lost for good, where no view can be chosen any more. Asked of the first member that is
    /// left.
    Recover {
        /// All that are missing, so that whoever asks has looked.
        without: BTreeSet<NodeId>,
        /// Seconds since 1970, so that of two that are recovered apart from each other the later one is valid.
        now_s: u32,
    },
}

/// What was asked is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// It is done.
    Done {
        /// The version that the file has now, or its removal.
        version: RecordVersion,
    },
    /// To `Stat`.
    Found {
        /// Its version.
        version: RecordVersion,
        /// What is known.
        record: FileRecord,
    },
    /// To `List`.
    Listed {
        /// Sorted.
        files: Vec<Listing>,
        /// Whether there are more after these.
        has_more: bool,
    },
    /// To `Recover`.
    Recovered {
        /// The members that are left, in a view of their own.
        members: BTreeSet<NodeId>,
    },
}

/// A file in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Its name.
    pub name: FileName,
    /// Which file.
    pub id: FileId,
    /// Its size.
    pub size_bytes: u64,
    /// When it was written, microseconds since 1970.
    pub modified_us: u64,
}

/// Why what was asked is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Another leads that name: ask it.
    NotLeader {
        /// Who.
        leader: NodeId,
        /// In which view.
        view: u64,
    },
    /// This is the view now: ask for lists again, of its members. 0, if the node is in none.
    OtherView {
        /// Its number.
        view: u64,
    },
    /// Who leads is not yet, or not any more, sure to: ask again in a moment.
    NotYet,
    /// Too much is asked at once: ask again in a moment.
    Busy,
    /// It has begun, and whoever leads the name now knows whether it is done: ask again.
    Unknown,
    /// A file has that name.
    Exists {
        /// Which.
        id: FileId,
    },
    /// No file has that name.
    NotFound,
    /// The file, or what has its name, is not as it was said to be.
    Changed,
    /// Members are enough to choose a view: nothing is to be given up.
    HasMajority,
    /// These are missing, and not those that were named.
    Missing(BTreeSet<NodeId>),
}
