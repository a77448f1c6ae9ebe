//! Events and effects of a node: all that passes between the decider and its shell.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{ObjectId, Origin, Reads, Resources, TaskId};

/// A fact that the shell reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// The dispatcher assigned a task to this node.
    Assigned {
        /// The task.
        task: TaskId,
        /// Objects that the task reads, with their sizes in bytes. Repeated objects count once.
        inputs: Box<[(ObjectId, u64)]>,
        /// Resources that the task holds while it runs.
        need: Resources,
        /// Tasks of higher priority start first, and may suspend tasks of lower priority.
        priority: i32,
    },
    /// The dispatcher wants a task back, if it has not started.
    Recalled {
        /// The task.
        task: TaskId,
    },
    /// The task was cancelled. If it has started, it is killed.
    Cancelled {
        /// The task.
        task: TaskId,
    },
    /// A fetch has succeeded: the object is in the store.
    Fetched {
        /// The object.
        object: ObjectId,
        /// The kind of source that delivered the object.
        from: Origin,
        /// Duration of the fetch, microseconds.
        took_us: u64,
    },
    /// A fetch has failed.
    FetchFailed {
        /// The object.
        object: ObjectId,
        /// Why.
        failure: FetchFailure,
    },
    /// A started task has ended, and its outputs were delivered.
    Ended {
        /// The task.
        task: TaskId,
    },
    /// A started task has failed because the disk was full. It starts again when there is more
    /// room, or is refused. The free space was measured after the task.
    OutOfDisk {
        /// The task.
        task: TaskId,
        /// Bytes that the task had written to the disk.
        written_bytes: u64,
    },
    /// The store had this object when it was opened.
    Found {
        /// The object.
        object: ObjectId,
        /// Size of the object.
        size_bytes: u64,
    },
    /// The store has lost this object without being told to remove it, for instance because the
    /// file was damaged. The object is fetched again for tasks that wait. Running tasks continue;
    /// the dispatcher assigns a task again if it fails for want of the object.
    Lost {
        /// The object.
        object: ObjectId,
    },
    /// The dispatcher wants this node to hold an object: to fetch it if the store does not have it,
    /// and not to evict it.
    Hold {
        /// The object.
        object: ObjectId,
        /// Size of the object.
        size_bytes: u64,
    },
    /// Another process offers an object, which this node is to hold. It may send the object after
    /// [`Expected`](Effect::Expected).
    Offered {
        /// The object.
        object: ObjectId,
        /// Size of the object.
        size_bytes: u64,
    },
    /// The transfer of an expected object has ended.
    TransferEnded {
        /// The object.
        object: ObjectId,
        /// Whether the object is in the store. If not, the transfer failed.
        is_here: bool,
    },
    /// The store had this object when it was opened, and the object was held. It stays held, even
    /// if the limits are smaller now.
    FoundHeld {
        /// The object.
        object: ObjectId,
        /// Size of the object.
        size_bytes: u64,
    },
    /// An object is no longer held, and nothing will need it again: it is evicted as soon as no
    /// task needs it.
    Discard {
        /// The object.
        object: ObjectId,
    },
    /// An object is no longer held, and may be evicted.
    Release {
        /// The object.
        object: ObjectId,
    },
    /// A running task has put an output into the store. The output is held.
    Produced {
        /// The task.
        task: TaskId,
        /// The output.
        object: ObjectId,
        /// Size of the output.
        size_bytes: u64,
    },
    /// A running task reads what this node has made of one of its inputs: the content of a
    /// compressed file, or a folder. It counts as a use of both.
    Derived {
        /// The task.
        task: TaskId,
        /// The input.
        source: ObjectId,
        /// The content or folder.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
        /// Time that it took to make or fetch it, microseconds; `None` if it was here.
        took_us: Option<u64>,
    },
    /// A started task waits for others, and lends its processors until it
    /// [reclaims](Event::Reclaimed) them.
    Lent {
        /// The task.
        task: TaskId,
    },
    /// A task wants the processors again that it has lent. [`Granted`](Effect::Granted) follows.
    Reclaimed {
        /// The task.
        task: TaskId,
    },
    /// Free space on the store's disk, after subtracting the space for fetches that were started.
    FreeSpace {
        /// Free bytes.
        bytes: u64,
        /// Free inodes.
        inodes: u64,
    },
}

/// Why an object could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The store's disk is full.
    Full,
    /// No source has the object, or the source has changed. Tasks that need the object fail.
    Unavailable,
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fetch an object into the store. [`Fetched`](Event::Fetched) or
    /// [`FetchFailed`](Event::FetchFailed) follows.
    Fetch {
        /// The object.
        object: ObjectId,
        /// A task that needs the object, and whose assignment has hints about its holders. `None`
        /// if the dispatcher wants the object held.
        task: Option<TaskId>,
    },
    /// There is space for an object that another process offers.
    /// [`TransferEnded`](Event::TransferEnded) follows.
    Expected {
        /// The object.
        object: ObjectId,
    },
    /// An object that was to be held is in the store.
    Held {
        /// The object.
        object: ObjectId,
    },
    /// An object that was to be held is not, or is no longer, in the store.
    NotHeld {
        /// The object.
        object: ObjectId,
        /// The reason, for a person.
        reason: String,
    },
    /// An object that was to be fetched is no longer needed before its fetch has begun, or has no
    /// source: those who wait to get it from this node look elsewhere.
    GivenUp {
        /// The object.
        object: ObjectId,
    },
    /// Remove an output from the store: there is no space for it.
    CannotKeep {
        /// The task that has put the output into the store.
        task: TaskId,
        /// The output.
        object: ObjectId,
        /// The reason, for a person.
        reason: String,
    },
    /// Remove an object from the store.
    Evict {
        /// The object.
        object: ObjectId,
    },
    /// Start a task; its inputs are in the store.
    Start {
        /// The task.
        task: TaskId,
        /// Number of the task's slot, from 0.
        slot: u32,
        /// Where the inputs came from.
        reads: Reads,
        /// Indices of the GPUs that only this task has, from 0.
        gpus: Vec<u32>,
        /// Numbers of the cores to which the task is pinned; none if it is not.
        cores: Vec<u32>,
    },
    /// Stop all processes of a started task: other tasks get its processors until it is resumed.
    /// The task may end nevertheless.
    Suspend {
        /// The task.
        task: TaskId,
    },
    /// Continue a suspended task.
    Resume {
        /// The task.
        task: TaskId,
    },
    /// Let the processes of a task run, though others get its processors: it waits for other tasks.
    Lend {
        /// The task.
        task: TaskId,
    },
    /// Tell a task that it has its processors again.
    Granted {
        /// The task.
        task: TaskId,
    },
    /// Kill a started task, which may be suspended. [`Ended`](Event::Ended) follows.
    Kill {
        /// The task.
        task: TaskId,
    },
    /// Tell the dispatcher that a recalled or cancelled task had not started. The node has
    /// forgotten the task.
    ReturnTask {
        /// The task.
        task: TaskId,
    },
    /// Tell the dispatcher that this node cannot take the task; another node may. The node has
    /// forgotten the task.
    Refuse {
        /// The task.
        task: TaskId,
        /// Whether this node may take the task later: its disk is full, which can change.
        /// Otherwise the store is too small for the task.
        for_now: bool,
        /// The reason, for a person.
        reason: String,
    },
    /// Tell the dispatcher that the task cannot run, because this input is unavailable. The node
    /// has forgotten the task.
    Fail {
        /// The task.
        task: TaskId,
        /// The input.
        object: ObjectId,
    },
}
