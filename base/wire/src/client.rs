//! Messages between client and dispatcher. A client sends one request at a time on a connection,
//! unless the connection has an attached job. The answer to [`FromClient::Watch`] is a stream of
//! messages that ends with the job.

use std::net::SocketAddr;

pub use eyas_types::TaskResult;
use eyas_types::access::{KeyId, KeyRole};
use eyas_types::course::TaskCounts;
use eyas_types::{
    Distribution, JobId, Name, NameChange, Numbers, ObjectId, ObjectSpec, TaskId, TaskItem,
    TaskTemplate,
};
use serde::{Deserialize, Serialize};

use crate::executor::TransferAddress;
use crate::pool::PoolsRequest;
use crate::printed::{Printed, PrintedPosition};
use crate::trust::SecretText;
use crate::view::graph::{TemplateReads, TemplateView};
use crate::view::pool::PoolView;
use crate::view::{
    EventView, ExecutorView, Explanation, FailureView, JobReport, JobView, KeyView, NamedFileView,
    ObjectView, PushView, TaskView,
};

/// Items or objects in one message of a submission.
pub const SUBMISSION_PART: usize = 4096;

/// How a [refusal](ToClient::Refused) begins if the cluster has no job with the id of the request.
/// Clients add to it which cluster was asked.
pub const NO_SUCH_JOB: &str = "there is no job";

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromClient {
    /// Begins a submission. The job does not exist before [`Commit`](FromClient::Commit).
    Submit {
        /// The job's name for people.
        name: String,
        /// The name of the user.
        user: String,
        /// The templates of the job's tasks.
        templates: Vec<TaskTemplate>,
        /// Whether earlier results are reused.
        reuse: bool,
        /// Objects to broadcast to all executors that may run the job's tasks, by their indexes in
        /// the list of objects.
        broadcast: Vec<u32>,
        /// How the broadcast is distributed. With a spanning tree and no named object, all objects
        /// are broadcast before the first task runs.
        distribution: Distribution,
        /// Number of tasks that follow. Too many are refused before they are sent.
        tasks: u64,
    },
    /// Further objects of the submission. Inputs name them by their index in the list.
    Objects(Vec<ObjectSpec>),
    /// Further tasks of the submission.
    Items(Vec<TaskItem>),
    /// Further tasks of the submission: one for each number, without inputs of their own.
    Numbers {
        /// Index of their template.
        template: u16,
        /// The numbers.
        numbers: Numbers,
    },
    /// Ends the submission. Answered by `Accepted` once the job is on disk, by `Refused`, or by
    /// `Withdrawn`.
    Commit,
    /// Withdraws the submission unless it is already accepted; the answer to `Commit` tells which.
    Withdraw,
    /// Sends results and progress until the job has ended.
    Watch {
        /// The job to watch.
        job: JobId,
        /// Number of results to skip.
        from: u64,
        /// Whether to send results beside progress.
        results: bool,
    },
    /// Answered by `Jobs`: one job, or all jobs, newest last.
    Jobs {
        /// One job; all jobs if `None`.
        job: Option<JobId>,
    },
    /// Answered by `Tasks`.
    Tasks {
        /// The job.
        job: JobId,
        /// First task.
        from: u32,
        /// Largest number of tasks in the answer.
        limit: u32,
        /// Only failed tasks.
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
        /// The task.
        task: TaskId,
    },
    /// Answered by `Explained`.
    Explain {
        /// The task.
        task: TaskId,
    },
    /// Answered by `Executors`.
    Executors,
    /// Addresses to which a proxy may connect. Answered by `Addresses`.
    Addresses,
    /// Answered by `Objects`. The object is named by id or by source.
    Catalog {
        /// The id, if it is given.
        object: Option<ObjectId>,
        /// The source otherwise.
        source: Name,
    },
    /// Answered by `Report`.
    Report {
        /// The job of the report.
        job: JobId,
    },
    /// Cancel all tasks of a job that have not ended, or one task. Answered by `Done` once that is
    /// on disk.
    Cancel {
        /// The job to cancel.
        job: JobId,
        /// Only this task of the job.
        task: Option<u32>,
    },
    /// Run the failed and cancelled tasks of a job again. Answered by `Done` once that is on disk.
    Retry {
        /// The job to retry.
        job: JobId,
        /// Present versions of objects of the job, by their places, which the tasks read.
        current: Vec<(u32, ObjectSpec)>,
    },
    /// Answered by `Inputs`: the objects that failed and cancelled tasks of an ended job read, a
    /// part at a time.
    Inputs {
        /// The job.
        job: JobId,
        /// First task.
        from: u32,
    },
    /// Release the outputs that an ended job keeps in the cluster. Answered by `Done` once that is
    /// on disk.
    Release {
        /// The job that has ended.
        job: JobId,
    },
    /// Forget an ended job, with its results and what executors hold for it. Answered by `Done`
    /// with the number of its tasks, once it is on disk.
    Forget {
        /// The job.
        job: JobId,
    },
    /// Have executors fetch objects ahead of demand. Answered by `Pushing` during the push and by
    /// `Pushed` at its end, or only once if the client does not wait.
    Push(PushRequest),
    /// Answered by `Kept`: the outputs that a job keeps in the cluster, a part at a time. Lost
    /// outputs are computed again.
    Kept {
        /// The job that keeps the outputs.
        job: JobId,
        /// First task.
        from: u32,
        /// End of the range, exclusive.
        to: u32,
        /// Objects that could not be fetched: their holders are told to verify them.
        doubted: Vec<ObjectId>,
    },
    /// Answered by `Trace`: the times and reads of tasks that succeeded, a part at a time.
    Trace {
        /// The job to record.
        job: JobId,
        /// First task.
        from: u32,
    },
    /// Answered by `FilesNodes`: addresses of nodes of the file system.
    FilesNodes,
    /// Forget the cluster's file system: the next node that joins brings its own, or founds a new
    /// one. Answered by `Done`; refused while a node is connected.
    ForgetFiles,
    /// Stop the cluster: the executors, then the dispatcher. Answered by `Stopping` before that.
    Stop,
    /// Stop one executor. Answered by `Done`.
    StopExecutor {
        /// Name or id as in `executor list`.
        executor: String,
    },
    /// List or change the cluster's keys. Answered by `Keys` or `Access`.
    Keys(KeysRequest),
    /// Like `Watch` with results, from a client on the dispatcher's host. For results whose
    /// captured output is in a file, the answer is `ResultsHere`, and the client reads the file.
    WatchHere {
        /// The job to watch.
        job: JobId,
        /// Number of results to skip.
        from: u64,
    },
    /// Chunks of objects of the submission, by the objects' indices: tasks that read such an object
    /// are placed near its chunks. Not answered.
    Chunks(Vec<(u32, Vec<(ObjectId, u64)>)>),
    /// List or change pools of nodes. Answered by `Pools`, `PoolText` or `Done`.
    Pools(PoolsRequest),
    /// Attaches a job without tasks to this connection. Answered by `Attached`. From then on the
    /// connection is the job's: the client sends `Templates`, `Objects`, `Items`, `Cancel`,
    /// `CancelWaiting`, `Unneeded` and `Close`, and the dispatcher sends `Results` as tasks end,
    /// and `Over` when the job was closed and all its tasks have ended. The job is in no journal:
    /// it is cancelled when the connection ends.
    Attach {
        /// The job's name for people.
        name: String,
        /// The name of the user.
        user: String,
    },
    /// Further templates of the attached job.
    Templates(Vec<TaskTemplate>),
    /// The client of the attached job needs no outputs of these tasks any more, nor will tasks that
    /// it adds.
    Unneeded {
        /// Indices of tasks that have ended.
        tasks: Vec<u32>,
    },
    /// Cancel the tasks of the attached job that no executor has.
    CancelWaiting,
    /// The attached job gets no more tasks.
    Close,
    /// Sends what happens in the cluster until the connection ends. Answered by `Events`: at once
    /// what has happened after the position, or all that is remembered, then what happens.
    Events {
        /// The position of the last part that the client has.
        after: Option<EventPosition>,
    },
    /// Cancel the tasks of a job that no executor has. Answered by `Done` once that is on disk.
    /// Minor version 1.
    CancelWaitingOf {
        /// The job.
        job: JobId,
    },
    /// Answered by `Graph`: the templates of a job, what their tasks read of each other, and the
    /// objects of the job, a part at a time. Minor version 2.
    Graph {
        /// The job.
        job: JobId,
        /// First index of a template, a task and an object.
        from: u32,
    },
    /// The job of the submission stops when its first tasks fail in the same way. Not answered.
    /// Minor version 3.
    HaltIfAllFail,
    /// Answered by `Printed`: what a task has printed so far, or why it has printed nothing. Minor
    /// version 3.
    Printed {
        /// The task.
        task: TaskId,
        /// What the client has.
        from: PrintedPosition,
    },
    /// Changes of the table of names of files. Answered by `Done` with the number of changes so
    /// far, or by `NamesRefused`. All changes up to the last part are made together, or none is.
    /// Minor version 9.
    ChangeNames {
        /// The next changes.
        changes: Vec<NameChange>,
        /// Whether they are the last.
        is_last: bool,
    },
    /// Answered by `Names`. Minor version 9.
    Names(NamesQuery),
}

