//! How soon a task would be done on an executor: what `cost` placement compares, and what `explain`
//! reports.
//!
//! ```text
//! finish = max(wait for a slot, transfer of missing inputs) + computing
//! ```
//!
//! because inputs are staged while other tasks compute. For example, a wait of 2 s, a transfer of 5
//! s and computing for 3 s give 8 s. All three are learned: transfer times, run times of each job,
//! and how much slower an executor is than others. The decider has no clock, so a running task is
//! taken to be half done.

use eyas_types::Estimate;

use crate::state::{ExecutorKey, LoadPpm, PlacementState, SchedulerState, TaskKey};

pub(crate) struct Estimator<'a> {
    state: &'a SchedulerState,
}

impl<'a> Estimator<'a> {
    pub fn new(state: &'a SchedulerState) -> Self {
        Estimator { state }
    }

    /// The estimate for a task on an executor, when tasks with a load of `ahead` go before it
    /// there.
    pub fn estimate(&self, task: TaskKey, executor: ExecutorKey, ahead: LoadPpm) -> Estimate {
        let state = self.state;
        let entry = &state.executors[executor];
        let own = entry.load_of(state.resources_of(task));
        let run_seconds = state.run_times.seconds(state.queue[task].id.job, entry.slowness);
        let coming = |object| state.transfers.coming(object, executor);
        let transfer_seconds = state.transfer_seconds(task, executor, coming);
        Estimate {
            wait_us: microseconds(entry.wait_seconds(ahead, own, run_seconds)),
            transfer_us: microseconds(transfer_seconds),
            compute_us: microseconds(run_seconds),
        }
    }

    /// The estimate for a task on an executor behind the tasks that are assigned there.
    pub fn behind_assigned(&self, task: TaskKey, executor: ExecutorKey) -> Estimate {
        self.estimate(task, executor, self.state.executors[executor].load())
    }

    /// The estimate for a task at its home or where it is assigned, behind all other tasks there.
    /// `home` is the task's home and the load of all tasks at that home, if it has one. For
    /// example, one slot runs a task, and three tasks of 10 s have their home there, this one
    /// included: the load ahead is 3, and the wait is 25 s.
    pub fn at_home(
        &self,
        task: TaskKey,
        home: Option<(ExecutorKey, LoadPpm)>,
    ) -> Option<(ExecutorKey, Estimate)> {
        let (executor, load_at_home) = match self.state.queue[task].state {
            PlacementState::Assigned { executor, .. } => (executor, LoadPpm::NONE),
            _ => home?,
        };
        let entry = &self.state.executors[executor];
        let own = entry.load_of(self.state.resources_of(task));
        let ahead = (entry.load() + load_at_home).saturating_sub(own);
        Some((executor, self.estimate(task, executor, ahead)))
    }
}

fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
