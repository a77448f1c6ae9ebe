//! State of a job, and its course over time. The decider of jobs keeps them, and clients show them.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::access::KeyId;
use crate::outcome::Reads;

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// At least one task has not ended.
    Running,
    /// All tasks succeeded.
    Succeeded,
    /// At least one task failed.
    Failed,
    /// The job was cancelled, and no task failed.
    Cancelled,
}

/// The owner of a job: who submitted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOwner {
    /// Name of the user, as the user's process gave it.
    pub user: String,
    /// Number of the key with which that process was connected.
    pub key: Option<KeyId>,
}

/// Longest name of a user, bytes.
pub const MAX_USER_BYTES: usize = 256;

/// Numbers of a job's tasks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// Tasks that wait for an output of another task.
    pub blocked: u64,
    /// Tasks in the queue.
    pub waiting: u64,
    /// Tasks at executors.
    pub assigned: u64,
    /// Tasks that succeeded.
    pub succeeded: u64,
    /// Tasks that failed and are not retried.
    pub failed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
}

impl TaskCounts {
    /// Number of all tasks of the job.
    pub fn total(&self) -> u64 {
        self.blocked + self.waiting + self.assigned + self.ended()
    }

    /// Number of tasks that have ended and will not run again.
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }
}

/// One interval of a job's course. Events are counted over the interval, and states are those at
/// its end. All fields are about this job only, except executors and processors, which are those of
/// the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// End of the interval, microseconds from the job's submission.
    pub at_us: u64,
    /// Length of the interval, microseconds.
    pub interval_us: u64,
    /// Number of tasks that entered the queue.
    pub arrived: u64,
    /// Bytes of the inputs of these tasks: the demand.
    pub arrived_bytes: u64,
    /// Number of tasks that ended.
    pub ended: u64,
    /// Reads of the ended tasks' inputs, by source.
    pub reads: Reads,
    /// Number of tasks in the queue.
    pub waiting: u64,
    /// Number of tasks at executors.
    pub assigned: u64,
    /// Number of executors.
    pub executors: u64,
    /// Processors of all executors, thousandths.
    pub capacity_milli: u64,
    /// Processors with a task, thousandths.
    pub busy_milli: u64,
}

/// A job's sums and averages (data-diffusion §3.1 and §5.1). All times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Time from submission to the end of the last task, without the time between an end and a
    /// retry.
    pub elapsed_us: u64,
    /// Sum over tasks of the time from start to end. This is the time that one processor would
    /// need, `T_1` of equation 6, if inputs came from the same sources.
    pub serial_us: u64,
    /// `serial_us / elapsed_us` (equation 6).
    pub speedup: f64,
    /// Speedup divided by the average number of processors of the cluster (equation 7). `None` if
    /// samples were lost.
    pub efficiency: Option<f64>,
    /// Processor time of the cluster, used or not (`CPU_T`): the integral of its processors over
    /// the job's time. `None` if samples were lost.
    pub held_cpu_us: Option<u64>,
    /// Processor time that tasks used.
    pub used_cpu_us: u64,
    /// Speedup divided by processor hours held (`PI`, before the paper normalises it over the
    /// compared runs). `None` if samples were lost.
    pub performance_index: Option<f64>,
    /// Time without samples, because the dispatcher was killed before it had written them to disk.
    pub unsampled_us: u64,
    /// Average over tasks of queue + execution + delivery (`AR`).
    pub response_us: f64,
    /// Average time from ready to assigned (`WQ`).
    pub queue_us: f64,
    /// Average time at the executor (`TK`): staging and running.
    pub execution_us: f64,
    /// Average time for sending the task to the executor and the result back (`D`).
    pub delivery_us: f64,
    /// Elapsed time divided by the time with infinite resources and free communication, which is
    /// the largest sum of a task's ready time and run time (`SL`).
    pub slowdown: f64,
    /// Share of input bytes from local stores.
    pub local_share: f64,
    /// Share of input bytes from peers.
    pub peer_share: f64,
    /// Share of input bytes from persistent storage.
    pub persistent_share: f64,
    /// Share of input bytes from files of the cluster.
    #[serde(default)]
    pub files_share: f64,
}
