//! What a node is told, and what it wants done: the whole of its traffic with the world.

use alloc::boxed::Box;
use alloc::string::String;

use eyas_types::{ObjectId, Origin, Reads, Resources, TaskId};

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The dispatcher gave this node a task.
    Assigned {
        /// Which.
        task: TaskId,
        /// Objects it reads, with their sizes in bytes. An object that is named twice is read once.
        inputs: Box<[(ObjectId, u64)]>,
        /// What it holds while it runs.
        need: Resources,
        /// Higher goes first, and may suspend what is lower.
        priority: i32,
    },
    /// The dispatcher wants a task back, if it has not started.
    Recalled {
        /// Which.
        task: TaskId,
    },
    /// A task shall not run, or not go on.
    Cancelled {
        /// Which.
        task: TaskId,
    },
    /// An object is in the store.
    Fetched {
        /// Which.
        object: ObjectId,
        /// Where it came from.
        from: Origin,
        /// How long that took, microseconds.
        took_us: u64,
    },
    /// An object could not be fetched.
    FetchFailed {
        /// Which.
        object: ObjectId,
        /// Why.
        failure: FetchFailure,
    },
    /// A started task has ended, and its outputs were delivered.
    Ended {
        /// Which.
        task: TaskId,
    },
    /// The store had this object when it was opened.
    Found {
        /// Which.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// The store no longer has this object, though nobody told it to forget it: it was damaged. It is fetched again for
    /// tasks that wait; those that run are left to it, and are assigned again if they did not get hold of it.
    Lost {
        /// Which.
        object: ObjectId,
    },
    /// The dispatcher wants this node to hold an object: to fetch it if it is not here, and not to evict it.
    Hold {
        /// Which.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// Somebody is about to give this node an object, to hold it; it may come once it is [`Expected`](Effect::Expected).
    Expect {
        /// Which.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// An object that was expected is in the store, or does not come.
    Given {
        /// Which.
        object: ObjectId,
        /// Whether it is here.
        is_here: bool,
    },
    /// The store had this object when it was opened, and holds it, whatever the limits are by now.
    FoundHeld {
        /// Which.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// An object that was held may be evicted again.
    Release {
        /// Which.
        object: ObjectId,
    },
    /// A task that runs has put an output into the store, which is held from now on.
    Produced {
        /// Which task.
        task: TaskId,
        /// Which object.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// What the store's disk has free, with the room of fetches that were asked for taken.
    FreeSpace {
        /// Bytes.
        bytes: u64,
        /// Inodes.
        inodes: u64,
    },
}

/// Why an object could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The store's disk is full.
    Full,
    /// It is nowhere to be had, or has changed; tasks that need it fail.
    Unavailable,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fetch an object into the store.
    Fetch {
        /// Which.
        object: ObjectId,
        /// A task that needs it, whose hints say where to look; none, if the dispatcher wants it held.
        task: Option<TaskId>,
    },
    /// There is room for an object that somebody is about to give. What becomes of it is told by
    /// [`Given`](Event::Given).
    Expected {
        /// Which.
        object: ObjectId,
    },
    /// An object that was to be held is here.
    Held {
        /// Which.
        object: ObjectId,
    },
    /// An object that was to be held cannot be, or not any longer.
    NotHeld {
        /// Which.
        object: ObjectId,
        /// Why, for a person.
        reason: String,
    },
    /// An output that a task has put into the store must leave it again: there is no room for it.
    CannotKeep {
        /// Which task.
        task: TaskId,
        /// Which object.
        object: ObjectId,
        /// Why, for a person.
        reason: String,
    },
    /// Remove an object from the store.
    Evict {
        /// Which.
        object: ObjectId,
    },
    /// Start a task; its inputs are there.
    Start {
        /// Which.
        task: TaskId,
        /// The number of its slot, from 0.
        slot: u32,
        /// Where its inputs came from.
        reads: Reads,
    },
    /// Stop all processes of a started task: others have its processors until it is resumed. It may end all the same.
    Suspend {
        /// Which.
        task: TaskId,
    },
    /// Let a suspended task go on.
    Resume {
        /// Which.
        task: TaskId,
    },
    /// Kill a started task, which may be suspended; `Ended` follows.
    Kill {
        /// Which.
        task: TaskId,
    },
    /// A recalled or cancelled task had not started and is forgotten.
    GiveBack {
        /// Which.
        task: TaskId,
    },
    /// This node cannot take the task, which is forgotten; another may.
    Refuse {
        /// Which.
        task: TaskId,
        /// Whether it may take it later: the disk is full, which can change. If not, the store is too small for it.
        for_now: bool,
        /// Why, for a person.
        reason: String,
    },
    /// The task cannot run because this input cannot be had; it is forgotten.
    Fail {
        /// Which.
        task: TaskId,
        /// Which input.
        object: ObjectId,
    },
}
