//! When a job stops before its end: its first tasks have all failed in the same way, so the others
//! would, too. Nothing is written for it: that it is so can be told from the job's failures.

use core::ops::Range;

use crate::job::Job;

/// A job stops after this number of equal failures, if no task has succeeded.
pub const EQUAL_FAILURES: usize = if cfg!(test) { 3 } else { 20 };

/// How all tasks of a job have failed so far, if there are at least [`EQUAL_FAILURES`], and the job
/// is to stop then. Tasks that never ran because they need those that failed do not count.
fn common_failure(job: &Job) -> Option<&str> {
    if !job.spec.halts || job.counts().succeeded > 0 {
        return None;
    }
    let mut own = job.failures.iter().filter(|(task, _)| !needs_what_failed(job, task.index));
    let (_, first) = own.next()?;
    let equal = own.take(EQUAL_FAILURES - 1).take_while(|(_, how)| how == first).count();
    (equal == EQUAL_FAILURES - 1).then_some(first)
}

/// Whether a task never ran, because tasks whose outputs it reads did not succeed.
fn needs_what_failed(job: &Job, index: u32) -> bool {
    let item = job.spec.items.get(index);
    let mut producers = job.spec.inputs_of(&item).filter_map(|input| input.from.output());
    producers.any(|(task, _)| job.tasks.phase(task).has_ended_unsuccessfully())
}

/// How the first tasks of a job have failed, if the job has stopped for it.
pub fn halted_by(job: &Job) -> Option<&str> {
    let has_stopped = job.counts().cancelled > 0 || !job.cancelling.is_empty();
    common_failure(job).filter(|_| has_stopped)
}

/// The tasks of a job that are to be cancelled because all fail in the same way.
pub(crate) fn tasks_to_halt(job: &Job) -> Option<Range<u32>> {
    let goes_on = !job.has_ended() && !job.is_ending();
    (goes_on && common_failure(job).is_some()).then_some(0..job.tasks.len() as u32)
}
