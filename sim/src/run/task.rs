//! Tasks that have come and have not ended.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use eyas_sched::Hint;

use crate::arrival::{Arrival, Inputs};
use crate::clock::{MICROSECOND, Ns};
use crate::flows::FlowId;

pub(super) struct Task {
    /// The objects it reads, in the order of their names.
    pub inputs: Inputs,
    pub compute_us: u64,
    pub arrived: Ns,
    /// Who may give its inputs, while it is assigned.
    pub hints: Box<[Hint]>,
    /// When it was assigned.
    pub assigned: Ns,
    /// Where it was assigned to.
    pub executor: u32,
    pub started: Ns,
    /// Whether it has started there, and not ended.
    pub is_running: bool,
    /// What it reads from disk.
    pub reading: Option<FlowId>,
    /// How long it computes, reading what is in memory included.
    pub computes_ns: Ns,
    /// How long it ran.
    pub ran_ns: Ns,
}

impl Task {
    pub fn new(arrival: Arrival) -> Self {
        let Arrival { at_us, mut inputs, compute_us } = arrival;
        let arrived = at_us * MICROSECOND;
        inputs.sort_by_key(|object| super::id_of(*object, super::Owner::All));
        Task {
            inputs,
            compute_us,
            arrived,
            hints: Box::default(),
            assigned: 0,
            executor: 0,
            started: 0,
            is_running: false,
            reading: None,
            computes_ns: 0,
            ran_ns: 0,
        }
    }
}

/// By their numbers, which count up; the oldest that has not ended is first.
#[derive(Default)]
pub(super) struct Tasks {
    tasks: VecDeque<Option<Task>>,
    first: u32,
}

impl Tasks {
    /// Its number.
    pub fn add(&mut self, task: Task) -> u32 {
        self.tasks.push_back(Some(task));
        self.first + self.tasks.len() as u32 - 1
    }

    pub fn remove(&mut self, task: u32) {
        self.tasks[(task - self.first) as usize] = None;
        while self.tasks.front().is_some_and(Option::is_none) {
            self.tasks.pop_front();
            self.first += 1;
        }
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
