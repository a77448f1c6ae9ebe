//! What the scheduler is told, and what it answers.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use eyas_types::matching::{Expression, Labels};
use eyas_types::{
    AssignmentEnd, CopyNews, Distribution, ExecutorId, JobId, Need, ObjectId, Origin,
    PlacementPolicy, Resources, TaskId,
};

/// Most holders named in a [`Hint`].
pub const MAX_HINTS: usize = 4;

/// Most inputs by which a task is placed: a decision about a task looks at them once for each of up
/// to some hundred executors. For example, of 1,000,000 inputs it looks at 16,130.
const PLACED_INPUTS: usize = 16_384;

/// How a scheduler decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// The placement policy.
    pub policy: PlacementPolicy,
    /// GCC's threshold (the paper uses 0.8 and 0.9).
    pub utilisation_threshold: f64,
    /// `minCacheHit` of figure 5, as a share: where tasks wait for holders (MCH, and GCC at its
    /// threshold), an executor counts as a holder of a task if it holds more than this share of
    /// the task's input bytes. A task of which no executor holds so much goes to any. For example
    /// at 0.5, an executor with half of the bytes does not count, and one with two thirds does.
    pub min_cache_hit: f64,
    /// `W`: the number of entries that are read in one decision, and the number of times that the
    /// oldest task may be overtaken. `None`: it may be overtaken 100 times for each executor and
    /// at least 2,500 times, and 2,500 entries are read (data-diffusion §4.4, §5.1.1). For example
    /// it may be overtaken 2,500 times with 4 executors, and 10,000 times with 100.
    pub window: Option<u64>,
    /// How long a task waits for executors that hold its inputs.
    pub patience: HolderPatience,
    /// Whether an executor that is still receiving an object may give it to others. If not,
    /// simultaneous demand reads persistent storage once for each executor, as in the paper. For
    /// comparison.
    pub relays: bool,
    /// Whether an executor that may take any task looks first for one of which it holds inputs. If
    /// not, it takes the oldest, as figure 5 of data-diffusion says literally (line 24). For
    /// comparison.
    pub hits_first: bool,
    /// Whether executors that hold equal shares of many tasks fetch different objects for them
    /// (see `partial_hits.rs`). If not, the oldest of equals goes first, as in the paper. For
    /// comparison.
    pub spread: bool,
    /// Most inputs by which a task is placed. Of a task with more, a sample is looked at.
    pub placed_inputs: usize,
}

impl Default for Config {
    fn default() -> Self {
        let policy = PlacementPolicy::Cost;
        Config {
            policy,
            utilisation_threshold: 0.9,
            min_cache_hit: 0.0,
            window: None,
            patience: HolderPatience::Window,
            relays: true,
            hits_first: true,
            spread: true,
            placed_inputs: PLACED_INPUTS,
        }
    }
}

/// How long a task waits for executors that hold its inputs, before any executor may take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolderPatience {
    /// Until as many other tasks have left the queue as [`Config::window`] says.
    #[default]
    Window,
    /// Until this many other tasks have left the queue.
    Tasks(u64),
    /// For ever, as in the paper (data-diffusion §2.3).
    Unlimited,
}

/// What is reported of an executor, and what it requires of tasks.
#[derive(Clone, Debug, Default)]
pub struct ExecutorProfile {
    /// Its name.
    pub name: Box<str>,
    /// The name of its host.
    pub host: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// It takes a task only if all of these hold.
    pub accept: Box<[Arc<dyn Expression>]>,
}

impl ExecutorProfile {
    /// The site, if it has the label: executors at one site are near each other.
    pub(crate) fn site(&self) -> Option<&str> {
        self.labels.get("site").map(String::as_str)
    }

    /// The rack at its site, if it has the label: executors in one rack are the nearest.
    pub(crate) fn rack(&self) -> Option<&str> {
        self.labels.get("rack").map(String::as_str)
    }

