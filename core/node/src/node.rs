//! The node's state machine: tasks from assignment to end, and fetches of their inputs.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use eyas_types::{EvictionPolicy, ExecutorLoad, ObjectId, Origin, Reads, Resources, TaskId, units};

use crate::cores::Core;
use crate::event::{Effect, Event, FetchFailure};
use crate::overlap::{self, Awaited, Overlap};
use crate::slots::{Slots, TakenSlot};
use crate::space::{Space, StoreAmount, StoreLimits};
use crate::turns::SuspensionKey;

mod admission;
mod full_disk;
mod hold;

/// Number of tasks that may overtake a task that waits for room in the store: tasks that need no room, or have a higher
/// priority. Then all tasks wait for it. Also the number of waiting tasks that one task may overtake at a time.
const MAX_OVERTAKEN: u32 = 8;
/// Number of starts of a task that finds the disk full each time.
pub(crate) const STARTS_ON_FULL_DISK: u32 = 8;
/// Number of tries to fetch an object that does not fit on the disk. Room is made before the second one.
const FETCH_TRIES_ON_FULL_DISK: u32 = 2;

#[derive(Debug)]
pub(crate) struct NodeTask {
    /// Sorted by object.
    inputs: Vec<Input>,
    pub need: Resources,
    pub priority: i32,
    /// Whether other tasks compute while it is staged, because many bytes of its inputs were missing on arrival.
    pub is_data_intensive: bool,
    pub state: State,
    /// Its slot while it is running or suspended.
    pub slot: TakenSlot,
    /// Number of tasks that have overtaken it in its present state.
    pub overtaken: u32,
    /// Sequence number in the order in which tasks became ready.
    pub number: u64,
    /// Whether it was put before other ready tasks when it became ready.
    pub jumped: bool,
    /// Number of tasks that became ready later and have started before it, or while it was suspended.
    pub passed: u32,
    pub suspensions: u32,
    /// How often it has found the disk full.
    found_full: u32,
    /// Whether it has lent its processors. It is suspended then, but its processes run.
    pub lends: bool,
    /// Whether it is to be told when it has its processors again.
    pub reclaims: bool,
    /// The node's `room_changes` when there was last no room for its inputs.
    no_room_at: u64,
}

#[derive(Debug)]
struct Input {
    object: ObjectId,
    size_bytes: u64,
    /// Where the object came from; `None` until it is in the store.
    origin: Option<Origin>,
}

impl NodeTask {
    fn input(&mut self, object: ObjectId) -> Option<&mut Input> {
        let index = self.inputs.binary_search_by_key(&object, |input| input.object).ok()?;
        Some(&mut self.inputs[index])
    }

    /// Its contribution to the node's `awaited`: other tasks use its processors until its inputs are in the store.
    fn awaited(&self) -> Awaited {
        let awaits = self.is_data_intensive && matches!(self.state, State::Queued | State::Staging { .. });
        if awaits { Awaited { tasks: 1, cpus_milli: self.need.cpus_milli.into() } } else { Awaited::default() }
    }

    pub fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        for input in &self.inputs {
            let origin = input.origin.expect("all inputs of a ready task are in the store");
            reads.add(origin, input.size_bytes);
        }
        reads
    }
}

/// [`State::may_become`] has the moves. Before `Running`, a task can be forgotten in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for room in the store.
    Queued,
    /// All its inputs are pinned, and `missing` of them are not in the store yet.
    Staging { missing: usize },
    /// Waits for a slot.
    Ready,
    /// Has a slot.
    Running,
    /// Has a slot, and lends its processors to other tasks.
    Suspended,
}

impl State {
    /// Whether a task may go from this state to the next one. An input that was lost takes a task back to `Staging`.
    fn may_become(self, next: State) -> bool {
        matches!(
            (self, next),
            (State::Queued | State::Staging { .. } | State::Ready, State::Staging { .. })
                | (State::Queued | State::Staging { .. }, State::Ready)
                | (State::Ready | State::Suspended, State::Running)
                | (State::Running, State::Suspended)
        )
    }
}

struct Fetch {
    /// Tasks that wait for the object. The fetch uses the hints of the first one, and is counted as that task's read.
    tasks: Vec<TaskId>,
    size_bytes: u64,
    tries: u32,
    /// Whether the shell was told to fetch the object. If not, the fetch waits for its turn.
    under_way: bool,
    /// Whether the object has reached the store in another way meanwhile: as an output of a task.
    is_here: bool,
}

