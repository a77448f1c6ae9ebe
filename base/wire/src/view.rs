//! Views of jobs, tasks, executors and objects for people. `--json` prints these types unchanged,
//! so a field that changes its meaning needs a new [`SCHEMA_VERSION`].

pub mod files;
pub mod graph;
pub mod io;
pub mod pool;

use std::net::SocketAddr;

pub use eyas_types::course::{JobOwner, JobState, Metrics, Sample, TaskCounts};
use eyas_types::matching::Labels;
use eyas_types::{Estimate, ExecutorId, JobId, Name, ObjectId, Reads, Resources, Sha256, TaskId};
use serde::{Deserialize, Serialize};

/// Version of the JSON made from these types.
pub const SCHEMA_VERSION: u32 = 1;

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Id of the job.
    pub job: JobId,
    /// Name of the job.
    pub name: String,
    /// The owner: who submitted it.
    pub owner: JobOwner,
    /// Running, or how the job ended.
    pub state: JobState,
    /// Numbers of tasks by state.
    pub tasks: TaskCounts,
    /// Tries in addition to each task's first.
    pub retried: u64,
    /// Tasks that did not run, because an earlier result was reused.
    pub reused: u64,
    /// Tasks that ran again because their kept outputs were lost and still needed.
    pub recomputed: u64,
    /// Most memory that one of its tasks used, bytes; 0 if unknown.
    pub peak_memory_bytes: u64,
    /// Sources of the inputs that were read so far.
    pub reads: Reads,
    /// When the job was accepted, milliseconds since 1970.
    pub submitted_unix_ms: u64,
    /// Microseconds from acceptance to the job's end, or to now.
    pub elapsed_us: u64,
    /// Number of executors now.
    pub executors: u64,
    /// Processors of all executors, thousandths.
    pub capacity_milli: u64,
    /// Some tasks wait for executors, or for larger executors, than there are; or none has run,
    /// and the disks of all executors lack room for them.
    pub is_stuck: bool,
    /// Captured output of its tasks was cut, because the journal keeps a bounded amount of output
    /// of all jobs.
    pub is_output_cut: bool,
    /// Warnings for a person: why the job is stuck, and lost output.
    pub warnings: Vec<String>,
}

/// Something that has happened in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// Events are numbered from 1 by the dispatcher that runs.
    pub number: u64,
    /// When it happened, milliseconds since 1970.
    pub unix_ms: u64,
    /// `job-submitted`, `job-ended`, `job-cancelled`, `job-retried`, `job-forgotten`,
    /// `executor-joined`, `executor-left`, `executor-lost`, `executor-set-aside`,
    /// `executor-returned` or `cluster-stopping`.
    pub kind: String,
    /// The job that it is about.
    pub job: Option<JobId>,
    /// Name of the executor that it is about.
    pub executor: Option<String>,
    /// The event in words.
    pub text: String,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    /// Id of the task: `JOB.INDEX`.
    pub task: TaskId,
    /// The `id` of the task in its job file.
    pub id: Option<String>,
    /// `blocked`, `waiting`, `assigned`, `suspended`, `succeeded`, `failed` or `cancelled`.
    pub state: String,
    /// Higher goes first.
    pub priority: i32,
    /// The task's item, its columns joined.
    pub item: Name,
    /// The words of its command, placeholders filled in, inputs by their sources; none for a task
    /// without a command.
    pub command: Vec<Name>,
    /// Number of assignments.
    pub tries: u32,
    /// The task's executor, or its last one.
    pub executor: Option<String>,
    /// The end of the last try, in words.
    pub status: Option<String>,
    /// Microseconds in the queue before its last try.
    pub queued_us: u64,
    /// Microseconds at the executor before it started.
    pub waited_us: u64,
    /// Microseconds from start to end, without suspension.
    pub ran_us: u64,
    /// Microseconds of suspension for tasks of higher priority.
    pub suspended_us: u64,
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// Most memory that its processes used together, bytes, without files that the kernel caches;
    /// 0 if unknown.
    pub peak_memory_bytes: u64,
    /// The task whose result was reused, if this task did not run.
    pub reused: Option<TaskId>,
    /// The estimate when the task was placed; only under cost placement.
    pub estimate: Option<Estimate>,
    /// Sources of the inputs.
    pub reads: Reads,
}

/// A key of the cluster, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// Id of the key, for `eyas access revoke`.
    pub key: String,
    /// `admin`, `submit`, `read` or `executor`.
    pub role: String,
    /// Whether the key is accepted.
    pub state: KeyState,
    /// When the key was made, milliseconds since 1970.
    pub made_unix_ms: u64,
    /// End of the grace period of a replaced key, milliseconds since 1970.
    pub until_unix_ms: Option<u64>,
}

/// Whether a key is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Accepted; new access files contain it.
    Active,
    /// Accepted for a while; there is a newer key.
    Retiring,
    /// No longer accepted; there is a newer key.
    Replaced,
    /// No longer accepted; it was revoked.
    Revoked,
}

impl KeyState {
    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            KeyState::Active => "active",
            KeyState::Retiring => "retiring",
            KeyState::Replaced => "replaced",
            KeyState::Revoked => "revoked",
        }
    }
}

