//! The interface of the decider: the events that it is told, and the effects that it asks for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{
    Attributes, FileId, FileKind, FileName, FileRecord, FileSystemId, NamedAttributes, NodeId,
    Quota,
};
use serde::{Deserialize, Serialize};

use crate::ballot::Acceptor;
use crate::message::RingMessage;
use crate::record::{RecordVersion, Round, Stored};
use crate::view::{DEFAULT_PARTITIONS, View};

/// The configuration of a node. Times and replication must be the same on all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The file system that the node belongs to, or will join.
    pub system: FileSystemId,
    /// The id of this node.
    pub node: NodeId,
    /// Whether the node founds a file system if it knows none. One node of a cluster does this
    /// once; all others join.
    pub found: bool,
    /// Number of partitions of a file system that this node founds. At least 1.
    pub partitions: u16,
    /// Replication of the records of a file system that this node founds: a record survives the
    /// loss of `replication - 1` nodes. At least 1.
    pub replication: u8,
    /// Interval between two ticks, in which the node sends heartbeats and does periodic work,
    /// microseconds.
    pub tick_us: u64,
    /// A message that was not answered within this time is sent again, microseconds.
    pub resend_us: u64,
    /// A member that was silent for this time is left out of the next view, microseconds.
    pub patience_us: u64,
    /// The same for a member that has closed its connections. This time is shorter; it allows for
    /// a restart of its process, microseconds.
    pub restart_us: u64,
    /// A view that is older than this is followed by another one, even with the same members.
    /// Entries of files that were removed before can then be forgotten, microseconds.
    pub tidy_us: u64,
    /// A replica that answers its leader promises to wait for the leader for this time,
    /// microseconds.
    pub lease_us: u64,
}

impl Config {
    /// The configuration of a node that joins others, with times for a local network.
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

/// The state that a node loads when it starts: everything it has saved, except for records. The
/// default is the state of a new node.
#[derive(Clone, Debug, Default)]
pub struct PersistentState {
    /// Number of times that the node has started.
    pub boots: u64,
    /// The latest view that the node knew.
    pub view: Option<View>,
    /// The node's Paxos promises for the next view.
    pub acceptor: Acceptor,
    /// Number of the latest view that the node knew to be settled.
    pub settled: u64,
    /// The round in which each partition was last synchronized; the first round of all if it never
    /// was.
    pub rounds: BTreeMap<u16, Round>,
}

/// A fact that the decider is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The set of nodes that gossip considers alive; sent whenever it changes. It is a hint.
    Alive(BTreeSet<NodeId>),
    /// A node has closed a connection to this node, as it does when its process ends. It may have
    /// opened another one.
    Closed(NodeId),
    /// A message from another node.
    Received {
        /// The sender.
        from: NodeId,
        /// The message.
        message: RingMessage,
    },
    /// A request of a client.
    Requested {
        /// Identifies the request among all requests that are not answered yet.
        request: u64,
        /// The operation that the client requests.
        operation: FileOperation,
    },
    /// A chunk that this node had to fetch is in its store.
    Fetched {
        /// The chunk.
        object: ObjectId,
    },
    /// A chunk could not be fetched.
    FetchFailed {
        /// The chunk.
        object: ObjectId,
    },
    /// Replicas of chunks are damaged or missing. Reported to the leader of the file by the node or
    /// client that found it.
    BadReplicas {
        /// The file.
        name: FileName,
        /// The chunks.
        objects: Vec<ObjectId>,
        /// The node whose replicas are bad.
        node: NodeId,
    },
    /// A node has forced chunks of files to its disk, as the leader has [asked](Effect::Sync).
    Synced {
        /// The node.
        node: NodeId,
        /// The files for which the leader has asked, with the chunks that are missing or damaged
        /// there. Their other chunks are on its disk.
        bad: Vec<FileChunks>,
    },
    /// Good replicas of chunks were found by a [search](Effect::Search). Reported to the leader of
    /// the file by the node that has them.
    GoodReplicas {
        /// The file.
        name: FileName,
        /// The chunks.
        objects: Vec<ObjectId>,
        /// The node that has good replicas.
        node: NodeId,
    },
}

/// Chunks of one version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChunks {
    /// The file.
    pub name: FileName,
    /// The version of its record.
    pub version: RecordVersion,
    /// The chunks.
    pub objects: Vec<ObjectId>,
}

