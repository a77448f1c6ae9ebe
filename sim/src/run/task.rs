//! Tasks that have come and have not ended.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use eyas_sched::Hint;
use eyas_types::{Reads, TaskId};

use super::job::{JOB, Outputs};
use super::object::Owner;
use crate::arrival::{Arrival, Objects};
use crate::clock::{MICROSECOND, Ns};
use crate::flows::FlowId;

pub(super) struct Task {
    /// Its index in the job of its dispatcher.
    index: u32,
    /// The objects it reads, each once, in the order of their ids.
    pub inputs: Objects,
    pub outputs: Objects,
    pub compute_us: u64,
    pub arrived: Ns,
    /// Executors that may give its inputs, while it is assigned.
    pub hints: Box<[Hint]>,
    /// How often it was assigned before, while it is assigned.
    pub attempt: u32,
    /// When it was assigned.
    pub assigned: Ns,
    /// Where it was assigned to.
    pub executor: u32,
    pub started: Ns,
    /// Whether it has started there, and not ended.
    pub is_running: bool,
    /// Where its inputs came from, this time.
    pub reads: Reads,
    /// The bytes that it reads or writes now.
    pub flow: Option<FlowId>,
    pub step: TaskStep,
    /// How long it computes, reading what is in memory included.
    pub computes_ns: Ns,
    /// How long it ran.
    pub ran_ns: Ns,
    /// Its end was counted.
    pub is_done: bool,
}

/// What a running task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskStep {
    /// Reads inputs, then computes.
    Computing,
    /// Writes outputs to persistent storage.
    Delivering,
    /// Writes outputs that are kept to the disk of its node.
    Keeping,
}

impl Task {
    pub fn new(arrival: Arrival, index: u32, all_outputs: &Outputs) -> Self {
        let Arrival { at_us, mut inputs, compute_us, outputs } = arrival;
        let arrived = at_us * MICROSECOND;
        inputs.sort_by_key(|object| all_outputs.id_of(*object, Owner::All));
        inputs.dedup();
        Task {
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

/// By their numbers, which count up; the oldest that has not ended is first.
pub(super) struct Tasks {
    tasks: VecDeque<Option<Task>>,
    first: u32,
    /// Tasks may run again after they have ended: all of them stay.
    may_run_again: bool,
}

impl Tasks {
    pub fn new(may_run_again: bool) -> Self {
        Tasks { tasks: VecDeque::new(), first: 0, may_run_again }
    }

    /// Its number.
    pub fn add(&mut self, task: Task) -> u32 {
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

    /// The task, if it runs on that executor in that try.
    pub fn running(&mut self, task: u32, executor: u32, attempt: u32) -> Option<&mut Task> {
        let place = task.checked_sub(self.first)?;
        let task = self.tasks.get_mut(place as usize)?.as_mut()?;
        (task.is_running && task.executor == executor && task.attempt == attempt).then_some(task)
    }

    /// Its name in the job of its dispatcher.
    pub fn id_of(&self, task: u32) -> TaskId {
        TaskId { job: JOB, index: self[task].index }
    }
}

impl Index<u32> for Tasks {
    type Output = Task;

    fn index(&self, task: u32) -> &Task {
        self.tasks[(task - self.first) as usize].as_ref().expect("the task has not ended")
    }
}

impl IndexMut<u32> for Tasks {
    fn index_mut(&mut self, task: u32) -> &mut Task {
        self.tasks[(task - self.first) as usize].as_mut().expect("the task has not ended")
    }
}
