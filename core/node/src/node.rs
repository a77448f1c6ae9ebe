//! The node's state machine.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{EvictionPolicy, ExecutorLoad, ObjectId, Origin, Reads, Resources, TaskId, units};

use crate::event::{Effect, Event, FetchFailure};
use crate::overlap::{self, Awaited, Overlap};
use crate::slots::Slots;
use crate::space::{Limits, Room, Space};
use crate::turns::Standing;

mod hold;

/// A task that waits for room in the store is overtaken by so many that need none, or have a higher priority; then all
/// wait for it. No more than so many are passed at a time.
const MAX_OVERTAKEN: u32 = 8;
/// An object that did not fit the disk is tried once more, after making room.
const FETCH_TRIES_ON_FULL_DISK: u32 = 2;

pub(crate) struct Task {
    /// In the order of their ids.
    inputs: Vec<Input>,
    pub need: Resources,
    pub priority: i32,
    /// So much of its inputs was missing when it came that others compute while it is staged.
    pub is_data_intensive: bool,
    pub state: State,
    /// How many have overtaken it in its present state.
    pub overtaken: u32,
    /// Its number among those that were ready, in order.
    pub number: u64,
    /// It was put before others when it was ready.
    pub jumped: bool,
    /// How many that were ready later have started before it, or while it was suspended.
    pub passed: u32,
    pub suspensions: u32,
}

struct Input {
    object: ObjectId,
    size_bytes: u64,
    /// Where it came from, once it was there for this task.
    origin: Option<Origin>,
}

impl Task {
    fn input(&mut self, object: ObjectId) -> Option<&mut Input> {
        let place = self.inputs.binary_search_by_key(&object, |input| input.object).ok()?;
        Some(&mut self.inputs[place])
    }

    /// What is counted of it while it awaits data: its processors are others' until its inputs are there.
    fn awaited(&self) -> Awaited {
        let awaits = self.is_data_intensive && matches!(self.state, State::Queued | State::Staging { .. });
        if awaits { Awaited { tasks: 1, cpus_milli: self.need.cpus_milli.into() } } else { Awaited::default() }
    }

    pub fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        for input in &self.inputs {
            match input.origin.expect("a task is ready once its inputs are there") {
                Origin::Local => reads.local.add(input.size_bytes),
                Origin::Peer => reads.peer.add(input.size_bytes),
                Origin::Persistent => reads.persistent.add(input.size_bytes),
            }
        }
        reads
    }
}

/// `Queued → Staging → Ready → Running ⇄ Suspended`, and back from `Ready` to `Staging` when an input was lost; from any
/// before `Running` a task can be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for room in the store.
    Queued,
    /// Holds promises of all its inputs, of which so many are missing.
    Staging { missing: usize },
    /// Waits for a slot.
    Ready,
    /// Has a slot.
    Running { slot: u32 },
    /// Has a slot, and lends its processors to others.
    Suspended { slot: u32 },
}

struct Fetch {
    /// Tasks that wait for it; the first one's hints are used, and it counts the object as fetched.
    tasks: Vec<TaskId>,
    size_bytes: u64,
    tries: u32,
    /// Whether it has been asked for, or waits for its turn.
    under_way: bool,
    /// Whether the object has come into the store in another way.
    is_here: bool,
}

impl Fetch {
    fn new(tasks: Vec<TaskId>, size_bytes: u64) -> Self {
        Fetch { tasks, size_bytes, tries: 0, under_way: false, is_here: false }
    }
}

