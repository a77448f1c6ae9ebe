//! Between client and dispatcher. A client asks one thing at a time on a connection; [`FromClient::Watch`] is
//! answered by a stream that ends with the job.

use std::net::SocketAddr;

pub use eyas_types::TaskResult;
use eyas_types::access::{KeyId, KeyRole};
use eyas_types::{Distribution, JobId, Name, Numbers, ObjectId, ObjectSpec, TaskId, TaskItem, TaskTemplate};
use serde::{Deserialize, Serialize};

use crate::trust::SecretText;
use crate::view::{
    ExecutorView, Explanation, FailureView, JobReport, JobView, KeyView, ObjectView, PushView, TaskView,
};

/// Items or objects in one message of a submission.
pub const SUBMISSION_PART: usize = 4096;

/// Requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromClient {
    /// Begins a submission; nothing of it exists before its [`Commit`](FromClient::Commit).
    Submit {
        /// For people.
        name: String,
        /// What tasks are made from.
        templates: Vec<TaskTemplate>,
        /// Whether results are reused that are there already.
        reuse: bool,
        /// Objects that all executors are to have which may run its tasks, by their places in the list.
        broadcast: Vec<u32>,
        /// Which way those go; along a spanning tree, it is all objects if none is named, and before any task.
        distribution: Distribution,
        /// How many tasks follow: too many are refused before any of them is sent.
        tasks: u64,
    },
    /// More of the submission's objects, which inputs name by their place in the list.
    Objects(Vec<ObjectSpec>),
    /// More of the submission's tasks.
    Items(Vec<TaskItem>),
    /// More of the submission's tasks: one for each number, without inputs of its own.
    Numbers {
        /// What they are made from.
        template: u16,
        /// Their numbers.
        numbers: Numbers,
    },
    /// Ends the submission. Answered by `Accepted`, once it is on disk, `Refused`, or `Withdrawn`.
    Commit,
    /// Forgets the submission, if it is not accepted yet. It is the answer to `Commit` that says whether it was.
    Withdraw,
    /// Results and progress, from the `from`th result on, until the job has ended.
    Watch {
        /// Which job.
        job: JobId,
        /// How many results to leave out.
        from: u64,
        /// Whether results are wanted, or progress alone.
        results: bool,
    },
    /// Answered by `Jobs`: one job, or all, the newest last.
    Jobs {
        /// Which, if not all.
        job: Option<JobId>,
    },
    /// Answered by `Tasks`.
    Tasks {
        /// Of which job.
        job: JobId,
        /// From this index on.
        from: u32,
        /// No more than so many.
        limit: u32,
        /// Only those that failed.
        failed: bool,
    },
    /// Answered by `Failures`.
    Failures {
        /// The job.
        job: JobId,
        /// Indices of failed tasks; if there are none, the first tasks of the job that failed.
        tasks: Vec<u32>,
    },
    /// Answered by `Log`.
    Log {
        /// Of which task.
        task: TaskId,
    },
    /// Answered by `Explained`.
    Explain {
        /// Which task.
        task: TaskId,
    },
    /// Answered by `Executors`.
    Executors,
    /// Answered by `Objects`: by id, or by source.
    Catalog {
        /// An id if one was given.
        object: Option<ObjectId>,
        /// Else a source.
        source: Name,
    },
    /// Answered by `Report`.
    Report {
        /// Of which job.
        job: JobId,
    },
    /// Cancel what has not ended of a job, or one task. Answered by `Done`, once it is on disk.
    Cancel {
        /// Which job.
        job: JobId,
        /// Only this task of it.
        task: Option<u32>,
    },
    /// Run the failed and cancelled tasks of a job again. Answered by `Done`, once it is on disk.
    Retry {
        /// Which job.
        job: JobId,
    },
    /// Let go of what an ended job keeps in the cluster. Answered by `Done`, once it is on disk.
    Release {
        /// Which job.
        job: JobId,
    },
    /// Have executors fetch objects ahead of demand. Answered by `Pushing` as it goes on, and by `Pushed` at last; or
    /// once, if nobody waits.
    Push(PushRequest),
    /// Answered by `Kept`: what a job's tasks keep in the cluster for its user, a part at a time. What nobody has is
    /// made again.
    Kept {
        /// Which job.
        job: JobId,
        /// From this task on.
        from: u32,
        /// Up to this one, without it.
        to: u32,
        /// What could not be had: those who are said to have it look whether they do.
        doubted: Vec<ObjectId>,
    },
    /// Answered by `Trace`: when tasks that succeeded came, started and ended, and what they read, a part at a time.
    Trace {
        /// Of which job.
        job: JobId,
        /// From this task on.
        from: u32,
    },
    /// Answered by `FilesNodes`: where nodes of the file system are.
    FilesNodes,
    /// Let the next node that joins say which the cluster's file system is, or begin another. Answered by `Done`;
    /// refused while any node is there.
    ForgetFiles,
    /// End the cluster: executors stop, then the dispatcher. Answered by `Stopping` first.
    Stop,
    /// Let one executor leave. Answered by `Done`.
    StopExecutor {
        /// Its name or id, as `executor list` shows it.
        executor: String,
    },
    /// The cluster's keys, and changes of them. Answered by `Keys`, or by `Access`.
    Keys(KeysRequest),
}