/// An action that the shell must carry out. Effects are carried out in the order in which they are
/// returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Save this. It must be durable before any later effect is carried out, including the effects
    /// of later calls.
    Save(Save),
    /// Send a message to another node. Messages may be lost, delayed, reordered or duplicated.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: RingMessage,
    },
    /// Answer a client.
    Answer {
        /// The number of the request.
        request: u64,
        /// The answer.
        answer: Result<FileAnswer, Refusal>,
    },
    /// Fetch a chunk into this node's store from one of these nodes.
    Fetch {
        /// The chunk.
        object: ObjectId,
        /// Size of the chunk.
        size_bytes: u64,
        /// Checksum of its content, as in [`Chunk`](eyas_types::dfs::Chunk).
        checksum: u64,
        /// Nodes that have the chunk, the preferred one first.
        from: Vec<NodeId>,
    },
    /// Ask all members, this node included, for good replicas of chunks for which the leader knows
    /// none. The request may be lost.
    Search {
        /// The file.
        name: FileName,
        /// The chunks.
        objects: Vec<ObjectId>,
    },
    /// Have a node, perhaps this one, force chunks of files to its disk, and report those that are
    /// missing or damaged there. The request may be lost.
    Sync {
        /// The node.
        node: NodeId,
        /// The chunks.
        files: Vec<FileChunks>,
    },
    /// Remove a chunk from this node's store.
    Drop {
        /// The chunk.
        object: ObjectId,
    },
}

/// State that must be there when the node starts again.
#[derive(Clone, Debug, PartialEq)]
pub enum Save {
    /// Sets [`PersistentState::boots`].
    Boots(u64),
    /// Sets [`PersistentState::view`].
    View(View),
    /// Sets [`PersistentState::acceptor`].
    Acceptor(Acceptor),
    /// Sets [`PersistentState::settled`].
    Settled(u64),
    /// Sets the round of one partition in [`PersistentState::rounds`].
    Round {
        /// The partition.
        partition: u16,
        /// The round.
        round: Round,
    },
    /// Stores an entry under a name.
    Record {
        /// The partition of the name.
        partition: u16,
        /// The name.
        name: FileName,
        /// The entry and its version.
        stored: Stored,
    },
    /// Removes the entry of a name.
    Erase {
        /// The partition of the name.
        partition: u16,
        /// The name.
        name: FileName,
    },
    /// Removes all entries of a partition.
    Clear {
        /// The partition.
        partition: u16,
    },
}

/// An operation that a client requests from a leader. Each operation can be requested again if no
/// answer came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileOperation {
    /// Create a file. Succeeds as well if the file with this id and this content exists already
    /// under this name.
    Create {
        /// The name of the file.
        name: FileName,
        /// The record of the file.
        record: FileRecord,
    },
    /// Replace the record of a file that still has the given version. Succeeds as well if the file
    /// has this record already.
    Replace {
        /// The name of the file.
        name: FileName,
        /// The version of the record that is replaced.
        version: RecordVersion,
        /// The new record.
        record: FileRecord,
    },
    /// Remove a file.
    Remove {
        /// The name of the file.
        name: FileName,
        /// The id of the file.
        id: FileId,
    },
    /// Set the attributes of a file, folder or link whose record still has the given version.
    /// Succeeds as well if it has these attributes already.
    SetAttributes {
        /// The name of the file.
        name: FileName,
        /// The version of the record that is changed.
        version: RecordVersion,
        /// All attributes, changed or not.
        attributes: Attributes,
        /// All named attributes, changed or not; `None` keeps them.
        named: Option<NamedAttributes>,
    },
    /// Rename a file, a link, or the entry of a folder. Sent to the leader of the new name.
    /// Succeeds as well if this file has the new name already.
    Rename {
        /// The old name.
        from: FileName,
        /// The version of the file's record.
        version: RecordVersion,
        /// The id of the file.
        id: FileId,
        /// The new name, which differs from the old one.
        to: FileName,
        /// The kind of entry that may have the new name; it is replaced.
        over: Replaceable,
    },
    /// Return the record of a file.
    Stat {
        /// The name of the file.
        name: FileName,
    },
    /// List the entries in a folder that this node leads, sorted by name. An entry that is renamed
    /// at the same time may be missing from the lists of all nodes together, or be in them under
    /// both names. All others are listed exactly once.
    List {
        /// The number of the view that the client knows.
        view: u64,
        /// The folder; empty for all files.
        folder: String,
        /// List names from this text on; empty for all names.
        from: String,
        /// Maximum number of entries to list.
        most: u32,
        /// Which names below the folder are listed.
        depth: ListDepth,
    },
    /// Return the number and the size of the entries below a folder that this node leads. Refused
    /// with `StillCounting` while the node reads them, some with each request.
    Use {
        /// The number of the view that the client knows.
        view: u64,
        /// The folder; empty for all names.
        folder: String,
    },
    /// Continue without members that are lost for good, when too many are lost to choose a view.
    /// Sent to the first member that is left.
    Recover {
        /// All members that are missing. The operation is refused if the list is not complete, so
        /// the person must have checked.
        without: BTreeSet<NodeId>,
        /// Seconds since 1970. If two parts of a file system are recovered separately, the part
        /// that was recovered later is valid.
        now_s: u32,
    },
}