/// An executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutorView {
    /// Id of the executor, which is new each time it joins.
    #[serde(with = "as_shown")]
    pub executor: ExecutorId,
    /// Name of the executor, which stays the same.
    pub name: String,
    /// Name of the executor's host.
    pub host: String,
    /// Process number on the host.
    pub process: u32,
    /// Labels of the node.
    pub labels: Labels,
    /// Which tasks the executor accepts: a match expression, or `None` for all tasks.
    pub accept: Option<String>,
    /// Resources for tasks.
    pub capacity: Resources,
    /// Processors that its tasks request, thousandths; more than the node has if tasks wait there.
    pub assigned_milli: u64,
    /// Tasks that are assigned to it.
    pub assigned: u64,
    /// `computing` if a task runs, else `staging` if inputs are fetched, else `idle`; `set aside`
    /// while the executor gets no tasks because tasks failed on it that others completed.
    pub state: String,
    /// Tasks that run, by the last report.
    pub computing: u64,
    /// Data-intensive tasks whose inputs are fetched, by the last report.
    pub staging: u64,
    /// Suspended tasks.
    pub suspended: u64,
    /// Tasks that have ended on it.
    pub ended: u64,
    /// Objects in the store.
    pub objects: u64,
    /// Bytes of the objects in the store.
    pub held_bytes: u64,
    /// Capacity of the store.
    pub store_bytes: u64,
    /// Disk available for inputs and sandboxes: free space and what the store could evict. `None`
    /// before the first report.
    pub free_disk_bytes: Option<u64>,
    /// Sources of its tasks' inputs.
    pub reads: Reads,
    /// Microseconds since the last message from it.
    pub silent_us: u64,
    /// Address of its node of the file system, if it has one.
    pub files: Option<SocketAddr>,
    /// Address of the proxy that it is behind, if it is behind one.
    pub proxy: Option<SocketAddr>,
}

/// An object in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectView {
    /// Id of the object.
    pub object: ObjectId,
    /// The object's source, if a known job names it.
    pub source: Option<Name>,
    /// Size of the object.
    pub size_bytes: u64,
    /// Names of executors with a replica.
    pub holders: Vec<String>,
    /// Names of executors that are receiving it, and relay the part that they have.
    pub receivers: Vec<String>,
    /// Number of waiting tasks that read it.
    pub wanted: u64,
}

/// A name of a file, `lfn://NAME`, and the places of its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedFileView {
    /// The name.
    pub name: Name,
    /// The places, in the order of their registration.
    pub places: Vec<PlaceView>,
    /// Size of the content, if it is known.
    pub size_bytes: Option<u64>,
    /// SHA-256 of the content, if it is known.
    pub sha256: Option<Sha256>,
    /// When the name was registered first, microseconds since 1970.
    pub registered_us: u64,
}

impl NamedFileView {
    /// Size of the texts in it.
    pub fn size_of_texts(&self) -> usize {
        let of_failure = |failure: &PassedOverView| failure.executor.len() + failure.why.len();
        let of_place =
            |place: &PlaceView| place.url.len() + place.passed_over.as_ref().map_or(0, of_failure);
        self.name.len() + self.places.iter().map(of_place).sum::<usize>()
    }
}

/// A place of a named file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceView {
    /// The URL.
    pub url: Name,
    /// The last time that an executor passed the place over, if that is remembered.
    pub passed_over: Option<PassedOverView>,
}

/// A place that an executor has passed over, because the content could not be read there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassedOverView {
    /// Name of the executor.
    pub executor: String,
    /// The reason, for a person.
    pub why: String,
    /// When that was, milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// A push: objects that are sent to executors ahead of demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PushView {
    /// Number of objects for each executor.
    pub objects: u64,
    /// Size of these objects together.
    pub bytes: u64,
    /// Whether each executor has all objects, or cannot get them.
    pub is_over: bool,
    /// The recipients.
    pub executors: Vec<RecipientView>,
    /// The first failures.
    pub failures: Vec<PushFailure>,
}

/// An executor that receives a push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecipientView {
    /// Name of the executor.
    pub executor: String,
    /// `receiving`, `complete` or `incomplete`.
    pub state: String,
    /// Objects that the executor has stored.
    pub objects: u64,
    /// Size of these objects together.
    pub bytes: u64,
}

/// An object that could not be pushed to an executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushFailure {
    /// The executor's name.
    pub executor: String,
    /// The object's source; `None` stands for all objects of the push.
    pub source: Option<Name>,
    /// The reason, in words.
    pub reason: String,
}

/// Why a task waits, or how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The task.
    pub task: TaskView,
    /// Sentences, the most important first.
    pub because: Vec<String>,
    /// The task's inputs with their holders.
    pub inputs: Vec<ObjectView>,
}

/// The data of a job's report: the summary views of data-diffusion §5.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// The job.
    pub job: JobView,
    /// The placement policy.
    pub policy: String,
    /// Samples over time, in order and without gaps.
    pub samples: Vec<Sample>,
    /// Sums and averages.
    pub metrics: Metrics,
    /// The first tasks that failed.
    pub failures: Vec<FailureView>,
    /// The pools of the cluster, with all nodes that they ever had.
    #[serde(default)]
    pub pools: Vec<pool::PoolView>,
}

/// A task that failed, with what a person needs to find the cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureView {
    /// The task's id.
    pub task: TaskId,
    /// The `id` of the task in its job file.
    pub id: Option<String>,
    /// The item that the task was made from, its columns joined by spaces.
    pub item: Name,
    /// The words of its command, as in [`TaskView`].
    pub command: Vec<Name>,
    /// The end of the last try, in words.
    pub status: String,
    /// The last lines of its captured standard error.
    pub stderr: String,
}

/// Executors' ids: text such as `e0` in formats for people, a number on the wire.
mod as_shown {
    use eyas_types::ExecutorId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(id: &ExecutorId, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(id)
        } else {
            id.serialize(serializer)
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ExecutorId, D::Error> {
        if !deserializer.is_human_readable() {
            return ExecutorId::deserialize(deserializer);
        }
        let text = String::deserialize(deserializer)?;
        let number = text.strip_prefix('e').and_then(|number| number.parse().ok());
        number
            .map(ExecutorId)
            .ok_or_else(|| de::Error::custom(format!("`{text}` is not an executor's id")))
    }
}
