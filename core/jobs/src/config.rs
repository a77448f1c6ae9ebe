//! Settings of a decider of jobs.

/// Default bound on the captured output of all jobs in the journal and beside it, bytes.
const MAX_JOURNAL_OUTPUT_BYTES: u64 = 16 << 30;
/// Default number of ended jobs that are remembered.
const MAX_ENDED_JOBS: usize = 200;

/// Default number of ended jobs that are in memory.
const MAX_ENDED_IN_MEMORY: usize = 20;
/// Default bound on the memory of ended jobs, bytes: some two million tasks.
const MAX_ENDED_BYTES_IN_MEMORY: u64 = 256 << 20;

/// Default number of inputs of the tasks that one event puts into the queue, about. For example one
/// event queues 100 tasks with 1,000 inputs each.
const INPUTS_AT_ONCE: u64 = 100_000;

/// Default number of inputs of the tasks of one job that wait in the queue, about. The scheduler
/// needs some 20 bytes for each. For example 4,000 tasks with 1,000 inputs each, and 80 MB.
const MAX_WAITING_INPUTS: u64 = 4_000_000;

/// Settings of a decider of jobs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Captured output that the journal keeps, of all jobs, in bytes. When there is more, the
    /// oldest ended jobs are forgotten, with their results; and when that is not enough, further
    /// output is cut.
    pub max_output_bytes: u64,
    /// Ended jobs that are remembered; then the oldest is forgotten, with its results.
    pub max_ended_jobs: usize,
    /// Ended jobs that are in memory; the others are in the journal alone. Jobs for which
    /// executors hold objects are not counted, and stay in memory.
    pub max_ended_in_memory: usize,
    /// Roughly the bytes that ended jobs take in memory.
    pub max_ended_bytes_in_memory: u64,
    /// Tasks are queued until they have about this many inputs, each of them counting as one more.
    /// Other events come before further tasks are queued.
    pub inputs_at_once: u64,
    /// No more tasks of a job are queued while those that wait in the queue have this many inputs.
    /// Tasks with few inputs do not count.
    pub waiting_inputs: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_output_bytes: MAX_JOURNAL_OUTPUT_BYTES,
            max_ended_jobs: MAX_ENDED_JOBS,
            max_ended_in_memory: MAX_ENDED_IN_MEMORY,
            max_ended_bytes_in_memory: MAX_ENDED_BYTES_IN_MEMORY,
            inputs_at_once: INPUTS_AT_ONCE,
            waiting_inputs: MAX_WAITING_INPUTS,
        }
    }
}
