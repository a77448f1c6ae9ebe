//! Messages between dispatcher and executor: commands to the executor, facts to the dispatcher.

use std::net::SocketAddr;

use eyas_types::dfs::{FileSystemId, NodeId};
use eyas_types::matching::Labels;
use eyas_types::{
    CopyNews, ExecutorId, ExecutorLoad, JobId, Name, ObjectId, ObjectSpec, Origin, Outcome,
    PartOfFile, PlaceId, Resources, Status, TaskId, TaskTemplate, Value,
};
use serde::{Deserialize, Serialize};

use crate::pool::NodeOrigin;
use crate::printed::{PrintedPiece, PrintedPosition};
use crate::trust::{SecretText, Trust};

/// Maximum number of inputs in one message; a task with more is assigned in several.
pub const INPUTS_PART: usize = 4096;

/// Facts from an executor, in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromExecutor {
    /// The first message of an executor.
    Register(Box<Registration>),
    /// The executor lives; sent regularly.
    Heartbeat {
        /// Disk available for inputs and sandboxes: free space and what the store could evict.
        free_disk_bytes: u64,
    },
    /// The store has an object.
    Stored {
        /// The object.
        object: ObjectId,
        /// Size of the object.
        size_bytes: u64,
    },
    /// The executor has fetched an object. `Stored` follows.
    Fetched {
        /// The object.
        object: ObjectId,
        /// The source of the fetch.
        from: Origin,
        /// Duration of the fetch, microseconds.
        took_us: u64,
    },
    /// The store no longer has an object.
    Evicted {
        /// The object.
        object: ObjectId,
    },
    /// The executor cannot hold an object that it was told to hold.
    NotHeld {
        /// The object.
        object: ObjectId,
        /// The reason, for a person.
        reason: String,
    },
    /// A task has ended.
    Ended {
        /// The task.
        task: TaskId,
        /// Number of the try, as assigned.
        attempt: u32,
        /// The result.
        outcome: Box<Outcome>,
    },
    /// The executor gives back a recalled task that has not started.
    Returned {
        /// The task.
        task: TaskId,
        /// Number of the try, as assigned.
        attempt: u32,
    },
    /// A task's outputs are about to appear at these places. Answered by `Claimed`.
    Claim {
        /// The task.
        task: TaskId,
        /// Number of the try, as assigned.
        attempt: u32,
        /// The places, each once.
        places: Vec<PlaceId>,
    },
    /// The answer to `Check`.
    Checked {
        /// The task that writes the outputs.
        task: TaskId,
        /// Whether all outputs exist as they were written.
        is_unchanged: bool,
    },
    /// The executor has to leave and holds objects that other executors may not have. It stays
    /// until it is told to stop.
    Retiring,
    /// The load; sent when the number of staged or suspended tasks changes, and with heartbeats.
    Load(ExecutorLoad),
    /// The executor has suspended a task, for a task of higher priority.
    Suspended {
        /// The task.
        task: TaskId,
    },
    /// A suspended task continues.
    Resumed {
        /// The task.
        task: TaskId,
    },
    /// The executor leaves in good order: no task runs.
    Leaving,
    /// A try of a task has not succeeded, and the task has outputs for that case. The executor
    /// delivers them if the try is the last one. Answered by `LastTry`.
    Failing {
        /// The task.
        task: TaskId,
        /// Number of the try, as assigned.
        attempt: u32,
        /// How the try will end.
        status: Status,
    },
    /// The answer to `ReadPrinted`.
    Printed {
        /// The number of the question.
        question: u64,
        /// The next output; `None` if the task's program does not run.
        piece: Option<Box<PrintedPiece>>,
    },
    /// A place of a named file could not be read, and the next place is tried. Minor version 9.
    PassedOver {
        /// The name.
        name: Name,
        /// URL of the place.
        place: Name,
        /// The reason, for a person.
        why: String,
    },
    /// News of a derived copy. If it is wanted, `Derive` is the answer, which may take as long as
    /// another executor makes the copy. Minor version 10.
    Copy {
        /// The copy.
        object: ObjectId,
        /// What is reported.
        news: CopyNews,
    },
    /// Another executor has sent an object damaged. It is told to verify the object. Minor version
    /// 11.
    Damaged {
        /// The object.
        object: ObjectId,
        /// Address at which that executor sends objects.
        giver: SocketAddr,
    },
}