/// The result of a successful operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileAnswer {
    /// The operation is done.
    Done {
        /// The version of the file's record, or of its removal.
        version: RecordVersion,
    },
    /// Result of `Stat`.
    Found {
        /// The version of the record.
        version: RecordVersion,
        /// The record.
        record: FileRecord,
    },
    /// Result of `List`.
    Listed {
        /// The entries, sorted by name.
        entries: Vec<Listing>,
        /// With [`ListDepth::OneLevel`], subfolders in which this node leads names. Their own
        /// entries may be led by other nodes, or be missing.
        implied: Vec<FileName>,
        /// The text from which to continue; `None` at the end.
        next: Option<String>,
    },
    /// Result of `Use`.
    Used {
        /// Size of all files, bytes. Replicas do not count.
        bytes: u64,
        /// Number of files, folders and links.
        files: u64,
    },
    /// Result of `Recover`.
    Recovered {
        /// The remaining members, which form the new view.
        members: BTreeSet<NodeId>,
    },
}

/// The kind of entry that a rename may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replaceable {
    /// The new name must be free.
    Nothing,
    /// A file or a symbolic link.
    File,
    /// A folder. The client has checked that the folder is empty.
    Folder,
}

/// Which names below a folder a list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListDepth {
    /// The entries in the folder itself.
    OneLevel,
    /// The entry that has the folder's name, and all names below it.
    All,
}

/// An entry as `List` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Name of the file.
    pub name: FileName,
    /// Id of the file.
    pub id: FileId,
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size of the content.
    pub size_bytes: u64,
    /// Size of the zeros in it that no node stores.
    pub hole_bytes: u64,
    /// Owner, permissions and times.
    pub attributes: Attributes,
    /// Limits on everything below this folder.
    pub quota: Option<Quota>,
}

impl Listing {
    /// The entry of this name and record.
    pub fn of(name: FileName, record: &FileRecord) -> Self {
        let FileRecord { id, ref kind, attributes, quota, .. } = *record;
        let (size_bytes, hole_bytes) = (record.size_bytes(), record.hole_bytes());
        Listing { name, id, kind: kind.clone(), size_bytes, hole_bytes, attributes, quota }
    }
}

/// The reason why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// Another node leads this name. Ask that node.
    NotLeader {
        /// The leader.
        leader: NodeId,
        /// The number of the view in which it leads.
        view: u64,
    },
    /// The view has changed. Ask the members of this view again. 0 if the node is in no view.
    OtherView {
        /// The number of the current view.
        view: u64,
    },
    /// The leader may not serve at this moment, because its view is not settled or its lease has
    /// expired. Ask again soon.
    NotYet,
    /// Too many requests are pending. Ask again soon.
    Busy,
    /// The view changed while the operation was carried out. The new leader of the name knows
    /// whether it was done. Ask again.
    Unknown,
    /// An entry with this name exists.
    Exists {
        /// The id of that entry.
        id: FileId,
        /// Whether it is a folder.
        is_folder: bool,
    },
    /// There is no file with this name.
    NotFound,
    /// The file is not the one that the client named, or has changed.
    Changed,
    /// A majority of the members is alive, so no recovery is needed.
    HasMajority,
    /// These members are missing, and they are not the members that were named.
    Missing(BTreeSet<NodeId>),
    /// The node has read some more of the entries of a folder, but not all. Ask again at once.
    StillCounting,
}