/// Names of files to look up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamesQuery {
    /// These names, up to [`NAMES_PART`] of them. The answer leaves out names that are not
    /// registered, and ends at [`NAMES_PART_BYTES`]: what is after its last name is asked for
    /// again.
    These(Vec<Name>),
    /// Names that begin with a text, in their order, up to [`NAMES_PART`] of them and
    /// [`NAMES_PART_BYTES`]. There are no more once the answer is empty.
    After {
        /// How they begin.
        prefix: Name,
        /// The last name of the part before; empty for the first part.
        last: Name,
    },
}

/// Names in one message.
pub const NAMES_PART: usize = 4096;
/// A message with names is closed at this size of its names, places and their failures.
pub const NAMES_PART_BYTES: usize = 1 << 20;

impl FromClient {
    /// Whether the message is part of a submission, which is answered as a whole.
    pub fn is_of_submission(&self) -> bool {
        use FromClient::{Chunks, HaltIfAllFail, Items, Numbers, Objects, Submit, Withdraw};
        matches!(
            self,
            Submit { .. }
                | Objects(_)
                | Chunks(_)
                | Items(_)
                | Numbers { .. }
                | HaltIfAllFail
                | Withdraw
        )
    }
}

/// A request about the cluster's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeysRequest {
    /// List the keys.
    List,
    /// Send an access file with the current key of a role. Answered by `Access`.
    Issue {
        /// The role.
        role: KeyRole,
    },
    /// Replace the current keys.
    Rotate {
        /// The role; all roles if `None`.
        role: Option<KeyRole>,
        /// Seconds for which the old keys are still accepted.
        grace_s: u64,
    },
    /// Revoke a key at once.
    Revoke {
        /// The key.
        key: KeyId,
    },
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// The job is on disk and will run.
    Accepted {
        /// The job's id.
        job: JobId,
    },
    /// The submission was withdrawn.
    Withdrawn,
    /// Nodes of the file system.
    FilesNodes {
        /// Addresses of some nodes.
        nodes: Vec<SocketAddr>,
        /// Whether the cluster has a file system, even if none of its nodes is connected.
        has_files: bool,
        /// Whether the dispatcher has just started, so that executors are still reconnecting.
        are_returning: bool,
    },
    /// The request is refused, with the reason for a person.
    Refused(String),
    /// The request is done; the number of tasks or executors that it affected.
    Done(u64),
    /// The cluster stops.
    Stopping {
        /// Number of executors that are told to stop.
        executors: u64,
        /// Names of the cluster's processes, by which a client on the same machine can tell when
        /// they have ended.
        processes: Vec<String>,
    },
    /// Results in the order of their arrival.
    Results(Vec<TaskResult>),
    /// Failed tasks. In a watch with results, the first failures are sent before the results that
    /// they belong to.
    Failures(Vec<FailureView>),
    /// The state of the watched job.
    Progress(Box<JobView>),
    /// The final state of the watched job; the last message of a watch.
    Over(Box<JobView>),
    /// Jobs.
    Jobs(Vec<JobView>),
    /// The progress of a push.
    Pushing(Box<PushView>),
    /// The result of a push.
    Pushed(Box<PushView>),
    /// Tasks.
    Tasks(Vec<TaskView>),
    /// The last try of a task, with its captured output.
    Log(Option<Box<TaskResult>>),
    /// An explanation.
    Explained(Box<Explanation>),
    /// Executors.
    Executors(Vec<ExecutorView>),
    /// Addresses at which executors, nodes of the file system, and proxies of executors listen.
    Addresses(Vec<SocketAddr>),
    /// Objects.
    Objects(Vec<ObjectView>),
    /// A report's data.
    Report(Box<JobReport>),
    /// A part of the outputs that a job keeps in the cluster.
    Kept(KeptPart),
    /// A part of the objects that tasks read.
    Inputs(InputsPart),
    /// A part of a job's trace.
    Trace(TracePart),
    /// The cluster's keys, without their secrets.
    Keys(Vec<KeyView>),
    /// An access file.
    Access(SecretText),
    /// Results in the order of their arrival. The captured output of some is in a file.
    ResultsHere(Box<ResultsHere>),
    /// Pools of nodes.
    Pools(Vec<PoolView>),
    /// What a node or a batch system has printed, a part of it if it is long.
    PoolText(String),
    /// The job is attached to this connection.
    Attached {
        /// The job's id.
        job: JobId,
    },
    /// Events of the cluster.
    Events(EventsPart),
    /// A part of a job's graph. Minor version 2.
    Graph(GraphPart),
    /// What a task has printed so far. Minor version 3.
    Printed(Box<Printed>),
    /// Names of files with their places, in the order of the names. Minor version 9.
    Names(Vec<NamedFileView>),
    /// No name was changed, because one of the changes cannot be made. Minor version 9.
    NamesRefused {
        /// The number of that change among all, from 0.
        index: u64,
        /// The reason, for a person.
        why: String,
    },
}