/// The description of an executor that joins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Name for people, usually the host's.
    pub name: String,
    /// The host's name.
    pub host: String,
    /// Labels of the node, for match expressions.
    pub labels: Labels,
    /// Which tasks the executor accepts: a match expression, or `None` for all tasks.
    pub accept: Option<String>,
    /// Process number on that host.
    pub process: u32,
    /// The unique name of that process; its tasks have it in their environment.
    pub incarnation: String,
    /// Resources for tasks.
    pub capacity: Resources,
    /// Capacity of the store.
    pub store_bytes: u64,
    /// Where other executors fetch from the store.
    pub transfer: TransferAddress,
    /// The node of the file system in this process, if there is one.
    pub files: Option<FilesNode>,
    /// The request for which the node was started, if it is a node of a pool.
    pub origin: Option<NodeOrigin>,
    /// Objects that the store already has, with their sizes.
    pub held: Vec<(ObjectId, u64)>,
}

/// Where an executor sends objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferAddress {
    /// Address at which it listens.
    pub address: SocketAddr,
    /// The proxy of the executor: its address for processes that are not behind the same proxy.
    /// `None` if the executor is reached directly.
    pub proxy: Option<SocketAddr>,
}

/// A node of the file system, in an executor's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesNode {
    /// The node's id.
    pub node: NodeId,
    /// Address at which it accepts sessions.
    pub address: SocketAddr,
    /// The file system that the node has joined, if any.
    pub system: Option<FileSystemId>,
}

/// The file system that a node belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemMembership {
    /// The cluster's file system.
    pub system: FileSystemId,
    /// Whether this node founds the file system, unless it exists.
    pub founds: bool,
    /// Addresses of some other nodes.
    pub nodes: Vec<SocketAddr>,
}

