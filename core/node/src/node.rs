//! The node's state machine.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{EvictionPolicy, ObjectId, Reads, Resources, TaskId, units};

use crate::slots::Slots;
use crate::space::{Limits, NoRoom, Space};

/// A ready task that does not fit the free slots is overtaken by so many smaller ones, then all wait for it.
const MAX_OVERTAKEN: u32 = 8;
/// An object that did not fit the disk is tried once more, after making room.
const FETCH_TRIES_ON_FULL_DISK: u32 = 2;

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The dispatcher gave this node a task.
    Assigned {
        /// Which.
        task: TaskId,
        /// Objects it reads, each once, with their sizes in bytes.
        inputs: Box<[(ObjectId, u64)]>,
        /// What it holds while it runs.
        need: Resources,
    },
    /// The dispatcher wants a task back, if it has not started.
    Recalled {
        /// Which.
        task: TaskId,
    },
    /// A task shall not run, or not go on.
    Cancelled {
        /// Which.
        task: TaskId,
    },
    /// An object is in the store.
    Fetched {
        /// Which.
        object: ObjectId,
        /// Where it came from.
        from: From,
    },
    /// An object could not be fetched.
    FetchFailed {
        /// Which.
        object: ObjectId,
        /// Why.
        failure: FetchFailure,
    },
    /// A started task has ended, and its outputs were delivered.
    Ended {
        /// Which.
        task: TaskId,
    },
    /// The store had this object when it was opened.
    Found {
        /// Which.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// The store no longer has this object, though nobody told it to forget it: it was damaged.
    Lost {
        /// Which.
        object: ObjectId,
    },
    /// What the store's disk has free.
    FreeSpace {
        /// Bytes.
        bytes: u64,
        /// Inodes.
        inodes: u64,
    },
}

/// Where an object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// It was in the store already.
    Local,
    /// A peer's store.
    Peer,
    /// Persistent storage.
    Persistent,
}

/// Why an object could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The store's disk is full.
    Full,
    /// It is nowhere to be had, or has changed; tasks that need it fail.
    Lost,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fetch an object into the store.
    Fetch {
        /// Which.
        object: ObjectId,
        /// A task that needs it, whose hints say where to look.
        task: TaskId,
    },
    /// Remove an object from the store.
    Evict {
        /// Which.
        object: ObjectId,
    },
    /// Start a task; its inputs are there.
    Start {
        /// Which.
        task: TaskId,
        /// The number of its slot, from 0.
        slot: u32,
        /// Where its inputs came from.
        reads: Reads,
    },
    /// Kill a started task; `Ended` follows.
    Kill {
        /// Which.
        task: TaskId,
    },
    /// A recalled or cancelled task had not started and is forgotten.
    GiveBack {
        /// Which.
        task: TaskId,
    },
    /// This node cannot take the task, which is forgotten; another may.
    Refuse {
        /// Which.
        task: TaskId,
        /// Why, for a person.
        reason: String,
    },
    /// The task cannot run because this input cannot be had; it is forgotten.
    Fail {
        /// Which.
        task: TaskId,
        /// Which input.
        object: ObjectId,
    },
}

struct Task {
    inputs: Box<[(ObjectId, u64)]>,
    need: Resources,
    state: State,
    reads: Reads,
    overtaken: u32,
}

/// `Queued → Staging → Ready → Running`; from any but the last a task can be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for room in the store.
    Queued,
    /// Holds promises of all its inputs, of which so many are missing.
    Staging { missing: usize },
    /// Waits for a slot.
    Ready,
    /// Has a slot.
    Running { slot: u32 },
}

struct Fetch {
    /// Tasks that wait for it; the first one's hints are used, and it counts the object as fetched.
    tasks: Vec<TaskId>,
    size_bytes: u64,
    tries: u32,
    /// Whether it has been asked for, or waits for its turn.
    under_way: bool,
}

/// See the [crate's](crate) documentation.
pub struct Node {
    slots: Slots,
    space: Space,
    caching: bool,
    tasks: BTreeMap<TaskId, Task>,
    /// Tasks in `Queued`, in order of arrival.
    queued: VecDeque<TaskId>,
    /// Tasks in `Ready`, in the order in which they became so.
    ready: VecDeque<TaskId>,
    fetches: BTreeMap<ObjectId, Fetch>,
    /// Objects to fetch, when there are fewer than `max_fetches` under way.
    to_fetch: VecDeque<ObjectId>,
    under_way: usize,
    max_fetches: usize,
}

