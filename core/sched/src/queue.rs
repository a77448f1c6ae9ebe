//! The wait queue and what is known of each task (the paper's `Q`).
//!
//! Tasks of one class (the same [`Need`]) queue together, so that an executor that is too small for one class, or does
//! not match it, never has to look past its tasks, and those of higher priority come first. Entries of tasks that left
//! out of turn are skipped when met.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::num::NonZeroU32;

use eyas_types::{JobId, Resources, TaskId};

use crate::catalog::ObjectKey;
use crate::executors::{ExecutorKey, Level};
use eyas_types::Need;

/// A task's place in the table, from 1, so that an option of it takes no more room; reused when the task is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskKey(NonZeroU32);

impl TaskKey {
    fn at(place: usize) -> Self {
        TaskKey(u32::try_from(place + 1).ok().and_then(NonZeroU32::new).expect("fewer than 2^32 tasks"))
    }

    pub fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A class's place in the list of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(pub u32);

/// Names one wait of one task: a task that was queued again has another `turn`. Turns wrap around; two that are
/// compared are never 2^31 apart, because no queue is that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub task: TaskKey,
    pub turn: u32,
}

/// What is no ticket's turn.
const NO_TURN: u32 = u32::MAX;

pub(crate) struct Task {
    pub id: TaskId,
    pub inputs: Inputs,
    pub class: Class,
    pub state: State,
    /// How often it was assigned.
    pub attempt: u32,
    /// Some executor could not take it: see `Queue::refusals`.
    pub was_refused: bool,
    /// This wait's ticket is on the scheduler's list of cold tasks.
    pub listed_cold: bool,
    /// It was put at the front, where it overtakes others.
    pub was_put_first: bool,
    /// How often it was asked back and returned.
    pub returns: u8,
}

// As many of them are kept as tasks wait.
const _: () = assert!(size_of::<Task>() == 56);

/// Legal moves: `Waiting → Assigned → Waiting …`, `Waiting → Held → Waiting`; from any state a task may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    /// Assigned; with the number of the assignment, which names it in the executor's list.
    Assigned {
        executor: ExecutorKey,
        number: u64,
        recalled: bool,
    },
    /// Between two of the above, inside one event.
    Held,
    /// The slot is free.
    Forgotten,
}

/// Most tasks have a few inputs; those are kept in place. Others are behind a box of one word, to be no larger.
pub(crate) enum Inputs {
    Few(u8, [ObjectKey; 3]),
    Many(Box<Box<[ObjectKey]>>),
}

impl Inputs {
    pub fn new(keys: &[ObjectKey]) -> Self {
        if keys.len() <= 3 {
            let mut few = [ObjectKey::NONE; 3];
            few[..keys.len()].copy_from_slice(keys);
            Inputs::Few(keys.len() as u8, few)
        } else {
            Inputs::Many(Box::new(keys.into()))
        }
    }

    /// Beside that input, the only one.
    pub fn other_than(&self, input: ObjectKey) -> ObjectKey {
        match self.as_slice() {
            [one, other] | [other, one] if *one == input => *other,
            _ => ObjectKey::NONE,
        }
    }

