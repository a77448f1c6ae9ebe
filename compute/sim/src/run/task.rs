//! Tasks that have arrived and not ended.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use eyas_sched::Hint;
use eyas_types::{Reads, TaskId};

use super::job::{JOB, Outputs};
use super::object::Owner;
use crate::arrival::{Arrival, Objects};
use crate::clock::{MICROSECOND, Ns};
use crate::flows::FlowId;

pub(super) struct SimTask {
    /// Index in the job of its dispatcher.
    index: u32,
    /// Objects that the task reads, without repetition, in the order of their ids.
    pub inputs: Objects,
    pub outputs: Objects,
    pub compute_us: u64,
    pub arrived: Ns,
    /// Executors that may have its inputs, while the task is assigned.
    pub hints: Box<[Hint]>,
    /// Number of earlier assignments, while the task is assigned.
    pub attempt: u32,
    /// Time of the assignment.
    pub assigned: Ns,
    /// The executor that it was assigned to.
    pub executor: u32,
    pub started: Ns,
    /// Whether it has started on that executor and not ended.
    pub is_running: bool,
    /// Sources of its inputs in this attempt.
    pub reads: Reads,
    /// The flow of the bytes that it reads or writes now.
    pub flow: Option<FlowId>,
    pub step: TaskStep,
    /// Computing time, including reads from memory.
    pub computes_ns: Ns,
    /// Duration of the last attempt.
    pub ran_ns: Ns,
    /// Its success is counted in the outcome.
    pub is_done: bool,
}

/// The step that a running task is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskStep {
    /// Reads inputs, then computes.
    Computing,
    /// Writes outputs to persistent storage.
    Delivering,
    /// Writes kept outputs to the disk of its node.
    Keeping,
}

impl SimTask {
    pub fn new(arrival: Arrival, index: u32, all_outputs: &Outputs) -> Self {
        let Arrival { at_us, mut inputs, compute_us, outputs } = arrival;
        let arrived = at_us * MICROSECOND;
        inputs.sort_by_key(|object| all_outputs.id_of(*object, Owner::All));
        inputs.dedup();
        SimTask {
            index,
            inputs,
            outputs,
            compute_us,
            arrived,
            hints: Box::default(),
            attempt: 0,
            assigned: 0,
            executor: 0,
            started: 0,
            is_running: false,
            reads: Reads::default(),
            flow: None,
            step: TaskStep::Computing,
            computes_ns: 0,
            ran_ns: 0,
            is_done: false,
        }
    }
}

/// Tasks by their numbers, which count up. The oldest task that has not ended is first.
pub(super) struct SimTasks {
    tasks: VecDeque<Option<SimTask>>,
    first: u32,
    /// Tasks may run again after they have ended, so none is removed.
    may_run_again: bool,
}

impl SimTasks {
    pub fn new(may_run_again: bool) -> Self {
        SimTasks { tasks: VecDeque::new(), first: 0, may_run_again }
    }

    /// Adds a task and returns its number.
    pub fn add(&mut self, task: SimTask) -> u32 {
        self.tasks.push_back(Some(task));
        self.first + self.tasks.len() as u32 - 1
    }

    /// A task has succeeded.
    pub fn done(&mut self, task: u32) {
        if self.may_run_again {
            return;
        }
        self.tasks[(task - self.first) as usize] = None;
        while self.tasks.front().is_some_and(Option::is_none) {
            self.tasks.pop_front();
            self.first += 1;
        }
    }

    /// The task, if this attempt runs on this executor.
    pub fn running(&mut self, task: u32, executor: u32, attempt: u32) -> Option<&mut SimTask> {
        let place = task.checked_sub(self.first)?;
        let task = self.tasks.get_mut(place as usize)?.as_mut()?;
        (task.is_running && task.executor == executor && task.attempt == attempt).then_some(task)
    }

    /// Id of a task in the job of its dispatcher.
    pub fn id_of(&self, task: u32) -> TaskId {
        TaskId { job: JOB, index: self[task].index }
    }
}

impl Index<u32> for SimTasks {
    type Output = SimTask;

    fn index(&self, task: u32) -> &SimTask {
        self.tasks[(task - self.first) as usize].as_ref().expect("the task has not ended")
    }
}

impl IndexMut<u32> for SimTasks {
    fn index_mut(&mut self, task: u32) -> &mut SimTask {
        self.tasks[(task - self.first) as usize].as_mut().expect("the task has not ended")
    }
}