impl Fetch {
    fn new(tasks: Vec<TaskId>, size_bytes: u64) -> Self {
        Fetch { tasks, size_bytes, tries: 0, under_way: false, is_here: false }
    }
}

/// The decider of one node; the documentation of the [crate](crate) describes it.
pub struct Node {
    pub(crate) slots: Slots,
    space: Space,
    caching: bool,
    overlap: Overlap,
    /// Room on the disk for what each task writes. 0 until a task has found the disk full, and again when no task is
    /// left.
    scratch_bytes: u64,
    pub(crate) tasks: BTreeMap<TaskId, NodeTask>,
    /// Tasks in `Queued`, by falling priority, then by arrival.
    queued: VecDeque<TaskId>,
    /// Number of times that the room for inputs has changed. A task that found none is not looked at before the next
    /// change: it may have a million inputs, of which each arrives in an event of its own.
    room_changes: u64,
    /// Tasks in `Ready`, in the order in which they start.
    pub(crate) ready: VecDeque<TaskId>,
    pub(crate) running: BTreeSet<SuspensionKey>,
    /// Tasks in `Suspended`, in the order in which they were suspended.
    pub(crate) suspended: Vec<TaskId>,
    /// Number of tasks that became ready so far.
    pub(crate) numbered: u64,
    /// Sum over all tasks.
    awaited: Awaited,
    /// Observed rate of one fetch; 0 before the first fetch.
    rate_bytes_per_s: u64,
    fetches: BTreeMap<ObjectId, Fetch>,
    /// Objects to fetch when fewer than `max_fetches` fetches are under way.
    to_fetch: VecDeque<ObjectId>,
    /// Number of fetches under way, without those in `given`.
    under_way: usize,
    /// Fetches under way that another process delivers of its own accord.
    given: BTreeSet<ObjectId>,
    /// Objects that stay only because tasks need them.
    unwanted: BTreeSet<ObjectId>,
    max_fetches: usize,
}

