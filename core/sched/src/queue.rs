//! The wait queue and what is known of each task (the paper's `Q`).
//!
//! Tasks of one resource class (the same [`Resources`]) queue together, so that an executor too small for one
//! class never has to look past its tasks. Entries of tasks that left out of turn are skipped when met.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::num::NonZeroU32;

use eyas_types::{JobId, Resources, TaskId};

use crate::catalog::ObjectKey;
use crate::executors::ExecutorKey;

/// A task's place in the table, from 1, so that an option of it takes no more room; reused when the task is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskKey(NonZeroU32);

impl TaskKey {
    fn at(place: usize) -> Self {
        TaskKey(u32::try_from(place + 1).ok().and_then(NonZeroU32::new).expect("fewer than 2^32 tasks"))
    }

    fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A resource class's place in the list of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(pub u16);

/// Names one wait of one task: a task that was queued again has another `turn`. Turns wrap around; two that are
/// compared are never 2^31 apart, because no queue is that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub task: TaskKey,
    pub turn: u32,
}

/// On one cache line: most looks at a task are the first for long.
#[repr(align(64))]
pub(crate) struct Task {
    pub id: TaskId,
    pub inputs: Inputs,
    pub class: Class,
    pub state: State,
    /// Which wait this is; see [`Ticket`].
    pub turn: u32,
    /// How often it was assigned.
    pub attempt: u32,
    /// Some executor could not take it: see `Queue::refusals`.
    pub was_refused: bool,
    /// This wait's ticket is on the scheduler's list of cold tasks.
    pub listed_cold: bool,
}

/// Legal moves: `Waiting → Assigned → Waiting …`, `Waiting → Held → Waiting`; from any state a task may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    /// Assigned; with its place in the executor's list.
    Assigned {
        executor: ExecutorKey,
        place: u32,
        recalled: bool,
    },
    /// Between two of the above, inside one event.
    Held,
    /// The slot is free.
    Forgotten,
}

/// Most tasks have a few inputs; those are kept in place.
pub(crate) enum Inputs {
    Few(u8, [ObjectKey; 3]),
    Many(Box<[ObjectKey]>),
}

