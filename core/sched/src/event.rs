//! What the scheduler is told and what it answers.

use alloc::boxed::Box;

use eyas_types::{Distribution, Ended, ExecutorId, JobId, Need, ObjectId, Origin, PlacementPolicy, Resources, TaskId};

use crate::matchmaking::Profile;

/// Most holders named in a [`Hint`].
pub const MAX_HINTS: usize = 4;

/// How a scheduler decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// The placement policy.
    pub policy: PlacementPolicy,
    /// GCC's threshold (the paper uses 0.8 and 0.9).
    pub utilisation_threshold: f64,
    /// `W`: entries looked at in one decision, and how often the oldest task may be overtaken. `None`: it may be
    /// overtaken 100 times for each executor, at least 2,500 times, and 2,500 entries are looked at (data-diffusion
    /// §4.4, §5.1.1).
    pub window: Option<u64>,
    /// Whether who is still receiving an object is named as one that can give it. If not, simultaneous demand reads
    /// persistent storage as often as there are executors, as in the paper. For comparison.
    pub relays: bool,
    /// Whether who may take any task looks first for one of which it holds inputs. If not, it takes the oldest, as figure 5
    /// of data-diffusion says to the letter (line 24). For comparison.
    pub hits_first: bool,
    /// Whether executors that hold as much of many tasks bring different objects for them (see `partial.rs`). If not, of
    /// equals the oldest task goes first, as in the paper. For comparison.
    pub spread: bool,
}

