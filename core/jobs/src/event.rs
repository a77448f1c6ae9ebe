//! Events and effects of the decider of jobs.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use eyas_types::{
    AssignmentEnd, ExecutorId, JobId, Need, ObjectId, ObjectSpec, Outcome, PlaceId, Resources,
    TaskId, TaskResult,
};

use crate::job::{JobSummary, NewJob};
use crate::log::{JournalRecord, Replay};
use crate::spec::{Extension, JobSpec, SpecError};

/// What the shell tells the decider.
#[derive(Debug)]
pub enum Event {
    /// A client submits a job. Its id is [`Jobs::next_job`](crate::Jobs::next_job).
    Submitted {
        /// The job.
        job: Box<NewJob>,
    },
    /// A client attaches a job, without tasks so far, to its connection. Its id is
    /// [`Jobs::next_job`](crate::Jobs::next_job).
    Attached {
        /// The job.
        spec: Box<JobSpec>,
    },
    /// A client adds tasks to a job that is attached to its connection.
    Extended {
        /// The job.
        job: JobId,
        /// The additions.
        extension: Box<Extension>,
    },
    /// The client of an attached job needs no outputs of these tasks any more, nor will tasks that
    /// it adds. Tasks that it has added still may.
    Unneeded {
        /// The job.
        job: JobId,
        /// Indices of the tasks.
        tasks: Vec<u32>,
    },
    /// A client adds no more tasks to an attached job. The job is forgotten when all its tasks have
    /// ended and [`JobsAction::Deliver`] has passed on their results.
    Closed {
        /// The job.
        job: JobId,
    },
    /// Results of attached jobs can be delivered.
    Deliver,
    /// The job as it was submitted is on disk: it begins.
    Accepted {
        /// The job.
        job: JobId,
    },
    /// A job was read from the journal: it goes on where it was.
    Recovered {
        /// The job, with all its entries applied.
        replay: Box<Replay>,
    },
    /// An ended job was found in the journal, which need not be read as long as no client asks for
    /// it.
    RecoveredSummary {
        /// What is known of the job.
        summary: Box<JobSummary>,
    },
    /// Every executor that may run a job's tasks has the inputs that are pushed ahead of them.
    Pushed {
        /// The job.
        job: JobId,
    },
    /// The shell has time to queue more tasks of new jobs.
    QueueMore {
        /// How many tasks at most.
        tasks: u32,
    },
    /// An executor has joined.
    ExecutorJoined {
        /// Its id, never used before.
        executor: ExecutorId,
        /// Its name.
        name: String,
    },
    /// An executor is gone.
    ExecutorGone {
        /// The executor.
        executor: ExecutorId,
        /// The tasks that were assigned to it.
        tasks: Vec<TaskId>,
        /// Its resources if it was lost; `None` if it left in good order, so that no task is the
        /// cause.
        lost_with: Option<Resources>,
        /// Those of its tasks that were suspended.
        suspended: BTreeSet<TaskId>,
    },
    /// An executor is to leave once other executors hold what only it holds.
    ExecutorLeaves {
        /// The executor.
        executor: ExecutorId,
    },
    /// Other executors fetch this number of objects that only this leaving executor holds.
    Moving {
        /// The executor.
        executor: ExecutorId,
        /// Number of objects that still have to move.
        objects: usize,
    },
    /// A task was given to an executor.
    Assigned {
        /// The task.
        task: TaskId,
        /// The executor.
        executor: ExecutorId,
    },
    /// Every executor that is large enough for the task has refused it.
    Unplaceable {
        /// The task.
        task: TaskId,
    },
    /// An executor has ended a try at a task.
    TaskEnded {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// How often it had been assigned before.
        attempt: u32,
        /// How the try ended.
        outcome: Box<Outcome>,
    },
    /// An executor gives a task back before it has started.
    TaskReturned {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// How often it had been assigned before.
        attempt: u32,
    },
    /// No executor that stays holds a kept object.
    ObjectLost {
        /// The object.
        object: ObjectId,
    },
    /// An executor that stays holds a kept object again.
    ObjectFound {
        /// The object.
        object: ObjectId,
    },
    /// Answers [`SchedulerOrder::Locate`].
    Located {
        /// Objects that an executor is fetching from one that leaves.
        moving: Vec<ObjectId>,
        /// Objects that are nowhere.
        nowhere: Vec<ObjectId>,
    },
    /// A client asks for a kept object that no executor has.
    ObjectWanted {
        /// The object.
        object: ObjectId,
    },
    /// Answers [`JobsAction::ReadResult`].
    EarlierResult {
        /// The task that is to be queued.
        task: TaskId,
        /// The earlier task that did the same.
        earlier: TaskId,
        /// The outcome of the earlier task, if it can be read.
        outcome: Option<Box<Outcome>>,
    },
    /// A task's outputs are about to appear at these places of persistent storage. Answered by
    /// [`JobsAction::Claimed`], if the executor still has the task; if not, it has been told so.
    Claim {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// The places, each once.
        places: Vec<PlaceId>,
    },
    /// Answers [`JobsAction::Check`].
    Checked {
        /// The executor that looked.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// Whether all outputs are there, in the same version.
        is_unchanged: bool,
    },
    /// A client cancels tasks.
    Cancel {
        /// The job.
        job: JobId,
        /// Indices of the tasks.
        tasks: Range<u32>,
    },
    /// Run the failed and cancelled tasks of an ended job again.
    Retry {
        /// The job.
        job: JobId,
        /// Present versions of some objects of the job, by their indices. Tasks that run again read
        /// these.
        current: Vec<(u32, ObjectSpec)>,
    },
    /// A client releases what an ended job keeps in the cluster.
    Release {
        /// The job.
        job: JobId,
    },
    /// Forget an ended job, with its results and what executors hold for it.
    Forget {
        /// The job.
        job: JobId,
    },
    /// A client begins to watch a job.
    Watched {
        /// The job.
        job: JobId,
    },
    /// The interval of samples has passed.
    Tick {
        /// Processors of all executors, thousandths.
        capacity_milli: u64,
        /// Those with a task, thousandths.
        busy_milli: u64,
        /// The jobs that clients watch.
        watched: BTreeSet<JobId>,
    },
    /// The journal is free: results that have gathered can be written.
    Flush,
    /// The cluster stops: executors leave with what they hold, and come back with it.
    Stopping,
}

