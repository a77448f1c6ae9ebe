//! Ends tasks with results that are there already.

use eyas_types::{ExecutorId, JobId, ObjectSpec, Outcome, Reads, TaskId};
use eyas_wire::executor::ToExecutor;

use super::Brain;
use crate::job::Phase;
use crate::reuse::Digest;

impl Brain {
    /// Notes what a task did that has succeeded.
    pub(super) fn note_reusable(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task.job).filter(|job| job.spec.reuse) else { return };
        if job.tasks[task.index as usize].phase == Phase::Succeeded
            && let Some(digest) = Digest::of(job, task.index)
        {
            self.reuse.succeeded(digest, task);
        }
    }

    /// Ends a task that is about to be queued if its result is there, or has somebody look whether it is; whether it does.
    pub(super) fn reuses(&mut self, id: JobId, index: u32) -> bool {
        let task = TaskId { job: id, index };
        let Some(outcome) = self.earlier_outcome(task) else { return false };
        if outcome.outputs.iter().all(|delivered| delivered.object.is_kept()) {
            self.end(task, 0, String::new(), outcome);
        } else if self.executors.len() == 0 {
            // It waits for one anyway.
            return false;
        } else {
            self.reuse.line_up(task, outcome);
            self.send_checks();
        }
        true
    }

    /// How an earlier task that did the same has ended, if all that it kept in the cluster is there.
    fn earlier_outcome(&mut self, task: TaskId) -> Option<Outcome> {
        let job = self.jobs.get(&task.job).filter(|job| job.spec.reuse)?;
        if job.tasks[task.index as usize].recomputed > 0 {
            return None;
        }
        let earlier = self.reuse.find(Digest::of(job, task.index)?)?;
        let from = self.jobs.get(&earlier.job)?;
        if from.tasks[earlier.index as usize].phase != Phase::Succeeded {
            return None;
        }
        let mut results = std::mem::take(&mut self.reuse.results);
        let result = results.last(self, from, earlier.index);
        self.reuse.results = results;
        let mut outcome = result.ok()??.outcome;
        let is_here = |object: &ObjectSpec| !object.is_kept() || self.scheduler.is_held(object.id());
        if outcome.cut_bytes > 0 || !outcome.outputs.iter().all(|delivered| is_here(&delivered.object)) {
            return None;
        }
        (outcome.waited_us, outcome.ran_us, outcome.cpu_us, outcome.reads) = (0, 0, 0, Reads::default());
        if !job.places.allow(task.index, &outcome) {
            return None;
        }
        outcome.reused = Some(outcome.reused.unwrap_or(earlier));
        Some(outcome)
    }

    /// Has executors look whether what was written is still there. They take turns.
    pub(super) fn send_checks(&mut self) {
        while let Some((task, outcome)) = self.reuse.next_check() {
            let waits =
                self.jobs.get(&task.job).map(|job| job.tasks[task.index as usize].phase) == Some(Phase::Waiting);
            let turn = task.index as usize % self.executors.len().max(1);
            let executor = self.executors.iter().nth(turn).map(|(id, _)| id);
            match executor {
                _ if !waits => {}
                None => self.queue_now(task.job, task.index),
                Some(executor) => {
                    let written = outcome.outputs.iter().map(|delivered| &delivered.object);
                    let objects = written.filter(|object| !object.is_kept()).cloned().collect();
                    self.executors.send(executor, ToExecutor::Check { task, objects });
                    self.reuse.checks(task, executor, outcome);
                }
            }
        }
    }

    /// An executor has looked for what was written.
    pub(super) fn checked(&mut self, executor: ExecutorId, task: TaskId, is_unchanged: bool) {
        if let Some(outcome) = self.reuse.checked(task, executor)
            && self.jobs.get(&task.job).map(|job| job.tasks[task.index as usize].phase) == Some(Phase::Waiting)
        {
            match is_unchanged {
                true => self.end(task, 0, String::new(), outcome),
                false => self.queue_now(task.job, task.index),
            }
        }
        self.send_checks();
    }
}
