//! The tasks of a job: the state of each, and how many are in each phase.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::ops::Deref;

use eyas_types::course::TaskCounts;
use eyas_types::{ExecutorId, ObjectId, TaskId};
use serde::{Deserialize, Serialize};

/// Tasks with up to this many inputs do not count among those whose inputs are bounded: what is
/// kept of them is as much as what is kept of any task.
const FEW_INPUTS: usize = 64;

/// The phase of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waits for an output of another task.
    Blocked,
    /// Waits for an executor.
    #[default]
    Waiting,
    /// Assigned to an executor.
    Assigned,
    /// Has succeeded.
    Succeeded,
    /// Has failed.
    Failed,
    /// Was cancelled.
    Cancelled,
}

impl Phase {
    /// Whether the task has ended. It runs again only if it is retried or its output is lost.
    pub fn has_ended(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed | Phase::Cancelled)
    }

    /// Whether it has failed or was cancelled.
    pub fn has_ended_unsuccessfully(self) -> bool {
        self.has_ended() && self != Phase::Succeeded
    }

    /// Whether a task may go from this phase to the next one. A retry goes on from `Failed` and
    /// `Cancelled`, a lost output from `Succeeded`.
    fn may_become(self, next: Phase) -> bool {
        use Phase::{Assigned, Blocked, Cancelled, Failed, Succeeded, Waiting};
        matches!(
            (self, next),
            (Blocked, Blocked | Waiting | Succeeded | Failed | Cancelled)
                | (Waiting, Blocked | Assigned | Succeeded | Failed | Cancelled)
                | (Assigned, Waiting | Succeeded | Failed | Cancelled)
                | (Succeeded, Waiting)
                | (Failed | Cancelled, Waiting | Blocked)
        )
    }

    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Blocked => "blocked",
            Phase::Waiting => "waiting",
            Phase::Assigned => "assigned",
            Phase::Succeeded => "succeeded",
            Phase::Failed => "failed",
            Phase::Cancelled => "cancelled",
        }
    }
}

/// The state of a task in memory; by default, of one that has not run. Its result is in the
/// journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskState {
    /// The phase of the task.
    pub phase: Phase,
    /// Failed attempts.
    pub failures: u16,
    /// Number of executors that were lost while the task may have run there.
    pub losses: u16,
    /// Number of times that it was recomputed because its kept output was lost.
    pub recomputed: u16,
    /// Attempts that failed because an executor could not get a kept input.
    pub starved: u8,
    /// Attempts that ended with their executors, which were ended in good order.
    pub interrupted: u8,
    /// Number of its inputs, if they are many and it is in the queue or assigned.
    many_inputs: u32,
    /// The executor that has it, or had it last.
    pub executor: Option<ExecutorId>,
    /// When it could first run, microseconds from the job's submission.
    pub ready_us: u64,
    /// When it was assigned last, microseconds from the job's submission.
    pub assigned_us: u64,
    /// Once it has ended: the number of the journal entry with its result.
    pub(super) entry: u64,
}

// There is one for each task.
const _: () = assert!(size_of::<TaskState>() == 48);

/// The tasks of a job, by their indices.
#[derive(Debug, Default)]
pub struct TaskTable {
    states: Vec<TaskState>,
    counts: TaskCounts,
    /// Sum of the inputs of tasks that wait in the queue and have many.
    waiting_inputs: u64,
}

impl TaskTable {
    /// Tasks none of which has run.
    pub(super) fn of(count: usize) -> Self {
        let counts = TaskCounts { waiting: count as u64, ..TaskCounts::default() };
        TaskTable { states: vec![TaskState::default(); count], counts, waiting_inputs: 0 }
    }

    /// Adds tasks that have not run, so that there are `count`.
    pub(super) fn grow(&mut self, count: usize) {
        self.counts.waiting += (count - self.states.len()) as u64;
        self.states.resize(count, TaskState::default());
    }