impl Node {
    /// A node with an empty store. It fetches up to `max_fetches` objects at a time. Without `caching`, an object is
    /// evicted as soon as no task needs it.
    pub fn new(
        capacity: Resources,
        limits: StoreLimits,
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
            scratch_bytes: 0,
            tasks: BTreeMap::new(),
            queued: VecDeque::new(),
            room_changes: 1,
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
            unwanted: BTreeSet::new(),
            max_fetches,
        }
    }

    /// Pins tasks to these cores. No task has started yet.
    pub fn pin_to(&mut self, cores: Vec<Core>) {
        self.slots.pin_to(cores);
    }

    /// Applies one event, and appends the resulting actions to `effects`.
    ///
    /// # Panics
    /// If the event contradicts earlier ones.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.room_changes += u64::from(!matches!(event, Event::Assigned { .. } | Event::Fetched { .. }));
        match event {
            Event::Assigned { task, inputs, need, priority } => self.assigned(task, &inputs, need, priority, effects),
            Event::Recalled { task } => self.give_back(task, effects),
            Event::Cancelled { task } => match self.tasks.get(&task).map(|entry| entry.state) {
                Some(State::Running | State::Suspended) => effects.push(Effect::Kill { task }),
                _ => self.give_back(task, effects),
            },
            Event::Fetched { object, from, took_us } => self.fetched(object, from, took_us, effects),
            Event::FetchFailed { object, failure } => self.fetch_failed(object, &failure, effects),
            Event::Ended { task } => {
                let entry = self.forget(task, effects);
                self.leave_slot(task, &entry);
            }
            Event::OutOfDisk { task, written_bytes } => self.out_of_disk(task, written_bytes, effects),
            Event::Lent { task } => self.lend(task, effects),
            Event::Reclaimed { task } => self.reclaim(task, effects),
            Event::Found { object, size_bytes } => self.found(object, size_bytes, effects),
            Event::Lost { object } => self.lost(object, effects),
            Event::Hold { object, size_bytes } => self.hold(object, size_bytes, effects),
            Event::Offered { object, size_bytes } => self.expect(object, size_bytes, effects),
            Event::TransferEnded { object, is_here } => self.given(object, is_here, effects),
            Event::FoundHeld { object, size_bytes } => self.found_held(object, size_bytes),
            Event::Release { object } => self.release(object, effects),
            Event::Discard { object } => {
                self.unwanted.insert(object);
                self.release(object, effects);
                if !self.space.is_known(object) {
                    self.unwanted.remove(&object);
                }
            }
            Event::Produced { task, object, size_bytes } => self.produced(task, object, size_bytes, effects),
            Event::FreeSpace { bytes, inodes } => self.free_space(bytes, inodes),
        }
        if self.tasks.is_empty() {
            self.scratch_bytes = 0;
        }
        self.admit(effects);
        self.fetch_next(effects);
        self.start_ready(effects);
    }

    /// Number of assigned tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Present load, which the executor reports to the dispatcher.
    pub fn load(&self) -> ExecutorLoad {
        ExecutorLoad {
            computing: self.running.len() as u32,
            staging: self.awaited.tasks,
            suspended: self.suspended.len() as u32,
            lent_milli: self.lent_milli() + if self.overlap.is_on { self.awaited.cpus_milli } else { 0 },
            light_bytes: self.overlap.threshold_bytes(self.rate_bytes_per_s),
        }
    }

    /// Bytes of the disk for inputs and sandboxes: free space above the floor, and all space that the store uses.
    pub fn disk_bytes(&self) -> u64 {
        self.space.disk_bytes()
    }

    /// Bytes for further objects that are to be held, if all objects that are not held leave.
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
        let input = |(object, size_bytes): &(_, _)| Input { object: *object, size_bytes: *size_bytes, origin: None };
        let mut inputs: Vec<_> = inputs.iter().map(input).collect();
        inputs.sort_unstable_by_key(|input| input.object);
        inputs.dedup_by_key(|input| input.object);
        if let Some(reason) = self.why_never(&inputs) {
            effects.push(Effect::Refuse { task, for_now: false, reason });
            return;
        }
        let missing = inputs.iter().filter(|input| !self.space.is_here(input.object));
        let missing = missing.map(|input| input.size_bytes).sum();
        let is_data_intensive = self.overlap.threshold_bytes(self.rate_bytes_per_s) <= missing;
        let entry = NodeTask {
            inputs,
            need,
            priority,
            is_data_intensive,
            state: State::Queued,
            slot: TakenSlot::default(),
            overtaken: 0,
            number: 0,
            jumped: false,
            passed: 0,
            suspensions: 0,
            found_full: 0,
            lends: false,
            reclaims: false,
            no_room_at: 0,
        };
        self.awaited += entry.awaited();
        assert!(self.tasks.insert(task, entry).is_none(), "task {task} assigned twice");
        // Overtakes tasks of lower priority, up to one that was overtaken `MAX_OVERTAKEN` times.
        let yields =
            |other: &TaskId| self.tasks[other].priority < priority && self.tasks[other].overtaken < MAX_OVERTAKEN;
        let index = self.queued.len() - self.queued.iter().rev().take_while(|other| yields(other)).count();
        for passed in self.queued.iter().skip(index) {
            self.tasks.get_mut(passed).expect("queued tasks are known").overtaken += 1;
        }
        self.queued.insert(index, task);
    }

    /// Moves a task to another state.
    pub(crate) fn enter(&mut self, task: TaskId, state: State) {
        let entry = self.tasks.get_mut(&task).unwrap_or_else(|| panic!("task {task} is not here"));
        let before = entry.state;
        assert!(before.may_become(state), "task {task} cannot go from {before:?} to {state:?}: {entry:?}");
        self.awaited -= entry.awaited();
        entry.state = state;
        self.awaited += entry.awaited();
    }

    /// Starts to stage a task, for which room was reserved. Inputs that were known are pinned already.
    fn promise(&mut self, task: TaskId) {
        self.room_changes += 1;
        let entry = self.tasks.get_mut(&task).expect("the caller knows the task");
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
            // If no task waits for the object any longer, its fetch was removed.
            let Some(fetch) = self.fetches.get_mut(&object).filter(|fetch| !fetch.under_way) else { continue };
            fetch.under_way = true;
            fetch.tries += 1;
            self.under_way += 1;
            effects.push(Effect::Fetch { object, task: fetch.tasks.first().copied() });
        }
    }

    fn fetched(&mut self, object: ObjectId, from: Origin, took_us: u64, effects: &mut Vec<Effect>) {
        let Some(fetch) = self.fetches.remove(&object) else { panic!("{object} was fetched without an order") };
        self.under_way -= 1;
        self.space.arrived(object);
        if self.space.is_held(object) {
            effects.push(Effect::Held { object });
        }
        if from != Origin::Local {
            self.rate_bytes_per_s = overlap::learn_rate(self.rate_bytes_per_s, fetch.size_bytes, took_us);
        }
        for (index, task) in fetch.tasks.iter().enumerate() {
            let entry = self.tasks.get_mut(task).expect("waiting tasks are known");
            let input = entry.input(object).expect("a task waits for its inputs");
            input.origin = Some(if index == 0 { from } else { Origin::Local });
            let State::Staging { missing } = &mut entry.state else {
                panic!("task {task} waits for an input, but its state is {:?}", entry.state)
            };
            *missing -= 1;
            if *missing == 0 {
                self.enter_ready(*task);
            }
        }
        if fetch.tasks.is_empty() {
            self.room_changes += 1;
            self.drop_unless_cached(object, effects);
        }
    }

    fn fetch_failed(&mut self, object: ObjectId, failure: &FetchFailure, effects: &mut Vec<Effect>) {
        let Some(fetch) = self.fetches.get_mut(&object) else { panic!("{object} failed without an order to fetch") };
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
            let entry = self.forget(task, effects);
            match failure {
                FetchFailure::Full => {
                    let reason =
                        format!("its disk is full: no room for {object} ({})", units::format_bytes(size_bytes));
                    self.await_disk(task, entry, false, reason, effects);
                }
                FetchFailure::Unavailable => effects.push(Effect::Fail { task, object }),
            }
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
        // If the object is being fetched, this is a second report of the same loss.
        if let Some(fetch) = self.fetches.get_mut(&object) {
            fetch.is_here = false;
            return;
        }
        if !self.space.is_known(object) {
            return;
        }
        self.lost_hold(object, "it was damaged", effects);
        self.space.remove(object);
        self.unwanted.remove(&object);
        let (mut waiting, mut size_bytes) = (Vec::new(), 0);
        for (task, entry) in &mut self.tasks {
            let missing = match entry.state {
                State::Queued => continue,
                State::Running | State::Suspended => {
                    // The pin has gone with the object.
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
        // The object takes the room that it had before, so no room is made.
        self.space.expect(object, size_bytes);
        waiting.iter().for_each(|_| self.space.pin(object));
        self.fetches.insert(object, Fetch::new(waiting, size_bytes));
        self.to_fetch.push_back(object);
    }

    /// Subtracts the space for fetches that wait for their turn. The shell has subtracted that for fetches under way.
    fn free_space(&mut self, bytes: u64, inodes: u64) {
        let mut free = StoreAmount { bytes, objects: inodes };
        for fetch in self.fetches.values().filter(|fetch| !fetch.under_way) {
            free.bytes = free.bytes.saturating_sub(fetch.size_bytes);
            free.objects = free.objects.saturating_sub(1);
        }
        self.space.set_free(free);
    }

    // ---- ends

    fn give_back(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        match self.tasks.get(&task).map(|entry| entry.state) {
            // The task has ended, or will end: the dispatcher gets its outcome.
            None | Some(State::Running | State::Suspended) => {}
            Some(_) => {
                self.forget(task, effects);
                effects.push(Effect::GiveBack { task });
            }
        }
    }

    /// Forgets a task and removes its pins.
    fn forget(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> NodeTask {
        let entry = self.tasks.remove(&task).unwrap_or_else(|| panic!("task {task} is not here"));
        self.awaited -= entry.awaited();
        match entry.state {
            State::Queued => self.queued.retain(|other| *other != task),
            State::Ready => self.ready.retain(|other| *other != task),
            State::Staging { .. } | State::Running | State::Suspended => {}
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

    /// Evicts an object that is idle, without caching or if nothing will need it again.
    fn drop_unless_cached(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.space.is_idle(object) && (self.unwanted.remove(&object) || !self.caching) {
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
        assert_eq!(self.space.pins() as usize, promised, "each pin belongs to a task that has left the queue");
        assert!(self.under_way <= self.max_fetches);
        let under_way = self.fetches.values().filter(|fetch| fetch.under_way).count();
        assert_eq!(self.under_way + self.given.len(), under_way);
        let mut awaited = Awaited::default();
        self.tasks.values().for_each(|entry| awaited += entry.awaited());
        assert_eq!(self.awaited, awaited);
        self.validate_turns();
    }
}
