//! What a test sees of a run, so that it can check invariants after every step.

use eyas_jobs::{Entry, Job};
use eyas_sched::Scheduler;

/// A dispatcher that is running, with the state of its deciders.
pub struct AuditedDispatcher<'a> {
    /// Number of the dispatcher, from 0.
    pub number: usize,
    /// The dispatcher's only job.
    pub job: &'a Job,
    /// The dispatcher's scheduler.
    pub scheduler: &'a Scheduler,
}

/// Receives the events of a run. A task is named by its dispatcher's number and its index in that
/// dispatcher's job.
pub trait Audit {
    /// A dispatcher assigns a task to an executor.
    fn assigned(&mut self, dispatcher: usize, index: u32);
    /// A dispatcher writes an entry to its journal.
    fn written(&mut self, dispatcher: usize, entry: &Entry);
    /// The oldest entry that was written is now on disk, and the client is told of it.
    fn acknowledged(&mut self, dispatcher: usize, entry: &Entry);
    /// The client is told that tasks of this dispatcher with these indices are cancelled.
    fn cancelled(&mut self, dispatcher: usize, indices: std::ops::Range<u32>);
    /// The client retries the failed and cancelled tasks of a dispatcher's job.
    fn retried(&mut self, dispatcher: usize);
    /// A dispatcher dies.
    fn died(&mut self, dispatcher: usize);
    /// All events of one instant have been handled.
    fn stepped(&mut self, dispatchers: &mut dyn Iterator<Item = AuditedDispatcher<'_>>);
}
