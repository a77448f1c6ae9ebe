//! The wait queue and what is known of each task (the paper's `Q`).
//!
//! Tasks of one class (the same [`Need`]) queue together. So an executor that is too small for a
//! class, or does not match it, never reads the tasks of that class, and classes of higher priority
//! come first. Entries of tasks that left the queue out of turn are skipped when met.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use eyas_types::{JobId, Need, Resources, TaskId};

use super::keys::{ClassKey, ExecutorKey, PlacementLevel, TaskKey, Ticket};
use super::task_inputs::TaskInputs;

/// A turn that no ticket has.
const NO_TURN: u32 = u32::MAX;

pub(crate) struct Task {
    pub id: TaskId,
    pub inputs: TaskInputs,
    pub class: ClassKey,
    pub state: PlacementState,
    /// The number of assignments so far.
    pub attempt: u32,
    /// Some executor could not take the task: see [`TaskQueue::has_refused`].
    pub was_refused: bool,
    /// The ticket of this wait is on the list of tasks without a holder.
    is_listed_holderless: bool,
    /// The task was put at the front, where it overtakes others.
    was_put_first: bool,
    /// The number of times that the task was recalled and returned.
    pub returns: u8,
}

// There is one for each task that waits.
const _: () = assert!(size_of::<Task>() == 56);

/// Legal moves: `InTransition → Waiting → InTransition → Assigned → InTransition`. From
/// `InTransition` a task may also be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacementState {
    Waiting,
    Assigned {
        executor: ExecutorKey,
        /// The number of the assignment, which names it in the executor's list.
        number: u64,
        /// The executor was asked to give the task back.
        recalled: bool,
    },
    /// Between two of the above, inside one event.
    InTransition,
    /// The index in the table is free.
    Forgotten,
}

#[derive(Default)]
pub(crate) struct TaskQueue {
    tasks: Vec<Task>,
    /// The turn of each task that waits, by the index of the task, else [`NO_TURN`]. Apart from
    /// the table, because far more list entries are checked than tasks are read.
    turns: Vec<u32>,
    free: Vec<TaskKey>,
    jobs: BTreeMap<JobId, Vec<Option<TaskKey>>>,
    classes: Vec<ClassQueue>,
    by_need: BTreeMap<Need, ClassKey>,
    free_classes: Vec<ClassKey>,
    only_class: Option<ClassKey>,
    has_priorities: bool,
    /// The number of constrained classes.
    constrained: u32,
    /// The largest sum of input bytes and disk bytes of a task.
    most_bytes: u64,
    /// A class that was added and has not been matched with the executors yet.
    new_class: Option<ClassKey>,
    job_names: BTreeMap<JobId, Box<str>>,
    next_turn: u32,
    waiting: u64,
    /// The number of tasks that have left the queue so far.
    taken: u64,
    /// Executors that refused a task, for the few tasks that were refused.
    refusals: BTreeMap<TaskKey, Vec<ExecutorKey>>,
    /// Of these, executors that tried the task and failed, so that others try first.
    failures: BTreeMap<TaskKey, Vec<ExecutorKey>>,
}

/// What tasks of a class need.
pub(crate) struct ClassNeed {
    pub class: ClassKey,
    pub need: Need,
    /// The terms have a rank, or mention attributes of one task or of the moment.
    pub is_constrained: bool,
    /// The largest sum of input bytes and disk bytes of a task of the class.
    pub most_bytes: u64,
}

struct ClassQueue {
    need: ClassNeed,
    /// Oldest first.
    tickets: VecDeque<Ticket>,
    /// The number of known tasks of the class. When it falls to 0, the key is free for another
    /// class.
    known: u64,
    waiting: u64,
    /// The value of [`TaskQueue::taken`] when a task of this class last had its turn.
    turn_at: u64,
    /// The executor that takes nothing until it has room for the oldest task.
    reserved_executor: Option<ExecutorKey>,
    /// Executors that were parked at each level before this parking number are known to have no
    /// room.
    no_room_before: [u64; 2],
    /// The number of tickets, from the first on, that are known to be of tasks that read too much
    /// for backfilling.
    heavy: usize,
}