    pub fn as_slice(&self) -> &[ObjectKey] {
        match self {
            Inputs::Few(count, few) => &few[..usize::from(*count)],
            Inputs::Many(many) => many,
        }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    tasks: Vec<Task>,
    /// The turn of each task that waits, by its place in the table, else [`NO_TURN`]. Apart from the table, as it
    /// is asked of far more entries of lists than there are looks at tasks.
    turns: Vec<u32>,
    free: Vec<TaskKey>,
    jobs: BTreeMap<JobId, Vec<Option<TaskKey>>>,
    classes: Vec<ClassQueue>,
    by_need: BTreeMap<Need, Class>,
    free_classes: Vec<Class>,
    only_class: Option<Class>,
    has_priorities: bool,
    /// Classes that are choosy of themselves.
    choosy: u32,
    /// No task of a known class has more bytes of inputs and disk.
    most_bytes: u64,
    /// A class that was added and not matched with the executors yet.
    pub new_class: Option<Class>,
    job_names: BTreeMap<JobId, Box<str>>,
    next_turn: u32,
    waiting: u64,
    /// Tasks that have left so far.
    taken: u64,
    /// Executors that refused a task, for the few tasks that were.
    pub refusals: BTreeMap<TaskKey, Vec<ExecutorKey>>,
    /// Executors among those that have not refused the task but failed it, so that others try it first.
    pub failed_on: BTreeMap<TaskKey, Vec<ExecutorKey>>,
}

/// What tasks of a class need.
pub(crate) struct ClassNeed {
    pub class: Class,
    pub need: Need,
    /// Its terms have a rank, or mention what is of one task or of the moment.
    pub is_choosy: bool,
    /// No task of the class has more bytes of inputs and disk.
    pub most_bytes: u64,
}

struct ClassQueue {
    need: ClassNeed,
    /// Oldest first.
    tickets: VecDeque<Ticket>,
    /// Tasks of the class that are known; with the last of them, its place may go to another.
    known: u64,
    waiting: u64,
    /// How many tasks of any class had left the queue when one of this class last had its turn.
    turn_at: u64,
    /// Who takes nothing until it has room for the oldest.
    way_made_by: Option<ExecutorKey>,
    /// Executors that were parked at each level before this number are known to have no room.
    no_room_before: [u64; 2],
    /// So many of the first tickets are of tasks that read too much to compute while others are staged.
    heavy: usize,
}

impl Queue {
    /// Enters a task; it waits only once it is [`push`](Self::push)ed.
    pub fn insert(&mut self, id: TaskId, inputs: &[ObjectKey], input_bytes: u64, need: &Need) -> TaskKey {
        let class = self.class_of(need, input_bytes.saturating_add(need.resources.disk_bytes));
        let task = Task {
            id,
            inputs: Inputs::new(inputs),
            class,
            state: State::Held,
            attempt: 0,
            was_refused: false,
            returns: 0,
            listed_cold: false,
            was_put_first: false,
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.tasks[key.place()] = task;
                key
            }
            None => {
                self.tasks.push(task);
                self.turns.push(NO_TURN);
                TaskKey::at(self.tasks.len() - 1)
            }
        };
        let places = self.jobs.entry(id.job).or_default();
        let index = id.index as usize;
        if places.len() <= index {
            places.resize(index + 1, None);
        }
        assert!(places[index].is_none(), "task {id} submitted twice");
        places[index] = Some(key);
        key
    }

    fn class_of(&mut self, need: &Need, bytes: u64) -> Class {
        let class = self.class(need).unwrap_or_else(|| self.new_class(need));
        let queue = &mut self.classes[class.0 as usize];
        queue.known += 1;
        queue.need.most_bytes = queue.need.most_bytes.max(bytes);
        self.most_bytes = self.most_bytes.max(bytes);
        class
    }

    fn new_class(&mut self, need: &Need) -> Class {
        let class = self.free_classes.pop().unwrap_or(Class(self.classes.len() as u32));
        let is_choosy = need
            .terms
            .as_ref()
            .is_some_and(|terms| terms.rank.is_some() || terms.requirements.iter().any(|part| !part.is_fixed()));
        let queue = ClassQueue {
            need: ClassNeed { class, need: need.clone(), is_choosy, most_bytes: 0 },
            tickets: VecDeque::new(),
            known: 0,
            waiting: 0,
            turn_at: 0,
            way_made_by: None,
            no_room_before: [0; 2],
            heavy: 0,
        };
        match self.classes.get_mut(class.0 as usize) {
            Some(free) => *free = queue,
            None => self.classes.push(queue),
        }
        self.choosy += u32::from(is_choosy);
        self.new_class = Some(class);
        self.by_need.insert(need.clone(), class);
        self.count_classes();
        class
    }

    /// A task of the class is forgotten.
    fn leave_class(&mut self, class: Class) {
        let queue = &mut self.classes[class.0 as usize];
        queue.known -= 1;
        if queue.known == 0 {
            queue.tickets = VecDeque::new();
            self.by_need.remove(&queue.need.need);
            self.choosy -= u32::from(queue.need.is_choosy);
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
        self.has_priorities = first.map(|(lowest, _)| lowest.priority) != last.map(|(highest, _)| highest.priority);
    }

    pub fn find(&self, id: TaskId) -> Option<TaskKey> {
        *self.jobs.get(&id.job)?.get(id.index as usize)?
    }

    /// Whether the ticket's wait is still on.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        self.turns[ticket.task.place()] == ticket.turn
    }

    /// What names the wait of a task that waits.
    pub fn ticket(&self, task: TaskKey) -> Ticket {
        Ticket { task, turn: self.turns[task.place()] }
    }

