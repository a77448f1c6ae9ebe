//! The executors that are here: their names, how they do, and which of them leave.

use alloc::collections::BTreeMap;
use alloc::string::String;

use eyas_types::course::Sample;
use eyas_types::{ExecutorId, Outcome, TaskId};

use crate::event::{JobsAction, SchedulerOrder};
use crate::health::Health;
use crate::step::JobsStep;

/// An executor that leaves in good order stays for at most this time, microseconds, while others
/// fetch what only it holds.
const MOVE_DEADLINE_US: u64 = 60_000_000;

/// See the [module's](self) documentation.
#[derive(Debug, Default)]
pub(crate) struct PresentExecutors {
    names: BTreeMap<ExecutorId, String>,
    health: Health,
    /// Those that leave after others have fetched what only they hold, each with its deadline.
    leaving: BTreeMap<ExecutorId, u64>,
    /// Processors of all executors and those with a task, thousandths, as they were told last.
    processors: (u64, u64),
}

impl PresentExecutors {
    pub fn joined(&mut self, executor: ExecutorId, name: String) {
        self.names.insert(executor, name);
    }

    /// An executor is gone. Returns its name.
    pub fn gone(&mut self, executor: ExecutorId) -> String {
        self.health.forget(executor);
        self.leaving.remove(&executor);
        self.names.remove(&executor).unwrap_or_default()
    }

    /// The name of an executor; empty if it is not here.
    pub fn name_of(&self, executor: ExecutorId) -> String {
        self.names.get(&executor).cloned().unwrap_or_default()
    }

    /// Whether none is here.
    pub fn are_none(&self) -> bool {
        self.names.is_empty()
    }

    /// The executor whose turn it is with this number, if one is here.
    pub fn in_turn(&self, number: usize) -> Option<ExecutorId> {
        self.names.keys().nth(number % self.names.len().max(1)).copied()
    }

    // ---- how they do

    /// Takes note of how a task went on an executor, and sets aside executors on which tasks fail
    /// that others complete.
    pub fn judge(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        outcome: &Outcome,
        step: &mut JobsStep,
    ) {
        for executor in self.health.ended(executor, task, outcome, step.now_us) {
            step.order(SchedulerOrder::SetAside { executor });
            step.act(JobsAction::SetAside { executor });
        }
    }

    /// Takes executors back that were set aside long enough.
    pub fn take_back(&mut self, step: &mut JobsStep) {
        for executor in self.health.due(step.now_us) {
            step.order(SchedulerOrder::TakeBack { executor });
            step.act(JobsAction::TakenBack { executor });
        }
    }

    /// Until when an executor is given no tasks, if it is set aside.
    pub fn set_aside_until(&self, executor: ExecutorId) -> Option<u64> {
        self.health.set_aside_until(executor)
    }

    /// When the next executor is to be taken back.
    pub fn next_taken_back(&self) -> Option<u64> {
        self.health.next_timeout()
    }

    // ---- which leave

    /// Lets an executor leave, after others have what only it has.
    pub fn let_leave(&mut self, executor: ExecutorId, step: &mut JobsStep) {
        step.order(SchedulerOrder::Drain { executor });
        step.order(SchedulerOrder::Evacuate);
        self.leaving.insert(executor, step.now_us + MOVE_DEADLINE_US);
    }

    /// Others fetch this many objects that only the executor has, which leaves.
    pub fn moving(&mut self, executor: ExecutorId, objects: usize, step: &mut JobsStep) {
        let Some(until_us) = self.leaving.get(&executor) else { return };
        if objects == 0 || *until_us <= step.now_us {
            self.leaving.remove(&executor);
            step.act(JobsAction::Stop { executor });
        }
    }

    /// Those that leave once what only they hold is elsewhere.
    pub fn leaving(&self) -> impl Iterator<Item = ExecutorId> {
        self.leaving.keys().copied()
    }

    /// When the next of those has to leave.
    pub fn next_to_leave(&self) -> Option<u64> {
        self.leaving.values().min().copied()
    }

    // ---- how many they are

    /// Processors of all executors and those with a task, thousandths.
    pub fn note_processors(&mut self, capacity_milli: u64, busy_milli: u64) {
        self.processors = (capacity_milli, busy_milli);
    }

    /// What the course of a job says of executors.
    pub fn sample(&self) -> Sample {
        let (capacity_milli, busy_milli) = self.processors;
        let executors = self.names.len() as u64;
        Sample { executors, capacity_milli, busy_milli, ..Sample::default() }
    }
}