impl Default for Config {
    fn default() -> Self {
        let policy = PlacementPolicy::Cost;
        Config { policy, utilisation_threshold: 0.9, window: None, relays: true, hits_first: true, spread: true }
    }
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An executor is there, and no task is on it.
    ExecutorJoined {
        /// Its id, never used before.
        executor: ExecutorId,
        /// What it has for tasks.
        capacity: Resources,
        /// What else is said of it.
        profile: Box<Profile>,
        /// Objects it holds, with their sizes in bytes.
        held: Box<[(ObjectId, u64)]>,
    },
    /// An executor is about to leave: it is given no more tasks, and what it holds counts no more.
    ExecutorDraining {
        /// Which.
        executor: ExecutorId,
    },
    /// An executor is gone, with all it held. Its tasks are queued again, first in line.
    ExecutorLeft {
        /// Which.
        executor: ExecutorId,
    },
    /// A task may run.
    TaskReady {
        /// Its id, not in use.
        task: TaskId,
        /// Objects it reads, with their sizes in bytes; each once.
        inputs: Box<[(ObjectId, u64)]>,
        /// What it needs.
        need: Need,
    },
    /// A job, of which tasks are going to be ready, is called so.
    JobNamed {
        /// Which.
        job: JobId,
        /// Its name.
        name: Box<str>,
    },
    /// An executor says what its disk has for inputs and sandboxes: what is free, and what its store could give up.
    FreeDisk {
        /// Which.
        executor: ExecutorId,
        /// Bytes.
        bytes: u64,
    },
    /// A task shall not run, or not go on.
    TaskCancelled {
        /// Which.
        task: TaskId,
    },
    /// Tasks that wait shall not run for now; tasks that are not in the queue are passed over.
    TasksWithdrawn {
        /// The tasks.
        tasks: Box<[TaskId]>,
    },
    /// An executor is given no more tasks until it is taken back, and those that it has not started are asked back. What it
    /// holds stays in the catalog, and it goes on giving it.
    ExecutorSetAside {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor that was set aside is given tasks again.
    ExecutorTakenBack {
        /// The executor.
        executor: ExecutorId,
    },
    /// A task is over, wherever it is; if it was assigned, its executor is about to leave.
    TaskDropped {
        /// Which.
        task: TaskId,
    },
    /// An executor has done with a task.
    TaskEnded {
        /// The executor it was assigned to.
        executor: ExecutorId,
        /// Which.
        task: TaskId,
        /// How.
        ended: Ended,
        /// How long it ran, microseconds; `None` if it was not started.
        ran_us: Option<u64>,
    },
    /// An executor holds a replica.
    Stored {
        /// Which.
        executor: ExecutorId,
        /// Of which object.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// An executor has fetched an object, which it is going to say that it stored.
    Fetched {
        /// Which executor.
        executor: ExecutorId,
        /// Which object.
        object: ObjectId,
        /// From where.
        from: Origin,
        /// How long it took, microseconds.
        took_us: u64,
    },
    /// An executor's data-intensive tasks that are being staged leave so much of its processors to others.
    Staging {
        /// Which.
        executor: ExecutorId,
        /// Processors that they will take, thousandths.
        lent_milli: u64,
        /// Tasks that read fewer bytes may have them meanwhile.
        light_bytes: u64,
    },
    /// An executor no longer holds a replica.
    Evicted {
        /// Which.
        executor: ExecutorId,
        /// Of which object.
        object: ObjectId,
    },
    /// An executor cannot have an object that it was to hold.
    NotHeld {
        /// Which.
        executor: ExecutorId,
        /// Which object.
        object: ObjectId,
    },
    /// So many executors shall hold an object until it is released.
    Keep {
        /// Which.
        object: ObjectId,
        /// How many.
        replicas: u8,
        /// An executor that holds it already, without being told.
        by: Option<ExecutorId>,
    },
    /// An object need not be held any longer.
    Release {
        /// Which.
        object: ObjectId,
    },
    /// A task could not have a kept object: those that are said to hold it shall look whether they do.
    Doubted {
        /// Which.
        object: ObjectId,
    },
    /// A while has passed: executors that could not hold an object may be able to now.
    HoldAgain,
    /// An executor that is draining stays until others have what only it holds.
    Evacuate,
    /// Objects shall be with executors ahead of demand.
    Push {
        /// Its id, not in use.
        push: PushId,
        /// Which, with their sizes in bytes; each once.
        objects: Box<[(ObjectId, u64)]>,
        /// With whom.
        to: Recipients,
        /// Which way they go.
        distribution: Distribution,
    },
    /// Nobody need be told of a push's objects any longer.
    PushEnded {
        /// Which.
        push: PushId,
    },
}

/// Names a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PushId(pub u64);

/// Who gets what is pushed.
#[derive(Clone, Debug)]
pub enum Recipients {
    /// These executors, if they are there.
    Executors(Box<[ExecutorId]>),
    /// Those that are large enough for one of these needs and match it by all that never changes; in a chain, those that
    /// join later, too.
    Takers(Box<[Need]>),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give the task to the executor.
    Assign {
        /// To which.
        executor: ExecutorId,
        /// Which task.
        task: TaskId,
        /// How often it was assigned before.
        attempt: u32,
        /// Who can give the inputs that this executor does not hold.
        hints: Box<[Hint]>,
    },
    /// Ask for a task back if it has not started, because another executor is idle.
    Recall {
        /// From which.
        executor: ExecutorId,
        /// Which task.
        task: TaskId,
    },
    /// Kill a task.
    Cancel {
        /// On which.
        executor: ExecutorId,
        /// Which task.
        task: TaskId,
    },
    /// Have an executor hold an object: fetch it if it is not there, and not evict it. It answers with `Stored`, or with
    /// `NotHeld`.
    Hold {
        /// Which executor.
        executor: ExecutorId,
        /// Which object.
        object: ObjectId,
        /// Who can give it, the first to be tried first.
        holders: Box<[Holder]>,
    },
    /// Let an executor evict an object that it holds.
    Release {
        /// Which executor.
        executor: ExecutorId,
        /// Which object.
        object: ObjectId,
    },
    /// Have an executor look whether it really has an object; if not, it says `Evicted`.
    Verify {
        /// Which executor.
        executor: ExecutorId,
        /// Which object.
        object: ObjectId,
    },
    /// Everybody has what was pushed, or will not have it; may be said again, until the push has ended.
    Pushed {
        /// Which push.
        push: PushId,
    },
    /// No executor that stays holds this kept object. Said when it is to be kept and no executor has it, when the last
    /// replica is gone or its executor is about to leave, and again when that executor has left.
    Lost {
        /// The kept object.
        object: ObjectId,
    },
    /// An executor that stays holds this kept object again, which was said to be lost.
    Found {
        /// The kept object.
        object: ObjectId,
    },
    /// Every executor that is large enough for the task has refused it; it is forgotten.
    Unplaceable {
        /// Which.
        task: TaskId,
    },
}

/// Who can give an input: a hint, never a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The input's place among the task's inputs.
    pub input: u16,
    /// Up to [`MAX_HINTS`] of them, the first to be tried first.
    pub holders: Box<[Holder]>,
}

/// An executor that can give an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which.
    pub executor: ExecutorId,
    /// It is receiving the object itself, or about to: a partial replica.
    pub is_relay: bool,
    /// To how many others it gives objects.
    pub others: u32,
}

impl Holder {
    /// One with a whole replica, which it gives to nobody else.
    pub(crate) fn of_whole(executor: ExecutorId) -> Self {
        Holder { executor, is_relay: false, others: 0 }
    }
}
