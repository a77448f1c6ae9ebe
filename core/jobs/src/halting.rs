//! When a job stops before its end: its first tasks have all failed in the same way, so the others
//! would, too. Nothing is written for it: that it is so can be told from the job's failures.

use eyas_types::JobId;

use crate::job::Job;
use crate::jobs::Jobs;
use crate::step::JobsStep;

/// A job stops after this number of equal failures, if no task has succeeded.
pub const EQUAL_FAILURES: usize = if cfg!(test) { 3 } else { 20 };

impl Job {
    /// How all tasks have failed so far, if there are at least [`EQUAL_FAILURES`], and the job is
    /// to stop then. Tasks that never ran because they need those that failed do not count.
    fn common_failure(&self) -> Option<&str> {
        if !self.spec.halts || self.counts().succeeded > 0 {
            return None;
        }
        let mut own = self.failures.iter().filter(|(task, _)| !self.needs_what_failed(task.index));
        let (_, first) = own.next()?;
        let equal = own.take(EQUAL_FAILURES - 1).take_while(|(_, how)| how == first).count();
        (equal == EQUAL_FAILURES - 1).then_some(first)
    }

    /// Whether the task never ran, because tasks whose outputs it reads did not succeed.
    fn needs_what_failed(&self, index: u32) -> bool {
        let item = self.spec.items.get(index);
        let mut producers = self.spec.inputs_of(&item).filter_map(|input| input.from.output());
        producers.any(|(task, _)| self.tasks.phase(task).has_ended_unsuccessfully())
    }

    /// How the first tasks have failed, if the job has stopped for it.
    pub fn halted_by(&self) -> Option<&str> {
        let has_stopped = self.counts().cancelled > 0 || !self.cancelling.is_empty();
        self.common_failure().filter(|_| has_stopped)
    }
}

impl Jobs {
    /// Cancels what is left of jobs in which all fails in the same way.
    pub(crate) fn halt_hopeless(&mut self, step: &mut JobsStep) {
        for id in step.take_failing() {
            self.halt_if_hopeless(id, step);
        }
    }

    fn halt_if_hopeless(&mut self, id: JobId, step: &mut JobsStep) {
        let is_hopeless =
            |job: &&Job| !job.has_ended() && !job.is_ending() && job.common_failure().is_some();
        if let Some(job) = self.table.get(id).filter(is_hopeless) {
            let tasks = 0..job.tasks.len() as u32;
            self.cancel(id, tasks, step);
        }
    }
}