/// Where a stream of events goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventPosition {
    /// The dispatcher that has numbered the events. One that starts again numbers from 1.
    pub epoch: u64,
    /// Number of the last event.
    pub number: u64,
}

/// Events of a cluster, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventsPart {
    /// Whether events between the position that the client has and these are no longer remembered.
    /// What it shows may be out of date: load it again.
    pub is_gap: bool,
    /// The events.
    pub events: Vec<EventView>,
    /// The position after these events.
    pub position: EventPosition,
    /// Whether these were the last ones when they were sent.
    pub is_current: bool,
}

/// Results with captured output in a file of the dispatcher's host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsHere {
    /// Results in the order of their arrival.
    pub results: Vec<TaskResult>,
    /// The file with the output of the job's tasks.
    pub file: OutputFile,
    /// Where the output of some of the results is in the file.
    pub outputs: Vec<OutputInFile>,
}

/// A file with captured output. A client that sees other files than the dispatcher, as in a
/// container, finds another file at the path, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Absolute path.
    pub path: Name,
    /// Number of the device that has the file.
    pub device: u64,
    /// Number of the file on the device.
    pub inode: u64,
}

/// The place of a task's captured output in a file: standard output, then standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputInFile {
    /// Index of the result in the message.
    pub result: u32,
    /// First byte.
    pub offset: u64,
    /// Length of standard output.
    pub stdout_bytes: u64,
    /// Length of standard error.
    pub stderr_bytes: u64,
    /// Beginning of the BLAKE3 hash of both.
    pub checksum: [u8; 16],
}