/// What the decider says.
#[derive(Debug)]
pub enum Effect {
    /// To the scheduler.
    Order(SchedulerOrder),
    /// To the shell.
    Action(JobsAction),
}

/// What the scheduler must do.
#[derive(Debug)]
pub enum SchedulerOrder {
    /// Tell the scheduler the job's name.
    Name {
        /// The job.
        job: JobId,
    },
    /// Queue a task.
    Queue {
        /// The task.
        task: TaskId,
        /// Objects it reads, with their sizes in bytes; each once.
        inputs: Arc<[(ObjectId, u64)]>,
        /// What it needs of an executor.
        need: Need,
    },
    /// Take tasks out of the queue, where they are there. It is the first effect of an event, so
    /// that no executor can be given them meanwhile.
    Withdraw {
        /// The tasks.
        tasks: Vec<TaskId>,
    },
    /// Have a task's executor end it.
    Cancel {
        /// The task.
        task: TaskId,
    },
    /// A task is over, and its executor is about to leave.
    Drop {
        /// The task.
        task: TaskId,
    },
    /// An executor has finished its work on a task.
    Done {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// In which way.
        ended: AssignmentEnd,
        /// How long it ran, microseconds; `None` if it was not started.
        ran_us: Option<u64>,
    },
    /// Give an executor no more tasks, and no longer count the objects that it holds.
    Drain {
        /// The executor.
        executor: ExecutorId,
    },
    /// Executors that stay fetch what only those that leave hold.
    Evacuate,
    /// The executor has left, and its tasks go back into the queue.
    Left {
        /// The executor.
        executor: ExecutorId,
    },
    /// Give an executor no tasks for now, and take back those that have not started.
    SetAside {
        /// The executor.
        executor: ExecutorId,
    },
    /// Give an executor that was set aside tasks again.
    TakeBack {
        /// The executor.
        executor: ExecutorId,
    },
    /// Have this many executors hold an object until it is released.
    Keep {
        /// The object.
        object: ObjectId,
        /// How many executors.
        replicas: u8,
        /// An executor that holds it already, without being told.
        on: Option<ExecutorId>,
    },
    /// An object need not be held any longer.
    Release {
        /// The object.
        object: ObjectId,
    },
    /// Have executors check whether they hold an object, as they are said to.
    Verify {
        /// The object.
        object: ObjectId,
    },
    /// Ask executors again that could not hold an object.
    HoldAgain,
    /// Say which of these objects are being fetched from an executor that leaves, and which are
    /// nowhere. Answered at once by [`Event::Located`].
    Locate {
        /// The objects, none of which an executor that stays holds.
        objects: Vec<ObjectId>,
    },
    /// All of the job's tasks have ended: nothing of it is needed any longer.
    ForgetJob {
        /// The job.
        job: JobId,
    },
}

