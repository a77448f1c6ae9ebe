//! What is shown of jobs, tasks, executors and objects. The CLI's `--json` prints these as they are, so that a field
//! that changes its meaning needs a new [`SCHEMA_VERSION`].

pub mod files;
pub mod io;

use std::net::SocketAddr;

pub use eyas_types::course::{JobState, Metrics, Sample, TaskCounts};
use eyas_types::matching::Labels;
use eyas_types::{Estimate, ExecutorId, JobId, Name, ObjectId, Reads, Resources, TaskId};
use serde::{Deserialize, Serialize};

/// Version of the JSON made from these types.
pub const SCHEMA_VERSION: u32 = 1;

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its id.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: JobState,
    /// Its tasks.
    pub tasks: TaskCounts,
    /// Tries beyond each task's first.
    pub retried: u64,
    /// Tasks that did not run, because their result was there already.
    pub reused: u64,
    /// Tasks that ran again because what they kept in the cluster was lost and still needed.
    pub recomputed: u64,
    /// Where inputs came from so far.
    pub reads: Reads,
    /// Milliseconds since 1970 when it was accepted.
    pub submitted_unix_ms: u64,
    /// Microseconds from then to its end, or to now.
    pub elapsed_us: u64,
    /// Executors there are now, and their processors, thousandths.
    pub executors: u64,
    /// Processors of all executors, thousandths.
    pub capacity_milli: u64,
    /// Some of its tasks wait for executors that are not there: any at all, or larger ones.
    pub is_stuck: bool,
    /// What a person should know: what it is stuck on, and whether output was lost.
    pub warnings: Vec<String>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    /// Its id.
    pub task: TaskId,
    /// The `id` of the task in its job file.
    pub id: Option<String>,
    /// `blocked`, `waiting`, `assigned`, `suspended`, `succeeded`, `failed` or `cancelled`.
    pub state: String,
    /// Higher goes first.
    pub priority: i32,
    /// What it was made from, the columns joined.
    pub item: Name,
    /// The words of its command, placeholders filled in, inputs by their sources; none for a task without a command.
    pub command: Vec<Name>,
    /// How often it was assigned.
    pub tries: u32,
    /// Where it is or was last.
    pub executor: Option<String>,
    /// How its last try ended, in words.
    pub status: Option<String>,
    /// Microseconds in the queue before its last try.
    pub queued_us: u64,
    /// Microseconds at the executor before it started.
    pub waited_us: u64,
    /// Microseconds it ran, without those it was suspended for.
    pub ran_us: u64,
    /// Microseconds it was suspended, for tasks of higher priority.
    pub suspended_us: u64,
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// The task whose result this is, if it did not run itself.
    pub reused: Option<TaskId>,
    /// Where tasks go where they would be done the soonest: what was estimated when it was placed.
    pub estimate: Option<Estimate>,
    /// Where its inputs came from.
    pub reads: Reads,
}

/// A key of the cluster, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// Its id.
    pub key: String,
    /// What its holder may do: `admin`, `submit`, `read` or `executor`.
    pub role: String,
    /// Whether it is accepted.
    pub state: KeyState,
    /// When it was made, milliseconds since 1970.
    pub made_unix_ms: u64,
    /// When it will be accepted no longer, if it was replaced.
    pub until_unix_ms: Option<u64>,
}

/// Whether a key is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// It is, and new access files have it.
    Active,
    /// It is for a while: there is a newer one.
    Retiring,
    /// It is not: there is a newer one.
    Replaced,
    /// It is not: it was taken back.
    Revoked,
}