/// Times and reads of some of a job's tasks. Only of tasks that succeeded, and ran instead of being
/// reused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TracePart {
    /// Tasks in the order of the job.
    pub tasks: Vec<RecordedTask>,
    /// First task of the next request, if there are more.
    pub next: Option<u32>,
}

/// The times of a task, one after another, and its reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedTask {
    /// Microseconds from the job's submission until the task could run.
    pub ready_us: u64,
    /// Microseconds in the queue.
    pub queued_us: u64,
    /// Microseconds at the executor before its start.
    pub waited_us: u64,
    /// Microseconds from start to end, without suspension.
    pub ran_us: u64,
    /// Microseconds of suspension.
    pub suspended_us: u64,
    /// Microseconds that are neither queue nor executor.
    pub delivery_us: u64,
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// Objects that the task read, each once, with sizes in bytes.
    pub inputs: Vec<(ObjectId, u64)>,
    /// Outputs of the task.
    pub outputs: Vec<RecordedOutput>,
}

/// An object that a task wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedOutput {
    /// The object.
    pub object: ObjectId,
    /// Size of the object.
    pub size_bytes: u64,
    /// How many nodes keep a replica; none if it is in persistent storage.
    pub kept: u8,
    /// Nodes keep it only until all tasks that read it have succeeded.
    pub until_read: bool,
}