/// What the shell must do.
#[derive(Debug)]
pub enum JobsAction {
    /// Write a record to the journal.
    Write(JournalRecord),
    /// Send the client of an attached job results.
    Deliver {
        /// The job.
        job: JobId,
        /// The results.
        results: Vec<TaskResult>,
    },
    /// An attached job has refused an extension.
    NotExtended {
        /// The job.
        job: JobId,
        /// What is wrong with it.
        why: SpecError,
    },
    /// All of a closed job's tasks have ended, and it is forgotten.
    Detached {
        /// What it was.
        summary: Box<JobSummary>,
    },
    /// Show clients that watch the job how it stands.
    Show {
        /// The job.
        job: JobId,
    },
    /// Push the inputs that every executor must have which may run the job's tasks. If tasks wait
    /// for it, [`Event::Pushed`] follows.
    Broadcast {
        /// The job.
        job: JobId,
    },
    /// Push nothing more for the job. This follows a [`JobsAction::Broadcast`], once.
    EndBroadcast {
        /// The job.
        job: JobId,
    },
    /// All of the job's tasks have ended, and the journal has their results. Scheduler and
    /// executors may forget the job.
    Forget {
        /// The job.
        job: JobId,
    },
    /// Tell an executor to stop: it may leave.
    Stop {
        /// The executor.
        executor: ExecutorId,
    },
    /// Read how an earlier task ended. Answered at once by [`Event::EarlierResult`].
    ReadResult {
        /// The task that is to be queued.
        task: TaskId,
        /// The earlier task that did the same.
        earlier: TaskId,
    },
    /// Tell an executor whether a task may publish its outputs at the places that it named.
    Claimed {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// The first place that another task of the job has, and the index of that task.
        by_other: Option<(PlaceId, u32)>,
    },
    /// A task that ran again has written other objects in place of these, or none. Tasks that were
    /// assigned before read what was there then: outputs of two runs are never mixed.
    Replaced {
        /// The task.
        task: TaskId,
        /// Each output of the task, and the object that it was before.
        before: Vec<(u16, ObjectSpec)>,
    },
    /// Have an executor check whether these objects are on persistent storage. Answered by
    /// [`Event::Checked`].
    Check {
        /// The executor.
        executor: ExecutorId,
        /// The task whose outputs they would be.
        task: TaskId,
        /// The objects.
        objects: Vec<ObjectSpec>,
    },
    /// An executor is set aside, and gets no tasks for now.
    SetAside {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor that was set aside gets tasks again.
    TakenBack {
        /// The executor.
        executor: ExecutorId,
    },
}