    /// Puts a held task at the back, or at the front if it was there before.
    pub fn push(&mut self, key: TaskKey, front: bool) -> Ticket {
        let turn = self.next_turn;
        self.next_turn = (turn + 1) % NO_TURN;
        let task = &mut self.tasks[key.place()];
        assert_eq!(task.state, State::Held, "task {} queued twice", task.id);
        task.state = State::Waiting;
        task.was_put_first = front;
        self.turns[key.place()] = turn;
        let ticket = Ticket { task: key, turn };
        let queue = &mut self.classes[task.class.0 as usize];
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

    /// Takes a waiting task out of the queue. Returns the executor that made way for it, if one did.
    pub fn take(&mut self, key: TaskKey) -> Option<ExecutorKey> {
        let ticket = self.ticket(key);
        self.turns[key.place()] = NO_TURN;
        let task = &mut self.tasks[key.place()];
        assert_eq!(task.state, State::Waiting, "task {} is not in the queue", task.id);
        task.state = State::Held;
        task.listed_cold = false;
        self.waiting -= 1;
        self.taken += 1;
        let queue = &mut self.classes[task.class.0 as usize];
        queue.waiting -= 1;
        let mut made_way = None;
        if queue.tickets.front() == Some(&ticket) {
            made_way = queue.way_made_by.take();
            if !task.was_put_first {
                queue.turn_at = self.taken;
            }
        }
        let turns = &self.turns;
        let is_waiting = |ticket: &Ticket| turns[ticket.task.place()] == ticket.turn;
        while queue.tickets.pop_front_if(|first| !is_waiting(first)).is_some() {
            queue.heavy = queue.heavy.saturating_sub(1);
        }
        if queue.tickets.len() as u64 > 2 * queue.waiting + 64 {
            queue.heavy = queue.tickets.iter().take(queue.heavy).filter(|ticket| is_waiting(ticket)).count();
            queue.tickets.retain(is_waiting);
        }
        made_way
    }

    /// Forgets a held task.
    pub fn remove(&mut self, key: TaskKey) -> Task {
        let gone = Task {
            id: self[key].id,
            inputs: Inputs::new(&[]),
            class: self[key].class,
            state: State::Forgotten,
            attempt: 0,
            was_refused: false,
            returns: 0,
            listed_cold: false,
            was_put_first: false,
        };
        let task = core::mem::replace(&mut self.tasks[key.place()], gone);
        assert_eq!(task.state, State::Held, "task {} forgotten while {:?}", task.id, task.state);
        self.refusals.remove(&key);
        self.failed_on.remove(&key);
        self.free.push(key);
        self.leave_class(task.class);
        if let Some(places) = self.jobs.get_mut(&task.id.job) {
            places[task.id.index as usize] = None;
        }
        task
    }

    /// Forgets a job's table. Its tasks are forgotten already.
    pub fn remove_job(&mut self, job: JobId) {
        self.job_names.remove(&job);
        if let Some(places) = self.jobs.remove(&job) {
            assert!(places.iter().all(Option::is_none), "job {job} forgotten before its tasks");
        }
    }

    /// Classes with waiting tasks: of higher priority first, of equals the one with the oldest task.
    pub fn waiting_classes(&self) -> impl Iterator<Item = Class> + use<> {
        let queue = |class: Class| &self.classes[class.0 as usize];
        let oldest = |class: Class| {
            let first = queue(class).tickets.front()?;
            let age = self.next_turn.wrapping_sub(first.turn);
            // What is put at the front goes before what was put there earlier.
            let order = if self[first.task].was_put_first { (0, age) } else { (1, !age) };
            Some(((Reverse(self.priority(class)), order), class))
        };
        let only = self.only_class.filter(|class| !queue(*class).tickets.is_empty());
        let places = if self.only_class.is_some() { 0 } else { self.classes.len() as u32 };
        let mut classes: Vec<_> = (0..places).map(Class).filter_map(oldest).collect();
        classes.sort_unstable_by_key(|(order, _)| *order);
        only.into_iter().chain(classes.into_iter().map(|(_, class)| class))
    }

    /// Waiting tasks of a class, oldest first.
    pub fn waiting_in(&self, class: Class) -> impl Iterator<Item = TaskKey> {
        let tickets = self.classes[class.0 as usize].tickets.iter();
        tickets.filter(|ticket| self.is_waiting(**ticket)).map(|ticket| ticket.task)
    }

    /// Waiting tasks of a class, no more than `count`, from a place that is another one for another `turn`.
    pub fn waiting_from(&self, class: Class, turn: u64, count: usize) -> Vec<TaskKey> {
        let tickets = &self.classes[class.0 as usize].tickets;
        let first = (turn % tickets.len().max(1) as u64) as usize;
        let some = tickets.range(first..).filter(|ticket| self.is_waiting(**ticket)).take(count);
        some.map(|ticket| ticket.task).collect()
    }

    /// Classes of which no task had its turn while `window` tasks left the queue.
    pub fn overdue_classes(&self, window: u64) -> impl Iterator<Item = Class> {
        let classes = self.classes.iter().zip(0..).filter(move |(class, _)| self.is_overdue(class, window));
        classes.map(|(_, place)| Class(place))
    }

    fn is_overdue(&self, class: &ClassQueue, window: u64) -> bool {
        class.waiting > 0 && self.taken - class.turn_at >= window
    }

    /// The waiting task is going to be taken because its class is overdue. What was put first is not the one that the
    /// class waited for.
    pub fn have_turn(&mut self, task: TaskKey) {
        if !self[task].was_put_first {
            let class = self[task].class;
            self.classes[class.0 as usize].turn_at = self.taken;
        }
    }

    /// Who takes nothing until it has room for the oldest task of the class.
    pub fn way_made_by(&self, class: Class) -> Option<ExecutorKey> {
        self.classes[class.0 as usize].way_made_by
    }

    pub fn set_way_made_by(&mut self, class: Class, by: ExecutorKey) {
        self.classes[class.0 as usize].way_made_by = Some(by);
    }

    /// The executor takes no more tasks.
    pub fn forget_way_made_by(&mut self, gone: ExecutorKey) {
        let classes = self.classes.iter_mut().filter(|class| class.way_made_by == Some(gone));
        classes.for_each(|class| class.way_made_by = None);
    }

    /// Executors that were parked at that level before this number are known to have no room for the class.
    pub fn no_room_before(&mut self, class: Class, level: Level) -> &mut u64 {
        &mut self.classes[class.0 as usize].no_room_before[level as usize]
    }

    pub fn priority(&self, class: Class) -> i32 {
        self.classes[class.0 as usize].need.need.priority
    }

    /// Whether some known tasks have another priority than others.
    pub fn has_priorities(&self) -> bool {
        self.has_priorities
    }

    /// The oldest waiting task of a class that `is_light`, looked for from where the last search ended: as long as who is
    /// light stays so, each task is looked at once. No more than `looks` are.
    pub fn first_light(&mut self, class: Class, looks: usize, is_light: impl Fn(&Task) -> bool) -> Option<TaskKey> {
        let queue = &self.classes[class.0 as usize];
        let end = queue.tickets.len().min(queue.heavy + looks);
        let place = (queue.heavy..end).find(|place| {
            let ticket = queue.tickets[*place];
            self.is_waiting(ticket) && is_light(&self[ticket.task])
        });
        let found = place.map(|place| queue.tickets[place].task);
        self.classes[class.0 as usize].heavy = place.unwrap_or(end);
        found
    }

    /// Other tasks are light now.
    pub fn look_for_light_again(&mut self) {
        self.classes.iter_mut().for_each(|class| class.heavy = 0);
    }

    /// What tasks of a class need.
    pub fn need(&self, class: Class) -> &ClassNeed {
        &self.classes[class.0 as usize].need
    }

    /// What tasks of a class hold while they run.
    pub fn resources(&self, class: Class) -> &Resources {
        &self.need(class).need.resources
    }

    /// The class of tasks of such needs, if any are known.
    pub fn class(&self, need: &Need) -> Option<Class> {
        self.by_need.get(need).copied()
    }

    /// Classes of known tasks.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        self.by_need.values().copied()
    }