/// A part of a job's graph: the templates, tasks and objects of a range of indices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphPart {
    /// Templates, without numbers of tasks.
    pub templates: Vec<TemplateView>,
    /// Numbers of tasks, by template and state.
    pub tasks: Vec<(u16, TaskCounts)>,
    /// What these tasks read.
    pub reads: Vec<TemplateReads>,
    /// Ids and sizes of objects with which the job was submitted.
    pub objects: Vec<(ObjectId, u64)>,
    /// First index of the next part, if there are more.
    pub next: Option<u32>,
}

/// Outputs that some of a job's tasks keep in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptPart {
    /// Outputs in the order of the tasks.
    pub outputs: Vec<KeptOutput>,
    /// Tasks with kept outputs that have not ended, or run again.
    pub unfinished: u64,
    /// Tasks with kept outputs that did not succeed.
    pub unsuccessful: u64,
    /// First task of the next request, if there are more.
    pub next: Option<u32>,
}

/// Objects that tasks of a job read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputsPart {
    /// The objects, by their places in the job. Parts of one job may have the same objects.
    pub objects: Vec<(u32, ObjectSpec)>,
    /// First task of the next request, if there are more.
    pub next: Option<u32>,
}

/// An output that only executors' stores hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptOutput {
    /// The task that wrote the output.
    pub task: TaskId,
    /// The output's source and version.
    pub object: ObjectSpec,
    /// Executors that hold it; empty while it is computed again.
    pub holders: Vec<TransferAddress>,
    /// The output is lost and will not be computed again.
    pub is_lost: bool,
}

/// A request to send objects to executors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushRequest {
    /// Objects of persistent storage.
    pub objects: Vec<ObjectSpec>,
    /// Sources of objects that are kept in the cluster.
    pub kept: Vec<Name>,
    /// Recipients: names or ids of executors, or labels as `NAME=VALUE`; empty for all executors.
    pub to: Vec<String>,
    /// How the objects are distributed.
    pub distribution: Distribution,
    /// Whether the push ends when its client disconnects.
    pub wait: bool,
}
