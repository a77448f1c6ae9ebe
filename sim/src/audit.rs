//! What a test is shown of a run, so that it can check what must hold whatever breaks.

use eyas_jobs::{Entry, Job};
use eyas_sched::Scheduler;

/// A dispatcher that is running.
pub struct Audited<'a> {
    /// Its number, from 0.
    pub number: usize,
    /// Its job.
    pub job: &'a Job,
    /// Its scheduler.
    pub scheduler: &'a Scheduler,
}

/// Is shown what happens in a run. Tasks are named by the dispatcher that has them and their index in its job.
pub trait Audit {
    /// A dispatcher gives a task to an executor.
    fn assigned(&mut self, dispatcher: usize, index: u32);
    /// A dispatcher writes an entry to its journal.
    fn written(&mut self, dispatcher: usize, entry: &Entry);
    /// The next entry of those that were written is on disk. The client is told of it.
    fn acknowledged(&mut self, dispatcher: usize, entry: &Entry);
    /// The client is told that these tasks of a dispatcher, from the first index to the one before the last, are
    /// cancelled.
    fn cancelled(&mut self, dispatcher: usize, indices: std::ops::Range<u32>);
    /// The client has the failed and cancelled tasks of a dispatcher's job run again.
    fn retried(&mut self, dispatcher: usize);
    /// A dispatcher dies.
    fn died(&mut self, dispatcher: usize);
    /// All that happens at one instant has happened.
    fn stepped(&mut self, dispatchers: &mut dyn Iterator<Item = Audited<'_>>);
}