    /// Whether it accepts tasks by attributes of one task or of the moment.
    pub(crate) fn is_constraining(&self) -> bool {
        self.accept.iter().any(|part| !part.is_fixed())
    }
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An executor has joined, without a task.
    ExecutorJoined {
        /// The executor's id, never used before.
        executor: ExecutorId,
        /// The resources that it has for tasks.
        capacity: Resources,
        /// What else is known of it.
        profile: Box<ExecutorProfile>,
        /// Objects that it holds, with their sizes in bytes.
        held: Box<[(ObjectId, u64)]>,
    },
    /// An executor is about to leave: it is given no more tasks, and its replicas no longer count.
    ExecutorDraining {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor is gone with all its replicas. Its tasks are queued again, at the front.
    ExecutorLeft {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor is given no tasks until it is taken back, and tasks that it has not started are
    /// recalled. Its replicas stay in the catalog, and it goes on giving them.
    ExecutorSetAside {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor that was set aside is given tasks again.
    ExecutorTakenBack {
        /// The executor.
        executor: ExecutorId,
    },
    /// A task may run.
    TaskReady {
        /// The task's id, not in use.
        task: TaskId,
        /// Objects that it reads, with their sizes in bytes; each once.
        inputs: Arc<[(ObjectId, u64)]>,
        /// What it needs.
        need: Need,
    },
    /// A job whose tasks are going to be ready has this name.
    JobNamed {
        /// The job.
        job: JobId,
        /// The job's name.
        name: Box<str>,
    },
    /// An executor reports the disk space for inputs and sandboxes: what is free, and what its
    /// store could give up.
    FreeDisk {
        /// The executor.
        executor: ExecutorId,
        /// The disk space in bytes.
        bytes: u64,
    },
    /// The executors whose batch system ends them at a known time. All others have no such limit.
    TimesLeft {
        /// Executors, and the time until each is ended, microseconds.
        executors: Box<[(ExecutorId, u64)]>,
    },
    /// Ends the next of the fetches that were planned for tasks with very many inputs which have
    /// left their executors. Expected while
    /// [`Scheduler::has_fetches_to_end`](crate::Scheduler::has_fetches_to_end).
    EndFetches {
        /// The largest number of objects.
        objects: usize,
    },
    /// A task must not start, or must not go on.
    TaskCancelled {
        /// The task.
        task: TaskId,
    },
    /// Waiting tasks must not start for now. Tasks that are not known are passed over.
    TasksWithdrawn {
        /// The tasks.
        tasks: Box<[TaskId]>,
    },
    /// A task is over, wherever it is. If it was assigned, its executor is about to leave.
    TaskDropped {
        /// The task.
        task: TaskId,
    },
    /// An executor is done with a task.
    TaskEnded {
        /// The executor that it was assigned to.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// How it ended.
        ended: AssignmentEnd,
        /// The run time, microseconds; `None` if the task was not started.
        ran_us: Option<u64>,
    },
    /// An executor holds a replica.
    Stored {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
        /// The object's size in bytes.
        size_bytes: u64,
    },
    /// An executor has fetched an object; `Stored` follows.
    Fetched {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
        /// The source.
        from: Origin,
        /// The duration, microseconds.
        took_us: u64,
    },
    /// An executor lends processors of data-intensive tasks that it stages to other tasks.
    Staging {
        /// The executor.
        executor: ExecutorId,
        /// Processors that the staged tasks will take, thousandths.
        lent_milli: u64,
        /// Tasks that read fewer bytes may use them meanwhile.
        light_bytes: u64,
    },
    /// An executor no longer holds a replica.
    Evicted {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// An executor cannot get an object that it was told to hold.
    NotHeld {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// An executor reports something of a derived copy. If it is wanted,
    /// [`Derive`](PlacementCommand::Derive) follows.
    Copy {
        /// The executor.
        executor: ExecutorId,
        /// The copy.
        object: ObjectId,
        /// What is reported.
        news: CopyNews,
    },
    /// An object must be held by `replicas` executors until it is released.
    Keep {
        /// The object.
        object: ObjectId,
        /// The number of executors.
        replicas: u8,
        /// An executor that holds it already, without having been told.
        executor: Option<ExecutorId>,
    },
    /// An object need not be held any longer.
    Release {
        /// The object.
        object: ObjectId,
    },
    /// A task could not get a kept object: executors that reported it verify that they have it.
    Doubted {
        /// The object.
        object: ObjectId,
    },
    /// Time has passed: executors that could not hold an object may be able to now.
    HoldAgain,
    /// An executor that is draining stays until others have what only it holds.
    Evacuate,
    /// Executors get objects ahead of demand.
    Push {
        /// The push's id, not in use.
        push: PushId,
        /// The objects, with their sizes in bytes; each once.
        objects: Box<[(ObjectId, u64)]>,
        /// The executors that get them.
        to: Recipients,
        /// How they are distributed.
        distribution: Distribution,
    },
    /// No executor need be told of a push's objects any longer.
    PushEnded {
        /// The push.
        push: PushId,
    },
}

/// Names a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PushId(pub u64);

/// The executors that get pushed objects.
#[derive(Clone, Debug)]
pub enum Recipients {
    /// These executors, if they are there.
    Executors(Box<[ExecutorId]>),
    /// Executors that are large enough for one of these needs and match it by everything that never
    /// changes. In a chain, also those that join later.
    Takers(Box<[Need]>),
}

/// What the scheduler says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// To the shell.
    Command(PlacementCommand),
    /// To the decider of jobs.
    Report(PlacementReport),
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementCommand {
    /// Give a task to an executor.
    Assign {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// The number of earlier assignments.
        attempt: u32,
        /// Holders of the inputs that this executor lacks.
        hints: Box<[Hint]>,
        /// The task has so many inputs that there are no hints here: they are given by
        /// [`Scheduler::hints_of_part`](crate::Scheduler::hints_of_part), part by part.
        in_parts: bool,
    },
    /// Ask an executor to return a task if it has not started, because another executor is idle.
    Recall {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
    },
    /// Kill a task.
    Cancel {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
    },
    /// Have an executor hold an object: fetch it if it is not there, and not evict it. The executor
    /// answers with `Stored` or `NotHeld`.
    Hold {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
        /// Executors that can give it, the first to be tried first.
        holders: Box<[Holder]>,
    },
    /// Let an executor fetch a derived copy, or make it if there are no holders. The executor
    /// answers with `Stored` or `Copy`.
    Derive {
        /// The executor.
        executor: ExecutorId,
        /// The copy.
        object: ObjectId,
        /// The copy's size in bytes; 0 if it is to be made.
        size_bytes: u64,
        /// Executors that can give it, the first to be tried first.
        holders: Box<[Holder]>,
    },
    /// Let an executor evict an object that it holds.
    Release {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// Have an executor check whether it really has an object; if not, it answers with `Evicted`.
    Verify {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// Every recipient has the pushed objects, or will not get them. May be reported again, until
    /// the push has ended.
    Pushed {
        /// The push.
        push: PushId,
    },
}

/// What the decider of jobs must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementReport {
    /// No executor that stays holds this kept object. Reported when the object is to be kept and no
    /// executor has it, when the last replica is gone or its executor is about to leave, and again
    /// when that executor has left.
    Lost {
        /// The kept object.
        object: ObjectId,
    },
    /// An executor that stays holds this kept object again, which was reported as lost.
    Found {
        /// The kept object.
        object: ObjectId,
    },
    /// Every executor that is large enough for the task has refused it; the task is forgotten.
    Unplaceable {
        /// The task.
        task: TaskId,
    },
}

/// Executors that can give an input: a hint, never a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The index of the input among the task's inputs.
    pub input: u32,
    /// Up to [`MAX_HINTS`] holders, the first to be tried first.
    pub holders: Box<[Holder]>,
}

/// An executor that can give an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The executor.
    pub executor: ExecutorId,
    /// The executor is receiving the object itself, or about to: a partial replica.
    pub is_relay: bool,
    /// The number of other executors that it gives objects to.
    pub others: u32,
}

impl Holder {
    /// An executor with a whole replica, which gives it to no other executor.
    pub(crate) fn of_whole(executor: ExecutorId) -> Self {
        Holder { executor, is_relay: false, others: 0 }
    }
}
