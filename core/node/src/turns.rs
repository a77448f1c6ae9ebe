//! The order in which tasks start: which ready task starts in a slot, which running task is
//! suspended for it, and which suspended task resumes.
//!
//! Ready tasks start by falling priority. Of equal priority, data-intensive tasks start first,
//! because their inputs use room in the store; then the task that became ready first. A ready task
//! that lacks only processors suspends running tasks of lower priority: the lowest priority first,
//! then the newest. A suspended task resumes before a ready task of equal or lower priority starts.
//!
//! A task that waits for others lends its processors: it is suspended, but its processes run, and
//! it resumes when it has asked for them. Otherwise tasks that wait for tasks of their own would
//! hold all processors.
//!
//! No task starves. A task that was passed [`MAX_PASSED`] times is *due*, and starts before all
//! others, whatever their priority. A task is suspended up to [`MAX_SUSPENSIONS`] times, and not
//! while it is due.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use eyas_types::{Resources, TaskId};

use crate::cores::Core;
use crate::event::Effect;
use crate::slots::Slots;
use crate::tasks::{NodeTask, NodeTasks, State};

/// Number of tasks that may overtake a ready task that does not fit into the free resources. Then
/// all tasks wait for it. Also the number of ready tasks that one task may overtake at a time.
const MAX_OVERTAKEN: u32 = 8;
/// A ready or suspended task is due after this number of tasks that became ready later have started
/// before it.
pub(crate) const MAX_PASSED: u32 = 32;
/// Maximum number of suspensions of one task.
pub(crate) const MAX_SUSPENSIONS: u32 = 4;
/// Maximum number of suspended tasks of a node. Each of them keeps its memory.
pub(crate) const MAX_SUSPENDED: usize = 64;

/// Key of a running task. In this order tasks are suspended, the smallest key first.
pub(crate) type SuspensionKey = (i32, Reverse<u64>, TaskId);

impl NodeTask {
    fn is_due(&self) -> bool {
        self.passed >= MAX_PASSED
    }

    /// Key of a ready task. The task with the smallest key starts next. A task of priority 0 that
    /// was passed 32 times starts first, then one of priority 9, then a data-intensive one of
    /// priority 5, then another of priority 5.
    fn turn(&self) -> (bool, Reverse<i32>, bool, u64) {
        (!self.is_due(), Reverse(self.priority), !self.is_data_intensive, self.number)
    }

    /// Whether this suspended task resumes before a ready task starts. A task of priority 5 resumes
    /// before ready tasks of the priorities 5 and 4, but not before one of priority 6.
    fn resumes_before(&self, ready: &NodeTask) -> bool {
        self.is_due() || (!ready.is_due() && self.priority >= ready.priority)
    }

    fn may_be_suspended(&self) -> bool {
        self.suspensions < MAX_SUSPENSIONS && !self.is_due()
    }

    pub(crate) fn suspension_key(&self, task: TaskId) -> SuspensionKey {
        (self.priority, Reverse(self.number), task)
    }
}

/// The slots, and the tasks that wait for one or have one.
pub(crate) struct TaskTurns {
    slots: Slots,
    /// Tasks in `Ready`, in the order in which they start.
    ready: VecDeque<TaskId>,
    running: BTreeSet<SuspensionKey>,
    /// Tasks in `Suspended`, in the order in which they were suspended.
    suspended: Vec<TaskId>,
    /// Number of tasks that became ready so far.
    numbered: u64,
}

impl TaskTurns {
    pub fn new(capacity: Resources) -> Self {
        TaskTurns {
            slots: Slots::new(capacity),
            ready: VecDeque::new(),
            running: BTreeSet::new(),
            suspended: Vec::new(),
            numbered: 0,
        }
    }

    /// Pins tasks to these cores. No task has started yet.
    pub fn pin_to(&mut self, cores: Vec<Core>) {
        self.slots.pin_to(cores);
    }