impl KeyState {
    /// As it is shown.
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
    /// Its id.
    #[serde(with = "as_shown")]
    pub executor: ExecutorId,
    /// Its name.
    pub name: String,
    /// Its host's name.
    pub host: String,
    /// Its process on its host.
    pub process: u32,
    /// Its labels.
    pub labels: Labels,
    /// Which tasks it accepts, as a match expression; any if there is none.
    pub accept: Option<String>,
    /// What it has for tasks.
    pub capacity: Resources,
    /// Processors that its tasks ask for, thousandths; more than it has where tasks are lined up.
    pub assigned_milli: u64,
    /// Tasks it was given.
    pub assigned: u64,
    /// What it does: `computing` if a task runs, else `staging` if one's data are fetched, else `idle`; `set aside`
    /// while it is given no tasks, because others completed what failed on it.
    pub state: String,
    /// Tasks that run on it, as it said last.
    pub computing: u64,
    /// Data-intensive tasks whose inputs it fetches, as it said last.
    pub staging: u64,
    /// Tasks that it has suspended.
    pub suspended: u64,
    /// Tasks it has ended.
    pub ended: u64,
    /// Objects in its store.
    pub objects: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Bytes its store may hold.
    pub store_bytes: u64,
    /// Bytes that its disk has for inputs and sandboxes: what is free, and what its store could give up. `None` until
    /// it has said so.
    pub free_disk_bytes: Option<u64>,
    /// Where its tasks' inputs came from.
    pub reads: Reads,
    /// Microseconds since it was last heard of.
    pub silent_us: u64,
    /// Where its node of the file system takes sessions, if it is one.
    pub files: Option<SocketAddr>,
}

/// An object in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObjectView {
    /// Its id.
    pub object: ObjectId,
    /// Its source, if a job that names it is known.
    pub source: Option<Name>,
    /// Its size.
    pub size_bytes: u64,
    /// Names of executors with a replica.
    pub holders: Vec<String>,
    /// Executors that are receiving it, and pass on what they have so far.
    pub receivers: Vec<String>,
    /// Waiting tasks that want it.
    pub wanted: u64,
}

/// Objects that are pushed to executors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PushView {
    /// How many objects each executor is to have.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether everybody has them, or will not.
    pub is_over: bool,
    /// Those that are to have them.
    pub executors: Vec<RecipientView>,
    /// The first objects that somebody could not have, and why.
    pub failures: Vec<PushFailure>,
}

/// An executor that objects are pushed to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecipientView {
    /// Its name.
    pub executor: String,
    /// `receiving`, `complete` or `incomplete`.
    pub state: String,
    /// Objects that it has stored.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// An object that could not be pushed to an executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushFailure {
    /// The executor's name.
    pub executor: String,
    /// Where the object comes from; all objects of the push where this is `None`.
    pub source: Option<Name>,
    /// Why, in words.
    pub reason: String,
}

/// Why a task waits, or what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The task.
    pub task: TaskView,
    /// The answer, a sentence a line, the most important first.
    pub because: Vec<String>,
    /// Its inputs and who holds them.
    pub inputs: Vec<ObjectView>,
}

/// What a job's report is made from: the paper's summary views (data-diffusion §5.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// The job.
    pub job: JobView,
    /// Name of the placement policy it ran under.
    pub policy: String,
    /// Its course, in order and without gaps.
    pub samples: Vec<Sample>,
    /// Its sums.
    pub metrics: Metrics,
    /// The first tasks that failed.
    pub failures: Vec<FailureView>,
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
    /// How its last try ended, in words.
    pub status: String,
    /// The last lines of its captured standard error.
    pub stderr: String,
}

/// Executors' ids as they are shown, `e0`, for people and their programs; a number on the wire.
mod as_shown {
    use eyas_types::ExecutorId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(id: &ExecutorId, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(id) } else { id.serialize(serializer) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ExecutorId, D::Error> {
        if !deserializer.is_human_readable() {
            return ExecutorId::deserialize(deserializer);
        }
        let text = String::deserialize(deserializer)?;
        let number = text.strip_prefix('e').and_then(|number| number.parse().ok());
        number.map(ExecutorId).ok_or_else(|| de::Error::custom(format!("`{text}` is not an executor's id")))
    }
}