/// Commands to an executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToExecutor {
    /// The answer to a registration.
    Welcome {
        /// The executor's id.
        executor: ExecutorId,
        /// Whether the executor caches objects (all placement policies except first-available).
        caching: bool,
        /// Longest time between two heartbeats.
        heartbeat_us: u64,
        /// Duration of the lease: for this long after the executor has sent a heartbeat that was
        /// answered, silence alone does not move its tasks to other executors.
        lease_us: u64,
        /// The file system of its node, if the executor has a node.
        files: Option<FileSystemMembership>,
    },
    /// Addresses of some nodes of the file system, for executors that read and write its files.
    /// Sent again when there are more, if there were few.
    FilesNodes(Vec<SocketAddr>),
    /// The executor is refused, with the reason for a person. The last message.
    Refused(String),
    /// The executor's key from now on; its present key is about to expire.
    Key {
        /// Certificate of the key, PEM.
        certificate: String,
        /// The key itself, PEM.
        key: SecretText,
    },
    /// The cluster's trust from now on.
    Trust(Box<Trust>),
    /// The token of a job, an access file for its tasks; before the first template of the job.
    Token {
        /// The job.
        job: JobId,
        /// The access file.
        access: SecretText,
    },
    /// The answer to a heartbeat.
    Heard,
    /// A template that later assignments name.
    Template {
        /// The job.
        job: JobId,
        /// Index of the template in the job.
        template: u16,
        /// The template.
        spec: Box<TaskTemplate>,
    },
    /// The next inputs of a task with more than [`INPUTS_PART`], in order. Its assignment, with the
    /// last of them, follows.
    Inputs(Vec<AssignedInput>),
    /// A task to run.
    Assign(Assignment),
    /// Give back a task if it has not started.
    Recall {
        /// The task.
        task: TaskId,
    },
    /// Kill a task.
    Cancel {
        /// The task.
        task: TaskId,
    },
    /// Hold an object: fetch it if it is missing, and do not evict it. Answered by `Stored` or
    /// `NotHeld`.
    Hold {
        /// The object.
        object: ObjectSpec,
        /// Executors that may have the object, in the order in which to try them.
        holders: Vec<PeerHint>,
    },
    /// Stop holding an object.
    Release {
        /// The object.
        object: ObjectId,
    },
    /// Verify an object that other executors could not get. Answered by `Evicted` if it is damaged
    /// or missing.
    Verify {
        /// The object.
        object: ObjectId,
    },
    /// The answer to a claim.
    Claimed {
        /// The task that writes the outputs.
        task: TaskId,
        /// The first place that another task of the job has, with that task's index; `None` if the
        /// task has all its places.
        by_other: Option<(PlaceId, u32)>,
    },
    /// Compare outputs in persistent storage with their versions. Answered by `Checked`.
    Check {
        /// The task that writes them.
        task: TaskId,
        /// The outputs and their versions when they were written.
        objects: Vec<ObjectSpec>,
    },
    /// Forget the templates of a job.
    ForgetJob {
        /// The job.
        job: JobId,
    },
    /// Kill the processes that a lost executor on the same host has left, unless that executor
    /// lives. Its tasks run on other executors now.
    EndLeftovers {
        /// The name of the lost executor's process, as in its registration.
        incarnation: String,
    },
    /// Kill all tasks, and leave.
    Stop,
    /// The answer to `Failing`.
    LastTry {
        /// The task.
        task: TaskId,
        /// Whether the task is not tried again. `false` also if it is no longer this executor's.
        is_last: bool,
    },
    /// Send what a running task has printed. Answered by `Printed`.
    ReadPrinted {
        /// The number of the question.
        question: u64,
        /// The task.
        task: TaskId,
        /// What the client has that asks.
        from: PrintedPosition,
    },
    /// The places of named inputs of the task that is assigned next, by the sources of the inputs.
    /// Minor version 9.
    Places(Vec<(Name, Vec<Name>)>),
    /// Like `Hold`, for an object whose source is a name. Minor version 9.
    HoldNamed {
        /// The object.
        object: ObjectSpec,
        /// Executors that may have the object, in the order in which to try them.
        holders: Vec<PeerHint>,
        /// URLs of the places of the name.
        places: Vec<Name>,
    },
    /// Derived copies that the task reads which is assigned next. The executor fetches a copy from
    /// those that may have it, unless it has the copy or the source. Minor version 10.
    Copies(Vec<CopyHint>),
    /// The answer to a copy that is wanted: fetch the copy from one of these executors. Make it if
    /// there are none, or if none gives it. Minor version 10.
    Derive {
        /// The copy.
        object: ObjectId,
        /// Size of the copy; 0 if it is to be made.
        size_bytes: u64,
        /// Executors that may have the copy, in the order in which to try them.
        holders: Vec<PeerHint>,
    },
}

/// A task for an executor to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The task.
    pub task: TaskId,
    /// Number of earlier assignments.
    pub attempt: u32,
    /// Index in the job's templates; the template was sent before.
    pub template: u16,
    /// Values of the placeholders.
    pub values: Vec<Value>,
    /// The inputs. Those of the template come first. Inputs that were sent with
    /// [`ToExecutor::Inputs`] precede them.
    pub inputs: Vec<AssignedInput>,
}

/// An input of an assigned task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssignedInput {
    /// The object.
    pub object: ObjectSpec,
    /// The part that the task reads; the whole object if missing.
    pub part: Option<PartOfFile>,
    /// Name in the sandbox; by default the last component of the object's source.
    pub name: Option<Name>,
    /// Executors that may have the object, in the order in which to try them.
    pub holders: Vec<PeerHint>,
}

/// A derived copy that a task reads, and where it may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHint {
    /// The copy.
    pub object: ObjectId,
    /// Size of the copy.
    pub size_bytes: u64,
    /// Executors that may have it, in the order in which to try them.
    pub holders: Vec<PeerHint>,
}

/// An executor that may have an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHint {
    /// Where it sends objects.
    pub transfer: TransferAddress,
    /// It is receiving the object itself, or will soon.
    pub is_relay: bool,
    /// Number of executors that it is already sending objects to.
    pub others: u32,
}