impl Inputs {
    pub fn new(keys: &[ObjectKey]) -> Self {
        if keys.len() <= 3 {
            let mut few = [ObjectKey::NONE; 3];
            few[..keys.len()].copy_from_slice(keys);
            Inputs::Few(keys.len() as u8, few)
        } else {
            Inputs::Many(keys.into())
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
    free: Vec<TaskKey>,
    jobs: BTreeMap<JobId, Vec<Option<TaskKey>>>,
    classes: Vec<ClassQueue>,
    next_turn: u32,
    /// The order given to the next task that joins at the back, and at the front.
    next_back: i64,
    next_front: i64,
    waiting: u64,
    /// Executors that refused a task, for the few tasks that were.
    pub refusals: BTreeMap<TaskKey, Vec<ExecutorKey>>,
}

struct ClassQueue {
    need: Resources,
    /// Oldest first, with its place in the order over all classes.
    tickets: VecDeque<(i64, Ticket)>,
    waiting: u64,
    /// Tasks that left out of turn since the oldest became the oldest.
    head_overtaken: u64,
}

impl Queue {
    /// Enters a task; it waits only once it is [`push`](Self::push)ed.
    pub fn insert(&mut self, id: TaskId, inputs: &[ObjectKey], need: &Resources) -> TaskKey {
        let class = self.class_of(need);
        let task = Task {
            id,
            inputs: Inputs::new(inputs),
            class,
            state: State::Held,
            turn: 0,
            attempt: 0,
            was_refused: false,
            listed_cold: false,
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.tasks[key.place()] = task;
                key
            }
            None => {
                self.tasks.push(task);
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

    fn class_of(&mut self, need: &Resources) -> Class {
        let place = self.classes.iter().position(|class| class.need == *need).unwrap_or_else(|| {
            self.classes.push(ClassQueue {
                need: need.clone(),
                tickets: VecDeque::new(),
                waiting: 0,
                head_overtaken: 0,
            });
            self.classes.len() - 1
        });
        Class(u16::try_from(place).expect("fewer than 65,536 different resource needs"))
    }

    pub fn find(&self, id: TaskId) -> Option<TaskKey> {
        *self.jobs.get(&id.job)?.get(id.index as usize)?
    }

    /// Whether the ticket's wait is still on.
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        let task = &self[ticket.task];
        task.turn == ticket.turn && task.state == State::Waiting
    }

    /// Puts a held task at the back, or at the front if it was there before.
    pub fn push(&mut self, key: TaskKey, front: bool) -> Ticket {
        let turn = self.next_turn;
        self.next_turn = self.next_turn.wrapping_add(1);
        let task = &mut self.tasks[key.place()];
        assert_eq!(task.state, State::Held, "task {} queued twice", task.id);
        task.state = State::Waiting;
        task.turn = turn;
        let ticket = Ticket { task: key, turn };
        let class = usize::from(task.class.0);
        let queue = &mut self.classes[class];
        if front {
            self.next_front -= 1;
            queue.tickets.push_front((self.next_front, ticket));
        } else {
            queue.tickets.push_back((self.next_back, ticket));
            self.next_back += 1;
        }
        queue.waiting += 1;
        self.waiting += 1;
        ticket
    }

    /// Takes a waiting task out of the queue.
    pub fn take(&mut self, key: TaskKey) {
        let task = &mut self.tasks[key.place()];
        assert_eq!(task.state, State::Waiting, "task {} is not in the queue", task.id);
        task.state = State::Held;
        task.listed_cold = false;
        let ticket = Ticket { task: key, turn: task.turn };
        let class = usize::from(task.class.0);
        self.waiting -= 1;
        let queue = &mut self.classes[class];
        queue.waiting -= 1;
        if queue.tickets.front().is_some_and(|(_, first)| *first == ticket) {
            queue.head_overtaken = 0;
        } else {
            queue.head_overtaken += 1;
        }
        while let Some((_, first)) = self.classes[class].tickets.front() {
            if self.is_waiting(*first) {
                break;
            }
            self.classes[class].tickets.pop_front();
        }
        let queue = &self.classes[class];
        if queue.tickets.len() as u64 > 2 * queue.waiting + 64 {
            let mut tickets = core::mem::take(&mut self.classes[class].tickets);
            tickets.retain(|(_, ticket)| self.is_waiting(*ticket));
            self.classes[class].tickets = tickets;
        }
    }

    /// Forgets a held task.
    pub fn remove(&mut self, key: TaskKey) -> Task {
        let gone = Task {
            id: self[key].id,
            inputs: Inputs::new(&[]),
            class: Class(0),
            state: State::Forgotten,
            turn: self[key].turn,
            attempt: 0,
            was_refused: false,
            listed_cold: false,
        };
        let task = core::mem::replace(&mut self.tasks[key.place()], gone);
        assert_eq!(task.state, State::Held, "task {} forgotten while {:?}", task.id, task.state);
        self.refusals.remove(&key);
        self.free.push(key);
        if let Some(places) = self.jobs.get_mut(&task.id.job) {
            places[task.id.index as usize] = None;
        }
        task
    }

    /// Forgets a job's table. Its tasks are forgotten already.
    pub fn remove_job(&mut self, job: JobId) {
        if let Some(places) = self.jobs.remove(&job) {
            assert!(places.iter().all(Option::is_none), "job {job} forgotten before its tasks");
        }
    }

    /// Classes with waiting tasks, the one with the oldest task first.
    pub fn waiting_classes(&self) -> impl Iterator<Item = Class> {
        let mut classes: Vec<_> = (0..self.classes.len())
            .filter_map(|place| Some((self.classes[place].tickets.front()?.0, Class(place as u16))))
            .collect();
        classes.sort_unstable_by_key(|(order, _)| *order);
        classes.into_iter().map(|(_, class)| class)
    }

    /// Waiting tasks of a class, oldest first.
    pub fn waiting_in(&self, class: Class) -> impl Iterator<Item = TaskKey> {
        let tickets = self.classes[usize::from(class.0)].tickets.iter();
        tickets.filter(|(_, ticket)| self.is_waiting(*ticket)).map(|(_, ticket)| ticket.task)
    }

    /// How many tasks left the queue since the class's oldest one became its oldest.
    pub fn head_overtaken(&self, class: Class) -> u64 {
        self.classes[usize::from(class.0)].head_overtaken
    }

    /// What tasks of a class hold while they run.
    pub fn need(&self, class: Class) -> &Resources {
        &self.classes[usize::from(class.0)].need
    }

    /// Whether only one class has ever been seen, which most clusters most of the time have.
    pub fn only_class(&self) -> Option<Class> {
        (self.classes.len() == 1).then_some(Class(0))
    }

    pub fn waiting(&self) -> u64 {
        self.waiting
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