    /// Whether a class is choosy of itself.
    pub fn has_choosy(&self) -> bool {
        self.choosy > 0
    }

    /// No task has more bytes of inputs and disk.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    pub fn name_job(&mut self, job: JobId, name: Box<str>) {
        self.job_names.insert(job, name);
    }

    /// A job's name; empty if nobody has told it.
    pub fn job_name(&self, job: JobId) -> &str {
        self.job_names.get(&job).map_or("", |name| name)
    }

    /// The only class of known tasks, which most clusters most of the time have.
    pub fn only_class(&self) -> Option<Class> {
        self.only_class
    }

    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    #[cfg(test)]
    pub fn skip_turns(&mut self, count: u32) {
        self.next_turn = self.next_turn.wrapping_add(count);
    }

    #[cfg(test)]
    pub fn tasks(&self) -> impl Iterator<Item = (TaskKey, &Task)> {
        let tasks = self.tasks.iter().enumerate().filter(|(_, task)| task.state != State::Forgotten);
        tasks.map(|(place, task)| (TaskKey::at(place), task))
    }
}

impl core::ops::Index<TaskKey> for Queue {
    type Output = Task;

    fn index(&self, key: TaskKey) -> &Task {
        &self.tasks[key.place()]
    }
}

impl core::ops::IndexMut<TaskKey> for Queue {
    fn index_mut(&mut self, key: TaskKey) -> &mut Task {
        &mut self.tasks[key.place()]
    }
}
