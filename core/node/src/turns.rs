//! Whose turn it is: which ready task starts in a slot, which running one is suspended for it, and which suspended one
//! goes on.
//!
//! Higher priority goes first; of equals, what had to be staged (`data-intensive`) before what only computes, because
//! its data hold room meanwhile; then who was ready first. A ready task that lacks nothing but processors suspends
//! running ones of lower priority, the lowest and newest first. What is suspended goes on before anything of equal or
//! lower priority starts.
//!
//! Nobody starves: whoever was passed [`MAX_PASSED`] times is due, and goes before all others whatever their priority;
//! and nobody is suspended more than [`MAX_SUSPENSIONS`] times, nor once it was due.

use alloc::vec::Vec;
use core::cmp::Reverse;

use eyas_types::TaskId;

use crate::event::Effect;
use crate::node::{Node, State, Task};

/// A ready task that does not fit the free slots is overtaken by so many that do; then all wait for it. No more than so
/// many are passed at a time.
const MAX_OVERTAKEN: u32 = 8;
/// So many tasks that were ready later start before one that is ready, or before one that is suspended; then it is due.
pub(crate) const MAX_PASSED: u32 = 32;
/// A task is suspended no more than so often.
pub(crate) const MAX_SUSPENSIONS: u32 = 4;
/// So many tasks of a node are suspended at a time: each keeps its memory.
pub(crate) const MAX_SUSPENDED: usize = 64;

/// A running task's place among those that may be suspended: the first is the first to be.
pub(crate) type Standing = (i32, Reverse<u64>, TaskId);

impl Task {
    fn is_due(&self) -> bool {
        self.passed >= MAX_PASSED
    }

    /// Its place among ready tasks; the smallest is next.
    fn turn(&self) -> (bool, Reverse<i32>, bool, u64) {
        (!self.is_due(), Reverse(self.priority), !self.is_data_intensive, self.number)
    }

    /// Whether it goes on before a ready one starts.
    fn goes_on_before(&self, ready: &Task) -> bool {
        self.is_due() || (!ready.is_due() && self.priority >= ready.priority)
    }

    fn may_be_suspended(&self) -> bool {
        self.suspensions < MAX_SUSPENSIONS && !self.is_due()
    }

    pub(crate) fn standing(&self, task: TaskId) -> Standing {
        (self.priority, Reverse(self.number), task)
    }
}

impl Node {
    /// The task has all its inputs, and waits for a slot.
    pub(crate) fn enter_ready(&mut self, task: TaskId) {
        self.enter(task, State::Ready);
        self.numbered += 1;
        let entry = self.tasks.get_mut(&task).expect("the caller knows it");
        entry.number = self.numbered;
        self.line_up(task);
    }

    /// Puts a ready task in its place.
    fn line_up(&mut self, task: TaskId) {
        let turn = self.tasks[&task].turn();
        let is_last = self.ready.back().is_none_or(|last| self.tasks[last].turn() < turn);
        let place = if is_last {
            self.ready.len()
        } else {
            self.ready.partition_point(|other| self.tasks[other].turn() < turn)
        };
        self.ready.insert(place, task);
        self.tasks.get_mut(&task).expect("the caller knows it").jumped = !is_last;
    }

    pub(crate) fn start_ready(&mut self, effects: &mut Vec<Effect>) {
        let mut place = 0;
        while let Some(task) = self.ready.get(place).copied() {
            if !self.resume_before(task, effects) {
                break;
            }
            if self.start(task, effects) {
                self.ready.remove(place);
                for earlier in self.ready.iter().take(place) {
                    self.tasks.get_mut(earlier).expect("ready tasks are known").overtaken += 1;
                }
                self.pass(task);
            } else if self.tasks[&task].overtaken >= MAX_OVERTAKEN || place as u32 >= MAX_OVERTAKEN {
                break;
            } else {
                place += 1;
            }
        }
        // What those before it lack, they do not get from keeping it waiting.
        for task in self.suspended_in_order() {
            self.resume(task, effects);
        }
    }

    /// Starts a ready task if it has room, or makes it by suspending others.
    fn start(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        let Some(slot) = self.slots.take(&self.tasks[&task].need).or_else(|| {
            self.suspend_for(task, effects);
            self.slots.take(&self.tasks[&task].need)
        }) else {
            return false;
        };
        self.enter(task, State::Running { slot });
        let entry = &self.tasks[&task];
        self.running.insert(entry.standing(task));
        effects.push(Effect::Start { task, slot, reads: entry.reads() });
        true
    }

    /// A task starts: who was ready before it, or is suspended, was passed.
    fn pass(&mut self, started: TaskId) {
        let Task { number, jumped, .. } = self.tasks[&started];
        let suspended = self.suspended.iter().copied();
        // Only who was put before others can have passed one that is ready.
        let ready: &[&[TaskId]] = if jumped { &[self.ready.as_slices().0, self.ready.as_slices().1] } else { &[] };
        let passed: Vec<_> = suspended.chain(ready.iter().flat_map(|part| part.iter().copied())).collect();
        let mut due = Vec::new();
        for task in passed {
            let entry = self.tasks.get_mut(&task).expect("those that wait are known");
            if entry.state != State::Ready || entry.number < number {
                entry.passed += 1;
                if entry.passed == MAX_PASSED && entry.state == State::Ready {
                    due.push(task);
                }
            }
        }
        for task in due {
            self.ready.retain(|other| *other != task);
            self.line_up(task);
        }
    }

