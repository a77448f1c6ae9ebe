//! How long the tasks of each job run, learned from those that have ended, and how long single
//! tasks have run that were interrupted.

use eyas_types::{JobId, TaskId};

use crate::hash::Map;

/// Executors whose tasks run at most this many times longer or shorter than others' count as
/// equally fast: the difference is in their tasks.
const ALIKE: f64 = 1.25;
/// The weight that earlier runs keep when another one is learned. After 11 more runs, a run counts
/// half.
const REMEMBERED: f64 = 15.0 / 16.0;
/// A run counts at most as this many times the usual.
const MAX_RATIO: f64 = 10.0;

#[derive(Default)]
pub(crate) struct RunTimes {
    /// The moving mean of each job, seconds.
    of_job: Map<JobId, f64>,
    /// No job has a longer mean, seconds. It does not fall with a mean, only when a job is
    /// forgotten.
    longest: f64,
    /// The longest interrupted run of tasks that have not ended, seconds: they run longer than
    /// that.
    interrupted: Map<TaskId, f64>,
}

impl RunTimes {
    /// Learns from a task that ran for `seconds`. Returns the ratio of that to the usual time of
    /// its job. For example a mean of 10 s and a run of 26 s give a ratio of 2.6 and a mean of 11
    /// s.
    pub(super) fn learn(&mut self, job: JobId, seconds: f64) -> Option<f64> {
        match self.of_job.get_mut(&job) {
            Some(mean) => {
                let ratio = (*mean > 0.0).then(|| seconds / *mean);
                *mean = *mean * REMEMBERED + seconds * (1.0 - REMEMBERED);
                self.longest = self.longest.max(*mean);
                ratio
            }
            None => {
                self.of_job.insert(job, seconds);
                self.longest = self.longest.max(seconds);
                None
            }
        }
    }

    /// Whether a task of the job has ended.
    pub fn is_known(&self, job: JobId) -> bool {
        self.of_job.contains_key(&job)
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.of_job.remove(&job);
        self.longest = self.of_job.values().copied().fold(0.0, f64::max);
    }

    /// A task had run for `seconds` when its executor was ended.
    pub(super) fn interrupted(&mut self, task: TaskId, seconds: f64) {
        let longest = self.interrupted.entry(task).or_default();
        *longest = longest.max(seconds);
    }

    pub(super) fn forget_task(&mut self, task: TaskId) {
        self.interrupted.remove(&task);
    }

    /// Seconds that the task runs at least.
    pub(super) fn at_least(&self, task: TaskId) -> f64 {
        self.interrupted.get(&task).copied().unwrap_or_default()
    }

    /// A bound on what is expected of a task before its executor's slowness counts, seconds: no job
    /// has a longer mean, and no task that has not ended was interrupted after a longer run. Single
    /// tasks that have ended may have run longer. For example a mean that was 60 s and is 20 s now,
    /// and a run of 45 s that was interrupted, give 60 s.
    pub fn longest(&self) -> f64 {
        self.interrupted.values().copied().fold(self.longest, f64::max)
    }

    /// Seconds that a task of the job computes on an executor whose tasks run `slowness` times as
    /// long as others'; 0 before a task of the job has ended. For example, with a mean of 10 s, it
    /// is 10 s at a slowness of 1.2, and 15 s at 1.5.
    pub fn seconds(&self, job: JobId, slowness: f64) -> f64 {
        let is_alike = slowness < ALIKE && slowness > 1.0 / ALIKE;
        let factor = if is_alike { 1.0 } else { slowness };
        self.of_job.get(&job).map_or(0.0, |mean| mean * factor)
    }
}

/// The slowness of an executor after one of its tasks ran `ratio` times as long as usual. For
/// example, from a slowness of 1, three runs with a ratio of 3 lead to 1.125, 1.24 and 1.35; only
/// the last one is beyond [`ALIKE`].
pub(super) fn moved_slowness(slowness: f64, ratio: f64) -> f64 {
    slowness * REMEMBERED + ratio.min(MAX_RATIO) * (1.0 - REMEMBERED)
}
