//! How far a job is, and its course over time: what the decider of jobs keeps, and clients are shown.

use serde::{Deserialize, Serialize};

use crate::outcome::Reads;

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Some task has not ended.
    Running,
    /// Every task succeeded.
    Succeeded,
    /// Some task failed.
    Failed,
    /// It was cancelled, and no task failed.
    Cancelled,
}

/// How many of a job's tasks are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// Wait for another task's output.
    pub blocked: u64,
    /// In the queue.
    pub waiting: u64,
    /// Given to an executor.
    pub assigned: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended otherwise.
    pub failed: u64,
    /// Were cancelled.
    pub cancelled: u64,
}

impl TaskCounts {
    /// All tasks.
    pub fn total(&self) -> u64 {
        self.blocked + self.waiting + self.assigned + self.ended()
    }

    /// Tasks that will not run again.
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }
}

/// Events in one interval of a job, and the job's state at the end of the interval. Counts are of this job alone,
/// except executors and processors, which are the cluster's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// End of the interval, microseconds from the job's submission.
    pub at_us: u64,
    /// Length of the interval.
    pub interval_us: u64,
    /// Tasks that came into the queue.
    pub arrived: u64,
    /// Bytes of their inputs: the demand.
    pub arrived_bytes: u64,
    /// Tasks that ended.
    pub ended: u64,
    /// Reads of the ended tasks' inputs, by source.
    pub reads: Reads,
    /// Tasks in the queue.
    pub waiting: u64,
    /// Tasks at executors.
    pub assigned: u64,
    /// Executors.
    pub executors: u64,
    /// Their processors, thousandths.
    pub capacity_milli: u64,
    /// Processors with a task, thousandths.
    pub busy_milli: u64,
}

/// A job's sums and averages (data-diffusion §3.1 and §5.1). All times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// From submission to the last task's end, without the time between an end and a retry.
    pub elapsed_us: u64,
    /// Sum over tasks of the time from start to end: what one processor would need, `T_1` of equation 6 with the reads
    /// as they were.
    pub serial_us: u64,
    /// `serial_us / elapsed_us` (equation 6).
    pub speedup: f64,
    /// Speedup over the average number of processors there were (equation 7). `None` if samples were lost.
    pub efficiency: Option<f64>,
    /// Processor time that was held, used or not (`CPU_T`): the integral of processors over the job's time. `None` if
    /// samples were lost.
    pub held_cpu_us: Option<u64>,
    /// Processor time that tasks used.
    pub used_cpu_us: u64,
    /// Speedup per processor hour held (`PI` before it is normalised over the runs compared).
    /// `None` if samples were lost.
    pub performance_index: Option<f64>,
    /// Time of which no sample is known, because the dispatcher died before they were on disk.
    pub unsampled_us: u64,
    /// Average over tasks of queue + execution + delivery (`AR`).
    pub response_us: f64,
    /// Average time from ready to assigned (`WQ`).
    pub queue_us: f64,
    /// Average time at the executor (`TK`): staging and running.
    pub execution_us: f64,
    /// Average time on the way there and back (`D`).
    pub delivery_us: f64,
    /// Elapsed time over that of infinite resources and free communication: the latest ready time plus run time (`SL`).
    pub slowdown: f64,
    /// Share of input bytes from local stores.
    pub local_share: f64,
    /// Share of input bytes from peers.
    pub peer_share: f64,
    /// Share of input bytes from persistent storage.
    pub persistent_share: f64,
}