    /// Resources that no task has.
    pub fn free(&self) -> &Resources {
        self.slots.free()
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    pub fn suspended(&self) -> usize {
        self.suspended.len()
    }

    /// Tasks that were ready no longer are.
    pub fn forget_ready(&mut self, tasks: &[TaskId]) {
        self.ready.retain(|other| !tasks.contains(other));
    }

    /// Moves a task with all inputs in the store to `Ready`.
    pub fn enter_ready(&mut self, tasks: &mut NodeTasks, task: TaskId) {
        tasks.enter(task, State::Ready);
        self.numbered += 1;
        tasks.known(task).number = self.numbered;
        self.insert_ready(tasks, task);
    }

    /// Inserts a task into the order of ready tasks.
    fn insert_ready(&mut self, tasks: &mut NodeTasks, task: TaskId) {
        let turn = tasks[task].turn();
        let is_last = self.ready.back().is_none_or(|last| tasks[*last].turn() < turn);
        let index = if is_last {
            self.ready.len()
        } else {
            self.ready.partition_point(|other| tasks[*other].turn() < turn)
        };
        self.ready.insert(index, task);
        tasks.known(task).jumped = !is_last;
    }

    pub fn start_ready(&mut self, tasks: &mut NodeTasks, effects: &mut Vec<Effect>) {
        let mut index = 0;
        while let Some(task) = self.ready.get(index).copied() {
            if !self.resume_before(tasks, task, effects) {
                break;
            }
            if self.start(tasks, task, effects) {
                self.ready.remove(index);
                for earlier in self.ready.iter().take(index) {
                    tasks.known(*earlier).overtaken += 1;
                }
                self.pass(tasks, task);
            } else if tasks[task].overtaken >= MAX_OVERTAKEN || index as u32 >= MAX_OVERTAKEN {
                break;
            } else {
                index += 1;
            }
        }
        // A suspended task that fits resumes, even if one before it lacks processors: waiting would
        // not free any.
        for task in self.suspended_in_order(tasks) {
            self.resume(tasks, task, effects);
        }
    }

    /// Starts a ready task, if its resources are free or become free by suspending other tasks.
    fn start(&mut self, tasks: &mut NodeTasks, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        let Some(slot) = self.slots.take(&tasks[task].need).or_else(|| {
            self.suspend_for(tasks, task, effects);
            self.slots.take(&tasks[task].need)
        }) else {
            return false;
        };
        tasks.enter(task, State::Running);
        let entry = tasks.known(task);
        let reads = entry.reads();
        let (number, gpus) = (slot.number, slot.gpus.clone());
        let cores = slot.cores.iter().map(|share| share.number).collect();
        entry.slot = slot;
        let key = entry.suspension_key(task);
        self.running.insert(key);
        effects.push(Effect::Start { task, slot: number, reads, gpus, cores });
        true
    }

    /// Counts a started task for the tasks that it has passed: suspended tasks, and tasks that
    /// became ready before it.
    fn pass(&mut self, tasks: &mut NodeTasks, started: TaskId) {
        let NodeTask { number, jumped, .. } = tasks[started];
        let suspended = self.suspended.iter().copied().filter(|task| !tasks[*task].lends);
        // Only a task that was put before other ready tasks can have passed one of them.
        let ready: &[&[TaskId]] =
            if jumped { &[self.ready.as_slices().0, self.ready.as_slices().1] } else { &[] };
        let passed: Vec<_> =
            suspended.chain(ready.iter().flat_map(|part| part.iter().copied())).collect();
        let mut due = Vec::new();
        for task in passed {
            let entry = tasks.known(task);
            if entry.state() != State::Ready || entry.number < number {
                entry.passed += 1;
                if entry.passed == MAX_PASSED && entry.state() == State::Ready {
                    due.push(task);
                }
            }
        }
        for task in due {
            self.ready.retain(|other| *other != task);
            self.insert_ready(tasks, task);
        }
    }

    // ---- suspending

    /// Suspends running tasks of lower priority, if that frees enough processors for a ready task.
    /// If 1 processor is free, a task of priority 9 that needs 4 suspends tasks of the priorities 0
    /// and 1 that have 1 and 3: both were chosen, but the second is enough, so the first runs on.
    fn suspend_for(&mut self, tasks: &mut NodeTasks, task: TaskId, effects: &mut Vec<Effect>) {
        let entry = &tasks[task];
        let priority = entry.priority;
        if self.running.first().is_none_or(|(lowest, ..)| *lowest >= priority) {
            return;
        }
        let Some(lacks_milli) = self.slots.lacks_cpus_milli(&entry.need) else { return };
        let has_milli = |key: &SuspensionKey| tasks[key.2].need.cpus_milli;
        let (mut victims, mut freed_milli) = (Vec::new(), 0);
        let lower = self.running.iter().take_while(|(other, ..)| *other < priority);
        for key in lower.filter(|(.., other)| tasks[*other].may_be_suspended()) {
            freed_milli += has_milli(key);
            victims.push(*key);
            if freed_milli >= lacks_milli {
                break;
            }
        }
        // A small task that was chosen first may not be needed beside a larger one that was chosen
        // later.
        victims.retain(|key| {
            let is_needed = freed_milli - has_milli(key) < lacks_milli;
            freed_milli -= if is_needed { 0 } else { has_milli(key) };
            is_needed
        });
        if freed_milli < lacks_milli || self.suspended.len() + victims.len() > MAX_SUSPENDED {
            return;
        }
        for key in victims {
            self.suspend(tasks, key, effects);
        }
    }

    fn suspend(&mut self, tasks: &mut NodeTasks, key: SuspensionKey, effects: &mut Vec<Effect>) {
        let task = key.2;
        let entry = tasks.known(task);
        (entry.suspensions, entry.passed) = (entry.suspensions + 1, 0);
        self.leave_processors(tasks, key);
        effects.push(Effect::Suspend { task });
    }

    fn leave_processors(&mut self, tasks: &mut NodeTasks, key: SuspensionKey) {
        let task = key.2;
        let entry = &tasks[task];
        assert!(
            entry.state() == State::Running,
            "task {task} is to be suspended, but its state is {:?}",
            entry.state()
        );
        self.slots.lend_cpus(&entry.slot, &entry.need);
        self.running.remove(&key);
        self.suspended.push(task);
        tasks.enter(task, State::Suspended);
    }

    /// Gives the processors of a started task to others, until it reclaims them. It keeps them if
    /// too many tasks are suspended.
    pub fn lend(&mut self, tasks: &mut NodeTasks, task: TaskId, effects: &mut Vec<Effect>) {
        match tasks.state(task) {
            Some(State::Running) if self.suspended.len() < MAX_SUSPENDED => {
                self.leave_processors(tasks, tasks[task].suspension_key(task));
            }
            Some(State::Suspended) => {}
            _ => return,
        }
        tasks.known(task).lends = true;
        effects.push(Effect::Lend { task });
    }

    /// Gives a task its processors again when they are free.
    pub fn reclaim(&mut self, tasks: &mut NodeTasks, task: TaskId, effects: &mut Vec<Effect>) {
        match tasks.state(task) {
            Some(State::Suspended) => {
                let entry = tasks.known(task);
                (entry.lends, entry.reclaims) = (false, true);
            }
            Some(State::Running) => effects.push(Effect::Granted { task }),
            _ => {}
        }
    }

    /// Processors that tasks have lent, in thousandths: 1500 if a task with 1 processor and one
    /// with a half wait.
    pub fn lent_milli(&self, tasks: &NodeTasks) -> u64 {
        let lending = self.suspended.iter().map(|task| &tasks[*task]).filter(|entry| entry.lends);
        lending.map(|entry| u64::from(entry.need.cpus_milli)).sum()
    }

    /// Resumes the suspended tasks that resume before a ready task starts. Returns false if one of
    /// them lacks processors: the ready task must wait.
    fn resume_before(
        &mut self,
        tasks: &mut NodeTasks,
        ready: TaskId,
        effects: &mut Vec<Effect>,
    ) -> bool {
        for task in self.suspended_in_order(tasks) {
            if !tasks[task].resumes_before(&tasks[ready]) {
                break;
            }
            if !self.resume(tasks, task, effects) {
                return false;
            }
        }
        true
    }

    /// Suspended tasks in the order in which they resume.
    fn suspended_in_order(&self, tasks: &NodeTasks) -> Vec<TaskId> {
        let mut suspended = self.suspended.clone();
        suspended.retain(|task| !tasks[*task].lends);
        suspended.sort_by_key(|task| (!tasks[*task].is_due(), Reverse(tasks[*task].priority)));
        suspended
    }

    fn resume(&mut self, tasks: &mut NodeTasks, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        let entry = &tasks[task];
        assert!(
            entry.state() == State::Suspended,
            "task {task} is to be resumed, but its state is {:?}",
            entry.state()
        );
        if !self.slots.reclaim_cpus(&entry.slot, &entry.need) {
            return false;
        }
        self.running.insert(entry.suspension_key(task));
        self.suspended.retain(|other| *other != task);
        tasks.enter(task, State::Running);
        effects.push(Effect::Resume { task });
        if core::mem::take(&mut tasks.known(task).reclaims) {
            effects.push(Effect::Granted { task });
        }
        true
    }

    /// Frees the slot and the resources of a task that has ended.
    pub fn leave_slot(&mut self, task: TaskId, entry: &NodeTask) {
        match entry.state() {
            State::Running => {
                self.running.remove(&entry.suspension_key(task));
                self.slots.release(&entry.slot, &entry.need);
            }
            State::Suspended => {
                self.suspended.retain(|other| *other != task);
                self.slots.release_suspended(&entry.slot, &entry.need);
            }
            state => panic!("task {task} has ended, but its state is {state:?}"),
        }
    }

    #[cfg(test)]
    pub fn validate(&self, tasks: &NodeTasks) {
        let turns: Vec<_> = self.ready.iter().map(|task| tasks[*task].turn()).collect();
        assert!(turns.is_sorted(), "ready tasks are in order");
        let of = |is: fn(&State) -> bool| tasks.values().filter(|entry| is(&entry.state())).count();
        assert_eq!(self.running.len(), of(|state| matches!(state, State::Running)));
        assert_eq!(self.suspended.len(), of(|state| matches!(state, State::Suspended)));
        assert!(self.suspended.len() <= MAX_SUSPENDED);
        assert!(tasks.values().all(|entry| entry.suspensions <= MAX_SUSPENSIONS));
        for task in self.suspended.iter().filter(|task| !tasks[**task].lends) {
            let lacks = tasks[*task].need.cpus_milli > self.slots.free().cpus_milli;
            assert!(lacks, "{task} stays suspended, but its processors are free");
        }
    }
}