    // ---- suspending

    /// Suspends running tasks of lower priority, if that makes room for a ready one.
    fn suspend_for(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        let entry = &self.tasks[&task];
        let priority = entry.priority;
        if self.running.first().is_none_or(|(lowest, ..)| *lowest >= priority) {
            return;
        }
        let Some(lacks_milli) = self.slots.lacks_cpus_milli(&entry.need) else { return };
        let has_milli = |standing: &Standing| self.tasks[&standing.2].need.cpus_milli;
        let (mut victims, mut freed_milli) = (Vec::new(), 0);
        let lower = self.running.iter().take_while(|(other, ..)| *other < priority);
        for standing in lower.filter(|(.., other)| self.tasks[other].may_be_suspended()) {
            freed_milli += has_milli(standing);
            victims.push(*standing);
            if freed_milli >= lacks_milli {
                break;
            }
        }
        // Who alone was too small may not be needed beside a larger one.
        victims.retain(|standing| {
            let is_needed = freed_milli - has_milli(standing) < lacks_milli;
            freed_milli -= if is_needed { 0 } else { has_milli(standing) };
            is_needed
        });
        if freed_milli < lacks_milli || self.suspended.len() + victims.len() > MAX_SUSPENDED {
            return;
        }
        for standing in victims {
            self.suspend(standing, effects);
        }
    }

    fn suspend(&mut self, standing: Standing, effects: &mut Vec<Effect>) {
        let task = standing.2;
        let entry = self.tasks.get_mut(&task).expect("running tasks are known");
        let State::Running { slot } = entry.state else { panic!("task {task} is suspended but is {:?}", entry.state) };
        (entry.suspensions, entry.passed) = (entry.suspensions + 1, 0);
        self.slots.lend_cpus(&entry.need);
        self.running.remove(&standing);
        self.suspended.push(task);
        self.enter(task, State::Suspended { slot });
        effects.push(Effect::Suspend { task });
    }

    /// Lets suspended tasks go on that go before a ready one; false if one of them lacks processors, for which the ready
    /// one must wait.
    fn resume_before(&mut self, ready: TaskId, effects: &mut Vec<Effect>) -> bool {
        for task in self.suspended_in_order() {
            if !self.tasks[&task].goes_on_before(&self.tasks[&ready]) {
                break;
            }
            if !self.resume(task, effects) {
                return false;
            }
        }
        true
    }

    /// Those that go on first come first.
    fn suspended_in_order(&self) -> Vec<TaskId> {
        let mut suspended = self.suspended.clone();
        suspended.sort_by_key(|task| (!self.tasks[task].is_due(), Reverse(self.tasks[task].priority)));
        suspended
    }

    fn resume(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        let entry = &self.tasks[&task];
        let State::Suspended { slot } = entry.state else { panic!("task {task} goes on but is {:?}", entry.state) };
        if !self.slots.reclaim_cpus(&entry.need) {
            return false;
        }
        self.running.insert(entry.standing(task));
        self.suspended.retain(|other| *other != task);
        self.enter(task, State::Running { slot });
        effects.push(Effect::Resume { task });
        true
    }

    /// A task that had been started is over: what it held is free.
    pub(crate) fn leave_slot(&mut self, task: TaskId, entry: &Task) {
        match entry.state {
            State::Running { slot } => {
                self.running.remove(&entry.standing(task));
                self.slots.give_back(slot, &entry.need);
            }
            State::Suspended { slot } => {
                self.suspended.retain(|other| *other != task);
                self.slots.give_back_suspended(slot, &entry.need);
            }
            state => panic!("task {task} ended but is {state:?}"),
        }
    }

    #[cfg(test)]
    pub(crate) fn validate_turns(&self) {
        let turns: Vec<_> = self.ready.iter().map(|task| self.tasks[task].turn()).collect();
        assert!(turns.is_sorted(), "who is ready stands in order");
        let of = |is: fn(&State) -> bool| self.tasks.values().filter(|entry| is(&entry.state)).count();
        assert_eq!(self.running.len(), of(|state| matches!(state, State::Running { .. })));
        assert_eq!(self.suspended.len(), of(|state| matches!(state, State::Suspended { .. })));
        assert!(self.suspended.len() <= MAX_SUSPENDED);
        assert!(self.tasks.values().all(|entry| entry.suspensions <= MAX_SUSPENSIONS));
        for task in &self.suspended {
            let lacks = self.tasks[task].need.cpus_milli > self.slots.free().cpus_milli;
            assert!(lacks, "{task} stays suspended though it could go on");
        }
    }
}