impl FromClient {
    /// Whether it is a part of a submission, which is answered with its end.
    pub fn is_of_submission(&self) -> bool {
        use FromClient::{Items, Numbers, Objects, Submit, Withdraw};
        matches!(self, Submit { .. } | Objects(_) | Items(_) | Numbers { .. } | Withdraw)
    }
}

/// What is asked of the cluster's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeysRequest {
    /// Which there are.
    List,
    /// An access file with the current key of a role. Answered by `Access`.
    Issue {
        /// Of which.
        role: KeyRole,
    },
    /// New keys in place of the current ones.
    Rotate {
        /// Of which role; of all if it is not said.
        role: Option<KeyRole>,
        /// The old keys are accepted for so many seconds.
        grace_s: u64,
    },
    /// The end of a key, at once.
    Revoke {
        /// Which.
        key: KeyId,
    },
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// The submission is on disk and will run.
    Accepted {
        /// The job's id.
        job: JobId,
    },
    /// The submission was forgotten, as its client wished.
    Withdrawn,
    /// The file system's nodes.
    FilesNodes {
        /// Where some of them take sessions.
        nodes: Vec<SocketAddr>,
        /// Whether the cluster has a file system, though none of its nodes may be here.
        has_files: bool,
        /// Whether the dispatcher has started so lately that executors are still coming back to it.
        are_returning: bool,
    },
    /// The request cannot be done; for a person.
    Refused(String),
    /// It is done; how many tasks or executors it met.
    Done(u64),
    /// The cluster ends.
    Stopping {
        /// Executors that are told to stop.
        executors: u64,
        /// The names of its processes, by which those on the same machine can be told to have ended.
        processes: Vec<String>,
    },
    /// Results, in the order in which they came.
    Results(Vec<TaskResult>),
    /// Failed tasks. In a watch with results, the first failures are sent before the results that they belong to.
    Failures(Vec<FailureView>),
    /// How the watched job stands.
    Progress(Box<JobView>),
    /// How the watched job ended; the last message of a watch.
    Over(Box<JobView>),
    /// Jobs.
    Jobs(Vec<JobView>),
    /// How far a push is.
    Pushing(Box<PushView>),
    /// What has become of a push.
    Pushed(Box<PushView>),
    /// Tasks.
    Tasks(Vec<TaskView>),
    /// A task's last try, with all that was captured.
    Log(Option<Box<TaskResult>>),
    /// An explanation.
    Explained(Box<Explanation>),
    /// Executors.
    Executors(Vec<ExecutorView>),
    /// Objects.
    Objects(Vec<ObjectView>),
    /// A report's data.
    Report(Box<JobReport>),
    /// A part of what a job keeps in the cluster.
    Kept(KeptPart),
    /// A part of a job's trace.
    Trace(TracePart),
    /// The cluster's keys, without their secrets.
    Keys(Vec<KeyView>),
    /// An access file.
    Access(SecretText),
}

/// How some of a job's tasks went, of those that succeeded and ran themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracePart {
    /// In the order of the job.
    pub tasks: Vec<RecordedTask>,
    /// The next task to ask for, if there are more.
    pub next: Option<u32>,
}

/// How a task went. Its times follow each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedTask {
    /// Microseconds from the job's submission until it could run.
    pub ready_us: u64,
    /// In the queue.
    pub queued_us: u64,
    /// At the executor before it started.
    pub waited_us: u64,
    /// From its start to its end, less what it was suspended for.
    pub ran_us: u64,
    /// How long it was suspended.
    pub suspended_us: u64,
    /// What is neither queue nor executor.
    pub delivery_us: u64,
    /// Its processor time.
    pub cpu_us: u64,
    /// What it read, each object once, with sizes in bytes.
    pub inputs: Vec<(ObjectId, u64)>,
}

/// What some of a job's tasks keep in the cluster for its user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptPart {
    /// In the order of the tasks.
    pub outputs: Vec<KeptOutput>,
    /// Tasks that are to keep something and have not ended, or run again.
    pub unfinished: u64,
    /// Tasks that were to keep something and did not succeed.
    pub unsuccessful: u64,
    /// The next task to ask for, if there are more.
    pub next: Option<u32>,
}

/// An output that is in executors' stores alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptOutput {
    /// Which task wrote it.
    pub task: TaskId,
    /// Its name and version.
    pub object: ObjectSpec,
    /// Where executors give it; nowhere while it is to be made again.
    pub holders: Vec<SocketAddr>,
    /// It was lost, and is not made again.
    pub is_lost: bool,
}

/// Objects for executors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushRequest {
    /// Objects of persistent storage.
    pub objects: Vec<ObjectSpec>,
    /// Sources of objects that are kept in the cluster.
    pub kept: Vec<Name>,
    /// Who gets them: names or ids of executors, labels as `NAME=VALUE`; all if there is none.
    pub to: Vec<String>,
    /// Which way they go.
    pub distribution: Distribution,
    /// Whether the push ends when who asked for it goes away.
    pub wait: bool,
}