impl TaskQueue {
    /// Adds a task in transition; it waits once it is [`push`](Self::push)ed.
    pub(super) fn insert(
        &mut self,
        id: TaskId,
        inputs: TaskInputs,
        input_bytes: u64,
        need: &Need,
    ) -> TaskKey {
        let class = self.class_of(need, input_bytes.saturating_add(need.resources.disk_bytes));
        let task = Task {
            id,
            inputs,
            class,
            state: PlacementState::InTransition,
            attempt: 0,
            was_refused: false,
            returns: 0,
            is_listed_holderless: false,
            was_put_first: false,
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.tasks[key.index()] = task;
                key
            }
            None => {
                self.tasks.push(task);
                self.turns.push(NO_TURN);
                TaskKey::at(self.tasks.len() - 1)
            }
        };
        let tasks = self.jobs.entry(id.job).or_default();
        let index = id.index as usize;
        if tasks.len() <= index {
            tasks.resize(index + 1, None);
        }
        assert!(tasks[index].is_none(), "task {id} submitted twice");
        tasks[index] = Some(key);
        key
    }

    fn class_of(&mut self, need: &Need, bytes: u64) -> ClassKey {
        let class = self.class(need).unwrap_or_else(|| self.new_class(need));
        let queue = &mut self.classes[class.index()];
        queue.known += 1;
        queue.need.most_bytes = queue.need.most_bytes.max(bytes);
        self.most_bytes = self.most_bytes.max(bytes);
        class
    }

    fn new_class(&mut self, need: &Need) -> ClassKey {
        let class = self.free_classes.pop().unwrap_or(ClassKey::at(self.classes.len()));
        let is_constrained = need.terms.as_ref().is_some_and(|terms| {
            terms.rank.is_some() || terms.requirements.iter().any(|part| !part.is_fixed())
        });
        let queue = ClassQueue {
            need: ClassNeed { class, need: need.clone(), is_constrained, most_bytes: 0 },
            tickets: VecDeque::new(),
            known: 0,
            waiting: 0,
            turn_at: 0,
            reserved_executor: None,
            no_room_before: [0; 2],
            heavy: 0,
        };
        match self.classes.get_mut(class.index()) {
            Some(free) => *free = queue,
            None => self.classes.push(queue),
        }
        self.constrained += u32::from(is_constrained);
        self.new_class = Some(class);
        self.by_need.insert(need.clone(), class);
        self.count_classes();
        class
    }

    /// A task of the class is forgotten.
    fn leave_class(&mut self, class: ClassKey) {
        let queue = &mut self.classes[class.index()];
        queue.known -= 1;
        if queue.known == 0 {
            queue.tickets = VecDeque::new();
            self.by_need.remove(&queue.need.need);
            self.constrained -= u32::from(queue.need.is_constrained);
            if self.by_need.is_empty() {
                self.most_bytes = 0;
            }
            self.free_classes.push(class);
            self.count_classes();
        }
    }

    fn count_classes(&mut self) {
        let (first, last) = (self.by_need.first_key_value(), self.by_need.last_key_value());
        self.only_class = first.map(|(_, class)| *class).filter(|_| self.by_need.len() == 1);
        self.has_priorities =
            first.map(|(lowest, _)| lowest.priority) != last.map(|(highest, _)| highest.priority);
    }

    pub fn find(&self, id: TaskId) -> Option<TaskKey> {
        *self.jobs.get(&id.job)?.get(id.index as usize)?
    }

    /// Whether the ticket's wait is still on.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.turns[ticket.task.index()] == ticket.turn
    }

    /// The ticket of a task that waits.
    pub fn ticket(&self, task: TaskKey) -> Ticket {
        Ticket { task, turn: self.turns[task.index()] }
    }

    /// Puts a task in transition at the back, or at the front if it waited before.
    pub(super) fn push(&mut self, key: TaskKey, front: bool) -> Ticket {
        let turn = self.next_turn;
        self.next_turn = (turn + 1) % NO_TURN;
        let task = &mut self.tasks[key.index()];
        assert_eq!(task.state, PlacementState::InTransition, "task {} queued twice", task.id);
        task.state = PlacementState::Waiting;
        task.was_put_first = front;
        self.turns[key.index()] = turn;
        let ticket = Ticket { task: key, turn };
        let queue = &mut self.classes[task.class.index()];
        if queue.waiting == 0 {
            queue.turn_at = self.taken;
        }
        if front {
            queue.tickets.push_front(ticket);
            queue.heavy = 0;
        } else {
            queue.tickets.push_back(ticket);
        }
        queue.waiting += 1;
        self.waiting += 1;
        ticket
    }

    /// Takes a waiting task out of the queue. Returns the executor that was reserved for it, if
    /// any.
    pub(super) fn take(&mut self, key: TaskKey) -> Option<ExecutorKey> {
        let ticket = self.ticket(key);
        self.turns[key.index()] = NO_TURN;
        let task = &mut self.tasks[key.index()];
        assert_eq!(task.state, PlacementState::Waiting, "task {} is not in the queue", task.id);
        task.state = PlacementState::InTransition;
        task.is_listed_holderless = false;
        self.waiting -= 1;
        self.taken += 1;
        let queue = &mut self.classes[task.class.index()];
        queue.waiting -= 1;
        let mut reserved = None;
        if queue.tickets.front() == Some(&ticket) {
            reserved = queue.reserved_executor.take();
            if !task.was_put_first {
                queue.turn_at = self.taken;
            }
        }
        let turns = &self.turns;
        let is_waiting = |ticket: &Ticket| turns[ticket.task.index()] == ticket.turn;
        while queue.tickets.pop_front_if(|first| !is_waiting(first)).is_some() {
            queue.heavy = queue.heavy.saturating_sub(1);
        }
        // For example 10 waiting tasks allow 84 entries.
        if queue.tickets.len() as u64 > 2 * queue.waiting + 64 {
            queue.heavy =
                queue.tickets.iter().take(queue.heavy).filter(|ticket| is_waiting(ticket)).count();
            queue.tickets.retain(is_waiting);
        }
        reserved
    }

    /// Forgets a task in transition.
    pub(super) fn remove(&mut self, key: TaskKey) -> Task {
        let gone = Task {
            id: self[key].id,
            inputs: TaskInputs::NONE,
            class: self[key].class,
            state: PlacementState::Forgotten,
            attempt: 0,
            was_refused: false,
            returns: 0,
            is_listed_holderless: false,
            was_put_first: false,
        };
        let task = core::mem::replace(&mut self.tasks[key.index()], gone);
        assert_eq!(
            task.state,
            PlacementState::InTransition,
            "task {} forgotten while {:?}",
            task.id,
            task.state
        );
        self.refusals.remove(&key);
        self.failures.remove(&key);
        self.free.push(key);
        self.leave_class(task.class);
        if let Some(tasks) = self.jobs.get_mut(&task.id.job) {
            tasks[task.id.index as usize] = None;
        }
        task
    }

    /// Forgets a job all of whose tasks are forgotten.
    pub(super) fn remove_job(&mut self, job: JobId) {
        self.job_names.remove(&job);
        if let Some(tasks) = self.jobs.remove(&job) {
            assert!(tasks.iter().all(Option::is_none), "job {job} forgotten before its tasks");
        }
    }

    /// Classes with waiting tasks, the highest priority first; of one priority, the class with the
    /// oldest task first.
    pub fn waiting_classes(&self) -> impl Iterator<Item = ClassKey> + use<> {
        let queue = |class: ClassKey| &self.classes[class.index()];
        let oldest = |class: ClassKey| {
            let first = queue(class).tickets.front()?;
            let age = self.next_turn.wrapping_sub(first.turn);
            // A task that is put at the front goes before tasks that were put there earlier.
            let order = if self[first.task].was_put_first { (0, age) } else { (1, !age) };
            Some(((Reverse(self.priority(class)), order), class))
        };
        let only = self.only_class.filter(|class| !queue(*class).tickets.is_empty());
        let count = if self.only_class.is_some() { 0 } else { self.classes.len() };
        let mut classes: Vec<_> = (0..count).map(ClassKey::at).filter_map(oldest).collect();
        classes.sort_unstable_by_key(|(order, _)| *order);
        only.into_iter().chain(classes.into_iter().map(|(_, class)| class))
    }

    /// Waiting tasks of a class, oldest first.
    pub fn waiting_in(&self, class: ClassKey) -> impl Iterator<Item = TaskKey> {
        let tickets = self.classes[class.index()].tickets.iter();
        tickets.filter(|ticket| self.is_waiting(**ticket)).map(|ticket| ticket.task)
    }

    /// Up to `count` waiting tasks of a class, from a ticket on that differs with `turn`.
    pub fn waiting_from(&self, class: ClassKey, turn: u64, count: usize) -> Vec<TaskKey> {
        let tickets = &self.classes[class.index()].tickets;
        let first = (turn % tickets.len().max(1) as u64) as usize;
        let some = tickets.range(first..).filter(|ticket| self.is_waiting(**ticket)).take(count);
        some.map(|ticket| ticket.task).collect()
    }

    /// Classes of which no task had its turn while `window` other tasks left the queue. For
    /// example, with a window of 2,500, a class that had its turn when 10,000 tasks had left the
    /// queue is overdue once 12,500 have left.
    pub fn overdue_classes(&self, window: u64) -> impl Iterator<Item = ClassKey> {
        let classes = self
            .classes
            .iter()
            .enumerate()
            .filter(move |(_, class)| self.is_overdue(class, window));
        classes.map(|(index, _)| ClassKey::at(index))
    }

    fn is_overdue(&self, class: &ClassQueue, window: u64) -> bool {
        class.waiting > 0 && self.taken - class.turn_at >= window
    }

    /// The waiting task is going to be taken because its class is overdue. A task that was put at
    /// the front is not the one that the class waited for.
    pub fn note_turn(&mut self, task: TaskKey) {
        if !self[task].was_put_first {
            let class = self[task].class;
            self.classes[class.index()].turn_at = self.taken;
        }
    }

    /// The executor that takes nothing until it has room for the oldest task of the class.
    pub fn reserved_executor(&self, class: ClassKey) -> Option<ExecutorKey> {
        self.classes[class.index()].reserved_executor
    }

    pub fn reserve(&mut self, class: ClassKey, executor: ExecutorKey) {
        self.classes[class.index()].reserved_executor = Some(executor);
    }

    /// The executor takes no more tasks.
    pub(super) fn end_reservations(&mut self, gone: ExecutorKey) {
        let classes = self.classes.iter_mut().filter(|class| class.reserved_executor == Some(gone));
        classes.for_each(|class| class.reserved_executor = None);
    }

    /// The parking number before which executors parked at that level are known to have no room for
    /// the class.
    pub(super) fn no_room_before(&mut self, class: ClassKey, level: PlacementLevel) -> &mut u64 {
        &mut self.classes[class.index()].no_room_before[level as usize]
    }

    pub fn priority(&self, class: ClassKey) -> i32 {
        self.classes[class.index()].need.need.priority
    }

    /// Whether known tasks differ in priority.
    pub fn has_priorities(&self) -> bool {
        self.has_priorities
    }

    /// The oldest waiting task of a class that `is_light`. The search goes on where the last one
    /// ended and reads up to `looks` entries, so that each task is read once while the meaning of
    /// light stays the same.
    pub fn first_light(
        &mut self,
        class: ClassKey,
        looks: usize,
        is_light: impl Fn(&Task) -> bool,
    ) -> Option<TaskKey> {
        let queue = &self.classes[class.index()];
        let end = queue.tickets.len().min(queue.heavy + looks);
        let index = (queue.heavy..end).find(|index| {
            let ticket = queue.tickets[*index];
            self.is_waiting(ticket) && is_light(&self[ticket.task])
        });
        let found = index.map(|index| queue.tickets[index].task);
        self.classes[class.index()].heavy = index.unwrap_or(end);
        found
    }

    /// The meaning of light has changed.
    pub fn restart_search_for_light(&mut self) {
        self.classes.iter_mut().for_each(|class| class.heavy = 0);
    }

    /// What tasks of a class need.
    pub fn need(&self, class: ClassKey) -> &ClassNeed {
        &self.classes[class.index()].need
    }

    /// The resources that tasks of a class hold while they run.
    pub fn resources(&self, class: ClassKey) -> &Resources {
        &self.need(class).need.resources
    }

    /// The class of tasks with that need, if any are known.
    pub fn class(&self, need: &Need) -> Option<ClassKey> {
        self.by_need.get(need).copied()
    }

    /// Classes of known tasks.
    pub fn classes(&self) -> impl Iterator<Item = ClassKey> {
        self.by_need.values().copied()
    }

    /// Whether there is a constrained class.
    pub fn has_constrained(&self) -> bool {
        self.constrained > 0
    }

    /// The largest sum of input bytes and disk bytes of a task.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    pub(super) fn name_job(&mut self, job: JobId, name: Box<str>) {
        self.job_names.insert(job, name);
    }

    /// A job's name; empty if none was reported.
    pub fn job_name(&self, job: JobId) -> &str {
        self.job_names.get(&job).map_or("", |name| name)
    }

    /// The class of all known tasks, if there is only one, as there mostly is.
    pub fn only_class(&self) -> Option<ClassKey> {
        self.only_class
    }

    /// Number of waiting tasks of a class.
    pub fn waiting_of(&self, class: ClassKey) -> u64 {
        self.classes[class.index()].waiting
    }

    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    pub(super) fn get_mut(&mut self, key: TaskKey) -> &mut Task {
        &mut self.tasks[key.index()]
    }

    /// A class that was added since the last call, and has to be matched with the executors.
    pub(super) fn take_new_class(&mut self) -> Option<ClassKey> {
        self.new_class.take()
    }

    /// Notes that the ticket of a waiting task is put on the list of tasks without a holder.
    /// Whether it was there already.
    pub fn list_holderless(&mut self, task: TaskKey) -> bool {
        core::mem::replace(&mut self.get_mut(task).is_listed_holderless, true)
    }

    /// Notes that the ticket of a waiting task is no longer on the list of tasks without a holder.
    pub fn unlist_holderless(&mut self, task: TaskKey) {
        self.get_mut(task).is_listed_holderless = false;
    }

    // ---- refusals

    /// An executor could not take the task, or tried and failed.
    pub(super) fn refuse(&mut self, task: TaskKey, executor: ExecutorKey, has_failed: bool) {
        self.get_mut(task).was_refused = true;
        self.refusals.entry(task).or_default().push(executor);
        if has_failed {
            self.failures.entry(task).or_default().push(executor);
        }
    }

    pub fn has_refused(&self, executor: ExecutorKey, task: TaskKey) -> bool {
        self[task].was_refused && self.refusals(task).contains(&executor)
    }

    /// Executors that refused the task or failed it.
    pub fn refusals(&self, task: TaskKey) -> &[ExecutorKey] {
        self.refusals.get(&task).map_or(&[], Vec::as_slice)
    }

    /// Tasks that some executor has refused.
    pub fn refused_tasks(&self) -> impl Iterator<Item = TaskKey> {
        self.refusals.keys().copied()
    }

    /// Whether no task is refused by any executor.
    pub fn is_none_refused(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Whether an executor has failed the task.
    pub fn has_failures(&self, task: TaskKey) -> bool {
        self.failures.contains_key(&task)
    }

    /// Executors that failed the task may try it again.
    pub(super) fn forget_failures(&mut self, task: TaskKey) {
        let Some(failed) = self.failures.remove(&task) else { return };
        if let Some(refusals) = self.refusals.get_mut(&task) {
            refusals.retain(|executor| !failed.contains(executor));
            if refusals.is_empty() {
                self.refusals.remove(&task);
            }
        }
    }

    /// The executor has left.
    pub(super) fn forget_refusals_of(&mut self, gone: ExecutorKey) {
        for executors in self.refusals.values_mut().chain(self.failures.values_mut()) {
            executors.retain(|executor| *executor != gone);
        }
    }

    #[cfg(test)]
    pub fn skip_turns(&mut self, count: u32) {
        self.next_turn = self.next_turn.wrapping_add(count);
    }

    #[cfg(test)]
    pub fn tasks(&self) -> impl Iterator<Item = (TaskKey, &Task)> {
        let tasks = self
            .tasks
            .iter()
            .enumerate()
            .filter(|(_, task)| task.state != PlacementState::Forgotten);
        tasks.map(|(index, task)| (TaskKey::at(index), task))
    }
}

impl core::ops::Index<TaskKey> for TaskQueue {
    type Output = Task;

    fn index(&self, key: TaskKey) -> &Task {
        &self.tasks[key.index()]
    }
}