/// See the [crate's](crate) documentation.
pub struct Node {
    pub(crate) slots: Slots,
    space: Space,
    caching: bool,
    overlap: Overlap,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    /// Tasks in `Queued`: of higher priority first, of equals in order of arrival.
    queued: VecDeque<TaskId>,
    /// Tasks in `Ready`, in the order of their turns.
    pub(crate) ready: VecDeque<TaskId>,
    pub(crate) running: BTreeSet<Standing>,
    /// Tasks in `Suspended`, in the order in which they became so.
    pub(crate) suspended: Vec<TaskId>,
    /// Tasks that were ready so far.
    pub(crate) numbered: u64,
    /// Of all tasks.
    awaited: Awaited,
    /// Observed rate of one fetch; 0 while there was none.
    rate_bytes_per_s: u64,
    fetches: BTreeMap<ObjectId, Fetch>,
    /// Objects to fetch, when there are fewer than `max_fetches` under way.
    to_fetch: VecDeque<ObjectId>,
    under_way: usize,
    /// Of the fetches that are under way, those of objects that somebody gives.
    given: BTreeSet<ObjectId>,
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
        overlap: Overlap,
        max_fetches: usize,
        seed: u64,
    ) -> Self {
        Node {
            slots: Slots::new(capacity),
            space: Space::new(limits, eviction, seed),
            caching,
            overlap,
            tasks: BTreeMap::new(),
            queued: VecDeque::new(),
            ready: VecDeque::new(),
            running: BTreeSet::new(),
            suspended: Vec::new(),
            numbered: 0,
            awaited: Awaited::default(),
            rate_bytes_per_s: 0,
            fetches: BTreeMap::new(),
            to_fetch: VecDeque::new(),
            under_way: 0,
            given: BTreeSet::new(),
            max_fetches,
        }
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    ///
    /// # Panics
    /// If the event contradicts earlier ones.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Assigned { task, inputs, need, priority } => self.assigned(task, &inputs, need, priority, effects),
            Event::Recalled { task } => self.give_back(task, effects),
            Event::Cancelled { task } => match self.tasks.get(&task).map(|entry| entry.state) {
                Some(State::Running { .. } | State::Suspended { .. }) => effects.push(Effect::Kill { task }),
                _ => self.give_back(task, effects),
            },
            Event::Fetched { object, from, took_us } => self.fetched(object, from, took_us, effects),
            Event::FetchFailed { object, failure } => self.fetch_failed(object, &failure, effects),
            Event::Ended { task } => {
                let entry = self.forget(task, effects);
                self.leave_slot(task, &entry);
            }
            Event::Found { object, size_bytes } => self.found(object, size_bytes, effects),
            Event::Lost { object } => self.lost(object, effects),
            Event::Hold { object, size_bytes } => self.hold(object, size_bytes, effects),
            Event::Expect { object, size_bytes } => self.expect(object, size_bytes, effects),
            Event::Given { object, is_here } => self.given(object, is_here, effects),
            Event::FoundHeld { object, size_bytes } => self.found_held(object, size_bytes),
            Event::Release { object } => self.release(object, effects),
            Event::Produced { task, object, size_bytes } => self.produced(task, object, size_bytes, effects),
            Event::FreeSpace { bytes, inodes } => self.free_space(bytes, inodes),
        }
        self.admit(effects);
        self.fetch_next(effects);
        self.start_ready(effects);
    }

    /// How many tasks it was given and has not done with.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// How it stands.
    pub fn load(&self) -> ExecutorLoad {
        ExecutorLoad {
            computing: self.running.len() as u32,
            staging: self.awaited.tasks,
            suspended: self.suspended.len() as u32,
            lent_milli: if self.overlap.is_on { self.awaited.cpus_milli } else { 0 },
            light_bytes: self.overlap.threshold_bytes(self.rate_bytes_per_s),
        }
    }

    /// Bytes that the disk has for inputs and sandboxes: what is free, and what the store could give up.
    pub fn disk_bytes(&self) -> u64 {
        self.space.disk_bytes()
    }

    /// Bytes that there are for objects to hold: within the limits and on the disk, once all that may leave has left.
    pub fn free_bytes(&self) -> u64 {
        self.space.free_bytes()
    }

    // ---- staging

    fn assigned(
        &mut self,
        task: TaskId,
        inputs: &[(ObjectId, u64)],
        need: Resources,
        priority: i32,
        effects: &mut Vec<Effect>,
    ) {
        let inputs =
            inputs.iter().map(|(object, size_bytes)| Input { object: *object, size_bytes: *size_bytes, origin: None });
        let mut inputs: Vec<_> = inputs.collect();
        inputs.sort_unstable_by_key(|input| input.object);
        // An object that is named twice is read once.
        inputs.dedup_by_key(|input| input.object);
        if let Some(reason) = self.why_never(&inputs) {
            effects.push(Effect::Refuse { task, for_now: false, reason });
            return;
        }
        let missing = inputs.iter().filter(|input| !self.space.is_here(input.object));
        let missing = missing.map(|input| input.size_bytes).sum();
        let is_data_intensive = self.overlap.threshold_bytes(self.rate_bytes_per_s) <= missing;
        let entry = Task {
            inputs,
            need,
            priority,
            is_data_intensive,
            state: State::Queued,
            overtaken: 0,
            number: 0,
            jumped: false,
            passed: 0,
            suspensions: 0,
        };
        self.awaited += entry.awaited();
        assert!(self.tasks.insert(task, entry).is_none(), "task {task} assigned twice");
        // Behind the last that has no lower priority, or was overtaken often enough.
        let yields =
            |other: &TaskId| self.tasks[other].priority < priority && self.tasks[other].overtaken < MAX_OVERTAKEN;
        let place = self.queued.len() - self.queued.iter().rev().take_while(|other| yields(other)).count();
        for passed in self.queued.iter().skip(place) {
            self.tasks.get_mut(passed).expect("queued tasks are known").overtaken += 1;
        }
        self.queued.insert(place, task);
    }

    /// A task's move.
    pub(crate) fn enter(&mut self, task: TaskId, state: State) {
        let entry = self.tasks.get_mut(&task).unwrap_or_else(|| panic!("task {task} is not here"));
        self.awaited -= entry.awaited();
        entry.state = state;
        self.awaited += entry.awaited();
    }

    /// Whether the task's processors are free for it, so that it may be staged where computing and staging do not overlap.
    fn has_slot_for(&self, task: TaskId) -> bool {
        let mut free = self.slots.free().clone();
        let staged = |entry: &&Task| matches!(entry.state, State::Staging { .. } | State::Ready);
        for Task { need, .. } in self.tasks.values().filter(staged) {
            if !free.covers(need) {
                return false;
            }
            free.take(need);
        }
        free.covers(&self.tasks[&task].need)
    }

    /// Why these inputs are beyond the store's limits, if they are.
    fn why_never(&self, inputs: &[Input]) -> Option<String> {
        let total = inputs.iter().fold(0u64, |total, input| total.saturating_add(input.size_bytes));
        let limit = self.space.limit_bytes();
        if total > limit {
            return Some(format!(
                "its inputs are {}, the store holds {}: give executors a larger store (--cache)",
                units::format_bytes(total),
                units::format_bytes(limit)
            ));
        }
        let (count, most) = (inputs.len() as u64, self.space.limit_objects());
        (count > most).then(|| {
            format!("it reads {count} objects, the store holds {most}: give executors a larger store (--cache-objects)")
        })
    }

    /// Moves tasks from `Queued` on, in order of arrival, as far as the store has room. Past one that waits for room go
    /// some that need none.
    fn admit(&mut self, effects: &mut Vec<Effect>) {
        let mut place = 0;
        while let Some(task) = self.queued.get(place).copied() {
            let needs_none = self.tasks[&task].inputs.iter().all(|input| self.space.is_known(input.object));
            if !self.overlap.is_on && !self.has_slot_for(task) {
                break;
            }
            if (place == 0 || needs_none) && self.admit_one(task, effects) {
                self.queued.remove(place);
                for earlier in self.queued.iter().take(place) {
                    self.tasks.get_mut(earlier).expect("queued tasks are known").overtaken += 1;
                }
            } else if self.tasks[&task].overtaken >= MAX_OVERTAKEN || place as u32 >= MAX_OVERTAKEN {
                break;
            } else {
                place += 1;
            }
        }
    }

    /// Reserves room for all inputs of a queued task at once, or for none; false if it must wait. If there is nothing to
    /// wait for, the task is refused for now.
    fn admit_one(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        // What this task alone is promised is not in its way.
        let will_change = self.space.is_busy();
        let inputs = &self.tasks[&task].inputs;
        // Promise what is known first, so that it is not evicted for the rest.
        let (mut known, mut missing) = (Vec::new(), Room::default());
        for input in inputs {
            if self.space.is_known(input.object) {
                self.space.pin(input.object);
                known.push(input.object);
            } else {
                missing.bytes += input.size_bytes;
                missing.objects += 1;
            }
        }
        let mut evicted = Vec::new();
        if self.space.make_room(missing, &mut evicted) {
            effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
            self.promise(task);
            return true;
        }
        known.into_iter().for_each(|object| self.space.unpin(object));
        if will_change {
            return false;
        }
        let entry = self.tasks.remove(&task).expect("queued tasks are known");
        self.awaited -= entry.awaited();
        let total = entry.inputs.iter().map(|input| input.size_bytes).sum();
        let reason = format!("the disk under the store has no room for its inputs ({})", units::format_bytes(total));
        effects.push(Effect::Refuse { task, for_now: true, reason });
        true
    }

    /// Books the inputs of a task that has room for all of them; those that were known are pinned already.
    fn promise(&mut self, task: TaskId) {
        let entry = self.tasks.get_mut(&task).expect("the caller knows it");
        let mut missing = 0;
        for input in &mut entry.inputs {
            if self.space.is_here(input.object) {
                self.space.used(input.object);
                input.origin = Some(Origin::Local);
                continue;
            }
            missing += 1;
            if let Some(fetch) = self.fetches.get_mut(&input.object) {
                fetch.tasks.push(task);
                continue;
            }
            self.space.expect(input.object, input.size_bytes);
            self.space.pin(input.object);
            self.fetches.insert(input.object, Fetch::new(alloc::vec![task], input.size_bytes));
            self.to_fetch.push_back(input.object);
        }
        entry.overtaken = 0;
        if missing == 0 {
            self.enter_ready(task);
        } else {
            self.enter(task, State::Staging { missing });
        }
    }

    fn fetch_next(&mut self, effects: &mut Vec<Effect>) {
        while self.under_way < self.max_fetches {
            let Some(object) = self.to_fetch.pop_front() else { break };
            // Those nobody waits for any more were dropped from `fetches`.
            let Some(fetch) = self.fetches.get_mut(&object).filter(|fetch| !fetch.under_way) else { continue };
            fetch.under_way = true;
            fetch.tries += 1;
            self.under_way += 1;
            effects.push(Effect::Fetch { object, task: fetch.tasks.first().copied() });
        }
    }

    fn fetched(&mut self, object: ObjectId, from: Origin, took_us: u64, effects: &mut Vec<Effect>) {
        let Some(fetch) = self.fetches.remove(&object) else { panic!("{object} came without being asked for") };
        self.under_way -= 1;
        self.space.arrived(object);
        if from != Origin::Local {
            self.rate_bytes_per_s = overlap::learn_rate(self.rate_bytes_per_s, fetch.size_bytes, took_us);
        }
        for (place, task) in fetch.tasks.iter().enumerate() {
            let entry = self.tasks.get_mut(task).expect("waiting tasks are known");
            let input = entry.input(object).expect("a task waits for its inputs");
            input.origin = Some(if place == 0 { from } else { Origin::Local });
            let State::Staging { missing } = &mut entry.state else {
                panic!("task {task} waits but is {:?}", entry.state)
            };
            *missing -= 1;
            if *missing == 0 {
                self.enter_ready(*task);
            }
        }
        if fetch.tasks.is_empty() {
            self.drop_unless_cached(object, effects);
        }
    }

    fn fetch_failed(&mut self, object: ObjectId, failure: &FetchFailure, effects: &mut Vec<Effect>) {
        let Some(fetch) = self.fetches.get_mut(&object) else { panic!("{object} failed without being asked for") };
        if fetch.is_here {
            return self.fetched(object, Origin::Local, 0, effects);
        }
        fetch.under_way = false;
        self.under_way -= 1;
        let waited_for = !fetch.tasks.is_empty() || self.space.is_held(object);
        let (tries, size_bytes) = (fetch.tries, fetch.size_bytes);
        if *failure == FetchFailure::Full && waited_for && tries < FETCH_TRIES_ON_FULL_DISK {
            let mut evicted = Vec::new();
            if self.space.free_disk(size_bytes, &mut evicted) {
                effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
                self.to_fetch.push_back(object);
                return;
            }
        }
        let fetch = self.fetches.remove(&object).expect("looked up above");
        let reason = match failure {
            FetchFailure::Full => "its disk is full",
            FetchFailure::Unavailable => "it could not be fetched",
        };
        self.lost_hold(object, reason, effects);
        self.space.remove(object);
        for task in fetch.tasks {
            self.forget(task, effects);
            effects.push(match failure {
                FetchFailure::Full => {
                    let reason =
                        format!("its disk is full: no room for {object} ({})", units::format_bytes(size_bytes));
                    Effect::Refuse { task, for_now: true, reason }
                }
                FetchFailure::Unavailable => Effect::Fail { task, object },
            });
        }
    }

    fn found(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.space.is_known(object) {
            return;
        }
        if !self.caching || !self.space.found(object, size_bytes) {
            effects.push(Effect::Evict { object });
        }
    }

    fn lost(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        // If it is being fetched again already, the loss is one that was told of before.
        if let Some(fetch) = self.fetches.get_mut(&object) {
            fetch.is_here = false;
            return;
        }
        if !self.space.is_known(object) {
            return;
        }
        self.lost_hold(object, "it was damaged", effects);
        self.space.remove(object);
        let (mut waiting, mut size_bytes) = (Vec::new(), 0);
        for (task, entry) in &mut self.tasks {
            let missing = match entry.state {
                State::Queued => continue,
                State::Running { .. } | State::Suspended { .. } => {
                    // Its promise went with the object.
                    entry.inputs.retain(|input| input.object != object);
                    continue;
                }
                State::Staging { missing } => missing,
                State::Ready => 0,
            };
            let Some(input) = entry.input(object) else { continue };
            (input.origin, size_bytes) = (None, input.size_bytes);
            waiting.push((*task, missing + 1));
        }
        waiting.iter().for_each(|(task, missing)| self.enter(*task, State::Staging { missing: *missing }));
        let waiting: Vec<_> = waiting.into_iter().map(|(task, _)| task).collect();
        self.ready.retain(|task| !waiting.contains(task));
        if waiting.is_empty() {
            return;
        }
        // It takes the room that it had.
        self.space.expect(object, size_bytes);
        waiting.iter().for_each(|_| self.space.pin(object));
        self.fetches.insert(object, Fetch::new(waiting, size_bytes));
        self.to_fetch.push_back(object);
    }

    /// What waits for its turn to be fetched does not show on the disk; the store takes the room of what it was asked for.
    fn free_space(&mut self, bytes: u64, inodes: u64) {
        let mut free = Room { bytes, objects: inodes };
        for fetch in self.fetches.values().filter(|fetch| !fetch.under_way) {
            free.bytes = free.bytes.saturating_sub(fetch.size_bytes);
            free.objects = free.objects.saturating_sub(1);
        }
        self.space.set_free(free);
    }

    // ---- ends

    fn give_back(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        match self.tasks.get(&task).map(|entry| entry.state) {
            // It has ended, or will: the dispatcher hears of that.
            None | Some(State::Running { .. } | State::Suspended { .. }) => {}
            Some(_) => {
                self.forget(task, effects);
                effects.push(Effect::GiveBack { task });
            }
        }
    }

    /// Forgets a task and takes back its promises.
    fn forget(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> Task {
        let entry = self.tasks.remove(&task).unwrap_or_else(|| panic!("task {task} is not here"));
        self.awaited -= entry.awaited();
        match entry.state {
            State::Queued => self.queued.retain(|other| *other != task),
            State::Ready => self.ready.retain(|other| *other != task),
            State::Staging { .. } | State::Running { .. } | State::Suspended { .. } => {}
        }
        if entry.state == State::Queued {
            return entry;
        }
        for Input { object, .. } in &entry.inputs {
            let object = *object;
            self.space.unpin(object);
            match self.fetches.get_mut(&object) {
                Some(fetch) => {
                    fetch.tasks.retain(|other| *other != task);
                    if fetch.tasks.is_empty() && !fetch.under_way && !self.space.is_held(object) {
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
    pub(crate) fn fetches(&self) -> usize {
        self.fetches.len()
    }

    #[cfg(test)]
    pub(crate) fn validate(&self) {
        self.space.validate();
        let promised: usize = self.tasks.values().filter(|t| t.state != State::Queued).map(|t| t.inputs.len()).sum();
        assert_eq!(self.space.pins() as usize, promised, "promises are of tasks that have left the queue");
        assert!(self.under_way <= self.max_fetches);
        let under_way = self.fetches.values().filter(|fetch| fetch.under_way).count();
        assert_eq!(self.under_way + self.given.len(), under_way);
        let mut awaited = Awaited::default();
        self.tasks.values().for_each(|entry| awaited += entry.awaited());
        assert_eq!(self.awaited, awaited);
        self.validate_turns();
    }
}