    /// How many tasks are in each phase.
    pub fn counts(&self) -> TaskCounts {
        self.counts
    }

    /// The state of a task, but for its phase, which only [`enter`](Self::enter) changes.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut TaskState {
        &mut self.states[index as usize]
    }

    /// Indices of all tasks.
    pub(super) fn indices(&self) -> core::ops::Range<u32> {
        0..self.states.len() as u32
    }

    /// The phase of a task.
    pub(crate) fn phase(&self, index: u32) -> Phase {
        self.states[index as usize].phase
    }

    /// Moves a task to another phase. Returns the one before.
    ///
    /// # Panics
    /// If the task may not go there.
    pub(super) fn enter(&mut self, task: TaskId, phase: Phase) -> Phase {
        let state = &mut self.states[task.index as usize];
        let before = state.phase;
        assert!(
            before.may_become(phase),
            "task {task} cannot go from {before:?} to {phase:?}: {state:?}"
        );
        state.phase = phase;
        match (before, phase) {
            (Phase::Waiting, Phase::Assigned) => {
                self.waiting_inputs -= u64::from(state.many_inputs)
            }
            // It is in the queue again.
            (Phase::Assigned, Phase::Waiting) => {
                self.waiting_inputs += u64::from(state.many_inputs)
            }
            (Phase::Waiting, _) => self.leave_queue(task.index),
            _ => state.many_inputs = 0,
        }
        *count(&mut self.counts, before) -= 1;
        *count(&mut self.counts, phase) += 1;
        before
    }

    /// A task is in the queue from `ready_us` on.
    pub(super) fn queued(&mut self, index: u32, ready_us: u64, inputs: &[(ObjectId, u64)]) {
        self.states[index as usize].ready_us = ready_us;
        self.enter_queue(index, inputs);
    }

    /// A waiting task is in the queue, for the first time or again.
    pub(crate) fn enter_queue(&mut self, index: u32, inputs: &[(ObjectId, u64)]) {
        self.leave_queue(index);
        let many_inputs = if inputs.len() > FEW_INPUTS { inputs.len() as u32 } else { 0 };
        self.states[index as usize].many_inputs = many_inputs;
        self.waiting_inputs += u64::from(many_inputs);
    }

    /// A waiting task is not in the queue for now.
    pub(crate) fn leave_queue(&mut self, index: u32) {
        let many_inputs = mem::take(&mut self.states[index as usize].many_inputs);
        self.waiting_inputs -= u64::from(many_inputs);
    }

    /// Sum of the inputs of tasks that wait in the queue and have many.
    pub(crate) fn waiting_inputs(&self) -> u64 {
        self.waiting_inputs
    }

    /// A task starts again because its executor is gone: live, or again when it is read from the
    /// journal.
    pub(crate) fn count_restart(&mut self, index: u32, is_loss: bool) {
        let state = self.get_mut(index);
        if is_loss {
            state.losses = state.losses.saturating_add(1);
        } else {
            state.interrupted = state.interrupted.saturating_add(1);
        }
    }

    /// A task that had ended runs again, as if it had not run.
    pub(super) fn forget_failures(&mut self, index: u32) {
        let state = self.get_mut(index);
        (state.failures, state.losses, state.interrupted, state.starved) = (0, 0, 0, 0);
    }
}

impl Deref for TaskTable {
    type Target = [TaskState];

    fn deref(&self) -> &[TaskState] {
        &self.states
    }
}

fn count(counts: &mut TaskCounts, phase: Phase) -> &mut u64 {
    match phase {
        Phase::Blocked => &mut counts.blocked,
        Phase::Waiting => &mut counts.waiting,
        Phase::Assigned => &mut counts.assigned,
        Phase::Succeeded => &mut counts.succeeded,
        Phase::Failed => &mut counts.failed,
        Phase::Cancelled => &mut counts.cancelled,
    }
}
