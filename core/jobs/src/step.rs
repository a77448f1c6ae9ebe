//! One call of the decider: its time, and the effects that it asks for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use eyas_types::{JobId, TaskId};

use crate::event::{Effect, JobsAction, SchedulerOrder};
use crate::log::JournalRecord;

/// The context of one call of [`Jobs::handle`](crate::Jobs::handle).
pub(crate) struct JobsStep<'a> {
    /// Microseconds since 1970, as the event under way was told.
    pub now_us: u64,
    effects: &'a mut Vec<Effect>,
    /// Tasks that are taken out of the queue, and how many effects came before.
    withdrawn: BTreeMap<TaskId, usize>,
    /// Jobs of which tasks have failed.
    failing: BTreeSet<JobId>,
}

impl<'a> JobsStep<'a> {
    pub fn new(now_us: u64, effects: &'a mut Vec<Effect>) -> Self {
        JobsStep { now_us, effects, withdrawn: BTreeMap::new(), failing: BTreeSet::new() }
    }

    /// The scheduler must do this.
    pub fn order(&mut self, order: SchedulerOrder) {
        self.effects.push(Effect::Order(order));
    }

    /// The shell must do this.
    pub fn act(&mut self, action: JobsAction) {
        self.effects.push(Effect::Action(action));
    }

    /// The journal gets a record.
    pub fn write(&mut self, record: JournalRecord) {
        self.act(JobsAction::Write(record));
    }

    /// Clients that watch the job are shown how it stands.
    pub fn show(&mut self, job: JobId) {
        self.act(JobsAction::Show { job });
    }

    /// Takes a task that waits out of the scheduler's queue.
    pub fn withdraw(&mut self, task: TaskId) {
        self.withdrawn.insert(task, self.effects.len());
    }

    /// A task of the job has failed.
    pub fn note_failing(&mut self, job: JobId) {
        self.failing.insert(job);
    }

    /// Jobs of which tasks have failed since the last call.
    pub fn take_failing(&mut self) -> BTreeSet<JobId> {
        mem::take(&mut self.failing)
    }

    /// Puts the withdrawal of tasks before all other effects, and removes earlier effects that
    /// would queue them.
    pub fn withdraw_first(&mut self) {
        if self.withdrawn.is_empty() {
            return;
        }
        let withdrawn = mem::take(&mut self.withdrawn);
        let mut place = 0;
        self.effects.retain(|effect| {
            place += 1;
            let Effect::Order(SchedulerOrder::Queue { task, .. }) = effect else { return true };
            withdrawn.get(task).is_none_or(|before| place > *before)
        });
        self.effects.insert(
            0,
            Effect::Order(SchedulerOrder::Withdraw { tasks: withdrawn.into_keys().collect() }),
        );
    }
}