impl Node {
    /// A node with an empty store. It fetches no more than `max_fetches` objects at a time. Without `caching`, an
    /// object is evicted as soon as no task was promised it.
    pub fn new(
        capacity: Resources,
        limits: Limits,
        eviction: EvictionPolicy,
        caching: bool,
        max_fetches: usize,
        seed: u64,
    ) -> Self {
        Node {
            slots: Slots::new(capacity),
            space: Space::new(limits, eviction, seed),
            caching,
            tasks: BTreeMap::new(),
            queued: VecDeque::new(),
            ready: VecDeque::new(),
            fetches: BTreeMap::new(),
            to_fetch: VecDeque::new(),
            under_way: 0,
            max_fetches,
        }
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    ///
    /// # Panics
    /// If the event contradicts earlier ones.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Assigned { task, inputs, need } => {
                let entry = Task { inputs, need, state: State::Queued, reads: Reads::default(), overtaken: 0 };
                assert!(self.tasks.insert(task, entry).is_none(), "task {task} assigned twice");
                self.queued.push_back(task);
            }
            Event::Recalled { task } => self.give_back(task, effects),
            Event::Cancelled { task } => match self.tasks.get(&task).map(|entry| entry.state) {
                Some(State::Running { .. }) => effects.push(Effect::Kill { task }),
                _ => self.give_back(task, effects),
            },
            Event::Fetched { object, from } => self.fetched(object, from, effects),
            Event::FetchFailed { object, failure } => self.fetch_failed(object, &failure, effects),
            Event::Ended { task } => {
                let entry = self.forget(task, effects);
                let State::Running { slot } = entry.state else { panic!("task {task} ended but is {:?}", entry.state) };
                self.slots.give_back(slot, &entry.need);
            }
            Event::Found { object, size_bytes } => self.found(object, size_bytes, effects),
            Event::Lost { object } => self.lost(object),
            Event::FreeSpace { bytes, inodes } => self.space.set_free(bytes, inodes),
        }
        self.admit(effects);
        self.fetch_next(effects);
        self.start_ready(effects);
    }

    /// How many tasks it was given and has not done with.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    // ---- staging

    /// Moves tasks from `Queued` on, in order of arrival, as far as the store has room.
    fn admit(&mut self, effects: &mut Vec<Effect>) {
        while let Some(task) = self.queued.front().copied() {
            match self.reserve(task, effects) {
                Ok(()) => drop(self.queued.pop_front()),
                Err(NoRoom::Now) => break,
                Err(NoRoom::Never) => {
                    self.queued.pop_front();
                    let reason = self.why_never(task);
                    self.tasks.remove(&task);
                    effects.push(Effect::Refuse { task, reason });
                }
            }
        }
    }

    /// Reserves room for all of a task's inputs at once, or for none.
    fn reserve(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> Result<(), NoRoom> {
        let entry = self.tasks.get_mut(&task).expect("queued tasks are known");
        if entry.inputs.is_empty() {
            entry.state = State::Ready;
            self.ready.push_back(task);
            return Ok(());
        }
        let total: u64 = entry.inputs.iter().map(|(_, size)| size).sum();
        if total > self.space.limit_bytes() {
            return Err(NoRoom::Never);
        }
        // Promise what is here first, so that it is not evicted for the rest.
        let inputs = entry.inputs.clone();
        let objects = inputs.iter().map(|(object, _)| *object);
        let promised: Vec<_> = objects.filter(|object| self.space.is_known(*object)).collect();
        promised.iter().for_each(|object| self.space.pin(*object));
        let missing = inputs.iter().filter(|(object, _)| !self.space.is_known(*object));
        let (bytes, objects) = missing.fold((0, 0), |(bytes, objects), (_, size)| (bytes + size, objects + 1));
        let mut evicted = Vec::new();
        let room = self.space.make_room(bytes, objects, &mut evicted);
        effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
        if let Err(no_room) = room {
            promised.iter().for_each(|object| self.space.unpin(*object));
            // What was promised to this task alone is not in anyone's way.
            let others = self.under_way > 0 || self.tasks.values().any(|other| other.state != State::Queued);
            return Err(if no_room == NoRoom::Now && others { NoRoom::Now } else { NoRoom::Never });
        }
        self.promise(task, &inputs);
        Ok(())
    }

    /// Books the inputs of a task that has room for all of them.
    fn promise(&mut self, task: TaskId, inputs: &[(ObjectId, u64)]) {
        let (mut missing, mut reads) = (0, Reads::default());
        for (object, size_bytes) in inputs {
            if self.space.is_here(*object) {
                reads.local.add(*size_bytes);
                continue;
            }
            missing += 1;
            if let Some(fetch) = self.fetches.get_mut(object) {
                fetch.tasks.push(task);
                continue;
            }
            self.space.expect(*object, *size_bytes);
            self.space.pin(*object);
            let fetch = Fetch { tasks: alloc::vec![task], size_bytes: *size_bytes, tries: 0, under_way: false };
            self.fetches.insert(*object, fetch);
            self.to_fetch.push_back(*object);
        }
        let entry = self.tasks.get_mut(&task).expect("the caller knows it");
        entry.reads = reads;
        if missing == 0 {
            entry.state = State::Ready;
            self.ready.push_back(task);
        } else {
            entry.state = State::Staging { missing };
        }
    }

    fn why_never(&self, task: TaskId) -> String {
        let total: u64 = self.tasks[&task].inputs.iter().map(|(_, size)| size).sum();
        let limit = self.space.limit_bytes();
        if total > limit {
            return format!(
                "its inputs are {}, the store holds {}: give executors a larger store (--cache)",
                units::format_bytes(total),
                units::format_bytes(limit)
            );
        }
        let (count, most) = (self.tasks[&task].inputs.len() as u64, self.space.limit_objects());
        if count > most {
            return format!(
                "it reads {count} objects, the store holds {most}: give executors a larger store (--cache-objects)"
            );
        }
        format!("the disk under the store has no room for its inputs ({})", units::format_bytes(total))
    }

    fn fetch_next(&mut self, effects: &mut Vec<Effect>) {
        while self.under_way < self.max_fetches {
            let Some(object) = self.to_fetch.pop_front() else { break };
            // Those nobody waits for any more were dropped from `fetches`.
            let Some(fetch) = self.fetches.get_mut(&object).filter(|fetch| !fetch.under_way) else { continue };
            fetch.under_way = true;
            fetch.tries += 1;
            self.under_way += 1;
            effects.push(Effect::Fetch { object, task: fetch.tasks[0] });
        }
    }

    fn fetched(&mut self, object: ObjectId, from: From, effects: &mut Vec<Effect>) {
        let Some(fetch) = self.fetches.remove(&object) else { panic!("{object} came without being asked for") };
        self.under_way -= 1;
        self.space.arrived(object);
        for (place, task) in fetch.tasks.iter().enumerate() {
            let entry = self.tasks.get_mut(task).expect("waiting tasks are known");
            match (place, from) {
                (0, From::Peer) => entry.reads.peer.add(fetch.size_bytes),
                (0, From::Persistent) => entry.reads.persistent.add(fetch.size_bytes),
                _ => entry.reads.local.add(fetch.size_bytes),
            }
            let State::Staging { missing } = &mut entry.state else {
                panic!("task {task} waits but is {:?}", entry.state)
            };
            *missing -= 1;
            if *missing == 0 {
                entry.state = State::Ready;
                self.ready.push_back(*task);
            }
        }
        if fetch.tasks.is_empty() {
            self.drop_unless_cached(object, effects);
        }
    }

    fn fetch_failed(&mut self, object: ObjectId, failure: &FetchFailure, effects: &mut Vec<Effect>) {
        let Some(fetch) = self.fetches.get_mut(&object) else { panic!("{object} failed without being asked for") };
        fetch.under_way = false;
        self.under_way -= 1;
        let (tries, size_bytes, waited_for) = (fetch.tries, fetch.size_bytes, !fetch.tasks.is_empty());
        if *failure == FetchFailure::Full && waited_for && tries < FETCH_TRIES_ON_FULL_DISK {
            let mut evicted = Vec::new();
            // Its own bytes are booked already: room for as much again is room for what the disk did not have.
            let room = self.space.make_room(size_bytes, 0, &mut evicted);
            effects.extend(evicted.iter().map(|object| Effect::Evict { object: *object }));
            if room.is_ok() || !evicted.is_empty() {
                self.to_fetch.push_back(object);
                return;
            }
        }
        let fetch = self.fetches.remove(&object).expect("looked up above");
        self.space.remove(object);
        for task in fetch.tasks {
            self.forget(task, effects);
            effects.push(match failure {
                FetchFailure::Full => {
                    let reason =
                        format!("its disk is full: no room for {object} ({})", units::format_bytes(size_bytes));
                    Effect::Refuse { task, reason }
                }
                FetchFailure::Lost => Effect::Fail { task, object },
            });
        }
    }

    fn found(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        let mut evicted = Vec::new();
        if !self.caching || self.space.make_room(size_bytes, 1, &mut evicted).is_err() {
            effects.push(Effect::Evict { object });
        } else if !self.space.is_known(object) {
            self.space.expect(object, size_bytes);
            self.space.arrived(object);
        }
        effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
    }

    /// What is lost is promised to nobody: a task that still needs it will not find it, and is assigned again.
    fn lost(&mut self, object: ObjectId) {
        // If it is being fetched again already, the loss is one that was told of before.
        if self.fetches.contains_key(&object) {
            return;
        }
        self.space.remove(object);
        for entry in self.tasks.values_mut().filter(|entry| entry.state != State::Queued) {
            if entry.inputs.iter().any(|(other, _)| *other == object) {
                entry.inputs = entry.inputs.iter().filter(|(other, _)| *other != object).copied().collect();
            }
        }
    }

    // ---- slots

    fn start_ready(&mut self, effects: &mut Vec<Effect>) {
        let mut place = 0;
        while let Some(task) = self.ready.get(place).copied() {
            let entry = self.tasks.get_mut(&task).expect("ready tasks are known");
            if let Some(slot) = self.slots.take(&entry.need) {
                entry.state = State::Running { slot };
                effects.push(Effect::Start { task, slot, reads: entry.reads });
                self.ready.remove(place);
                for earlier in self.ready.iter().take(place) {
                    self.tasks.get_mut(earlier).expect("ready tasks are known").overtaken += 1;
                }
            } else if entry.overtaken >= MAX_OVERTAKEN || place as u32 >= MAX_OVERTAKEN {
                break;
            } else {
                place += 1;
            }
        }
    }

    // ---- ends

    fn give_back(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        match self.tasks.get(&task).map(|entry| entry.state) {
            // It has ended, or will: the dispatcher hears of that.
            None | Some(State::Running { .. }) => {}
            Some(_) => {
                self.forget(task, effects);
                effects.push(Effect::GiveBack { task });
            }
        }
    }

    /// Forgets a task and takes back its promises.
    fn forget(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> Task {
        let entry = self.tasks.remove(&task).unwrap_or_else(|| panic!("task {task} is not here"));
        match entry.state {
            State::Queued => self.queued.retain(|other| *other != task),
            State::Ready => self.ready.retain(|other| *other != task),
            State::Staging { .. } | State::Running { .. } => {}
        }
        if entry.state == State::Queued {
            return entry;
        }
        let inputs: BTreeSet<_> = entry.inputs.iter().map(|(object, _)| *object).collect();
        for object in inputs {
            self.space.unpin(object);
            match self.fetches.get_mut(&object) {
                Some(fetch) => {
                    fetch.tasks.retain(|other| *other != task);
                    if fetch.tasks.is_empty() && !fetch.under_way {
                        self.fetches.remove(&object);
                        self.space.remove(object);
                    }
                }
                None => self.drop_unless_cached(object, effects),
            }
        }
        entry
    }

    /// Without caching, what no task was promised leaves at once.
    fn drop_unless_cached(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if !self.caching && self.space.is_idle(object) {
            self.space.remove(object);
            effects.push(Effect::Evict { object });
        }
    }

    #[cfg(test)]
    pub(crate) fn validate(&self) {
        self.space.validate();
        let promised: usize = self.tasks.values().filter(|t| t.state != State::Queued).map(|t| t.inputs.len()).sum();
        assert_eq!(self.space.pins() as usize, promised, "promises are of tasks that have left the queue");
        assert!(self.under_way <= self.max_fetches);
        assert_eq!(self.under_way, self.fetches.values().filter(|fetch| fetch.under_way).count());
    }
}
