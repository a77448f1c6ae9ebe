//! The node's state machine: routes events to tasks, objects and slots, from a task's assignment to
//! its end.

use alloc::format;
use alloc::vec::Vec;

use eyas_types::{EvictionPolicy, ExecutorLoad, ObjectId, Origin, Resources, TaskId, units};

use crate::copies;
use crate::cores::Core;
use crate::event::{Effect, Event, FetchFailure};
use crate::fetches::ObjectFetches;
use crate::objects::NodeObjects;
use crate::overlap::Overlap;
use crate::queue::RoomQueue;
use crate::space::{Space, StoreLimits};
use crate::tasks::{NodeTask, NodeTasks, State};
use crate::turns::TaskTurns;

mod admission;
mod full_disk;

/// Number of starts of a task that finds the disk full each time.
pub(crate) const STARTS_ON_FULL_DISK: u32 = 8;
/// Number of tries to fetch an object that does not fit on the disk. Room is made before the second
/// one.
const FETCH_TRIES_ON_FULL_DISK: u32 = 2;

/// The decider of one node; the documentation of the [crate](crate) describes it.
pub struct Node {
    overlap: Overlap,
    tasks: NodeTasks,
    queue: RoomQueue,
    objects: NodeObjects,
    turns: TaskTurns,
    /// Room on the disk for what each task writes. 0 until a task has found the disk full, and
    /// again when no task is left.
    scratch_bytes: u64,
}

impl Node {
    /// A node with an empty store. It fetches up to `max_fetches` objects at a time. Without
    /// `caching`, an object is evicted as soon as no task needs it.
    pub fn new(
        capacity: Resources,
        limits: StoreLimits,
        eviction: EvictionPolicy,
        caching: bool,
        overlap: Overlap,
        max_fetches: usize,
        seed: u64,
    ) -> Self {
        let space = Space::new(limits, eviction, caching, seed);
        Node {
            overlap,
            tasks: NodeTasks::default(),
            queue: RoomQueue::new(),
            objects: NodeObjects { space, fetches: ObjectFetches::new(max_fetches) },
            turns: TaskTurns::new(capacity),
            scratch_bytes: 0,
        }
    }

    /// Pins tasks to these cores. No task has started yet.
    pub fn pin_to(&mut self, cores: Vec<Core>) {
        self.turns.pin_to(cores);
    }

    /// Applies one event, and appends the resulting actions to `effects`.
    ///
    /// # Panics
    /// If the event contradicts earlier ones.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        if !matches!(event, Event::Assigned { .. } | Event::Fetched { .. }) {
            self.queue.room_changed();
        }
        let objects = &mut self.objects;
        match event {
            Event::Assigned { task, inputs, need, priority } => {
                self.assigned(task, &inputs, need, priority, effects)
            }
            Event::Recalled { task } => self.return_task(task, effects),
            Event::Cancelled { task } => match self.tasks.state(task) {
                Some(State::Running | State::Suspended) => effects.push(Effect::Kill { task }),
                _ => self.return_task(task, effects),
            },
            Event::Fetched { object, from, took_us } => {
                self.fetched(object, from, took_us, effects)
            }
            Event::FetchFailed { object, failure } => self.fetch_failed(object, &failure, effects),
            Event::Ended { task } => {
                let entry = self.forget(task, effects);
                self.turns.leave_slot(task, &entry);
            }
            Event::OutOfDisk { task, written_bytes } => {
                self.out_of_disk(task, written_bytes, effects)
            }
            Event::Lent { task } => self.turns.lend(&mut self.tasks, task, effects),
            Event::Reclaimed { task } => self.turns.reclaim(&mut self.tasks, task, effects),
            Event::Found { object, size_bytes } => objects.found(object, size_bytes, effects),
            Event::Lost { object } => self.lost(object, effects),
            Event::Hold { object, size_bytes } => objects.hold(object, size_bytes, effects),
            Event::Offered { object, size_bytes } => objects.expect(object, size_bytes, effects),
            Event::TransferEnded { object, is_here } => self.given(object, is_here, effects),
            Event::FoundHeld { object, size_bytes } => objects.found_held(object, size_bytes),
            Event::Release { object } => objects.release(object, effects),
            Event::Discard { object } => objects.discard(object, effects),
            Event::Produced { task, object, size_bytes } => {
                if objects.produced(task, object, size_bytes, effects) {
                    self.fetched(object, Origin::Local, 0, effects);
                }
            }
            Event::Derived { task, source, object, size_bytes, took_us } => {
                if self.derived(task, (source, object), (size_bytes, took_us)) {
                    self.fetched(object, Origin::Local, 0, effects);
                }
            }
            Event::FreeSpace { bytes, inodes } => objects.set_free(bytes, inodes),
        }
        if self.tasks.len() == 0 {
            self.scratch_bytes = 0;
        }
        self.objects.shrink(effects);
        self.admit(effects);
        self.objects.fetches.start(effects);
        self.turns.start_ready(&mut self.tasks, effects);
    }

    /// Whether objects of these sizes can be in the store at the same time.
    pub fn can_hold(&self, sizes_bytes: impl Iterator<Item = u64>) -> bool {
        let total = sizes_bytes.fold(0u64, u64::saturating_add);
        total <= self.objects.space.limit_bytes()
    }

    /// Size of an object, if it is in the store.
    pub fn size_of(&self, object: ObjectId) -> Option<u64> {
        self.objects.space.size_of(object)
    }

    /// Number of assigned tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Present load, which the executor reports to the dispatcher.
    pub fn load(&self) -> ExecutorLoad {
        let awaited = self.tasks.awaited();
        ExecutorLoad {
            computing: self.turns.running() as u32,
            staging: awaited.tasks,
            suspended: self.turns.suspended() as u32,
            lent_milli: self.turns.lent_milli(&self.tasks)
                + if self.overlap.is_on { awaited.cpus_milli } else { 0 },
            light_bytes: self.light_bytes(),
        }
    }

    /// Bytes of the disk for inputs and sandboxes: free space above the floor, and all space that
    /// the store uses.
    pub fn disk_bytes(&self) -> u64 {
        self.objects.space.disk_bytes()
    }

    /// Bytes for further objects that are to be held, if all objects that are not held leave.
    pub fn free_bytes(&self) -> u64 {
        self.objects.space.free_bytes()
    }

    /// Whether at least one object is held, in the store or being fetched.
    pub fn holds_any(&self) -> bool {
        self.objects.space.holds_any()
    }

    /// Whether a folder of this size, which took this long to make, is given to other nodes. The
    /// store then has it twice: as a folder, and packed.
    pub fn gives_folder(&self, size_bytes: u64, made_us: u64) -> bool {
        let NodeObjects { space, fetches } = &self.objects;
        size_bytes <= space.limit_bytes() / 4
            && copies::is_worth_giving(size_bytes, made_us, fetches.rate_bytes_per_s())
    }

    /// Number of missing bytes from which a task is data-intensive.
    fn light_bytes(&self) -> u64 {
        self.overlap.threshold_bytes(self.objects.fetches.rate_bytes_per_s())
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
        let mut entry = NodeTask::new(inputs, need, priority);
        if let Some(reason) = self.why_never(&entry.inputs) {
            effects.push(Effect::Refuse { task, for_now: false, reason });
            return;
        }
        let missing = entry.inputs.iter().filter(|input| !self.objects.space.is_here(input.object));
        let missing = missing.map(|input| input.size_bytes).sum();
        entry.is_data_intensive = self.light_bytes() <= missing;
        self.tasks.insert(task, entry);
        self.queue.add(&mut self.tasks, task);
    }

    fn fetched(&mut self, object: ObjectId, from: Origin, took_us: u64, effects: &mut Vec<Effect>) {
        let fetch = self.objects.arrived(object, from, took_us, effects);
        for (index, task) in fetch.tasks.iter().enumerate() {
            let origin = if index == 0 { from } else { Origin::Local };
            if self.tasks.known(*task).input_arrived(object, origin) {
                self.turns.enter_ready(&mut self.tasks, *task);
            }
        }
        if fetch.tasks.is_empty() {
            self.queue.room_changed();
            self.objects.drop_unless_cached(object, effects);
        }
    }

    fn fetch_failed(
        &mut self,
        object: ObjectId,
        failure: &FetchFailure,
        effects: &mut Vec<Effect>,
    ) {
        let NodeObjects { space, fetches } = &mut self.objects;
        if fetches.get(object).is_some_and(|fetch| fetch.is_here) {
            return self.fetched(object, Origin::Local, 0, effects);
        }
        let fetch = fetches.ended(object);
        let waited_for = !fetch.tasks.is_empty() || space.is_held(object);
        let size_bytes = fetch.size_bytes;
        if *failure == FetchFailure::Full && waited_for && fetch.tries < FETCH_TRIES_ON_FULL_DISK {
            let mut evicted = Vec::new();
            if space.free_disk(size_bytes, &mut evicted) {
                effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
                fetches.try_again(object, fetch);
                return;
            }
        }
        let reason = match failure {
            FetchFailure::Full => "its disk is full",
            FetchFailure::Unavailable => "it could not be fetched",
        };
        self.objects.lost_hold(object, reason, effects);
        self.objects.space.remove(object);
        if *failure == FetchFailure::Unavailable {
            effects.push(Effect::GivenUp { object });
        }
        for task in fetch.tasks {
            let entry = self.forget(task, effects);
            match failure {
                FetchFailure::Full => {
                    let reason = format!(
                        "its disk is full: no room for {object} ({})",
                        units::format_bytes(size_bytes)
                    );
                    self.await_disk(task, entry, false, reason, effects);
                }
                FetchFailure::Unavailable => effects.push(Effect::Fail { task, object }),
            }
        }
    }

    /// The transfer of an object that another process sends has ended.
    fn given(&mut self, object: ObjectId, is_here: bool, effects: &mut Vec<Effect>) {
        match self.objects.fetches.given(object, is_here) {
            None => {}
            Some(false) => {
                self.objects.lost_hold(object, "the other process did not send it", effects);
                self.objects.space.release(object);
            }
            Some(true) if is_here => self.fetched(object, Origin::Peer, 0, effects),
            Some(true) => self.fetch_failed(object, &FetchFailure::Unavailable, effects),
        }
    }

    /// A running task reads something that was made of its input. Returns whether this ends a fetch
    /// of it for another task.
    fn derived(
        &mut self,
        task: TaskId,
        (source, object): (ObjectId, ObjectId),
        copy: (u64, Option<u64>),
    ) -> bool {
        let entry = self.tasks.known(task);
        if entry.derived.contains(&object) {
            return false;
        }
        entry.derived.push(object);
        self.objects.derived((source, object), copy)
    }

    fn lost(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        // If the object is being fetched, this is a second report of the same loss.
        if self.objects.fetches.lost(object) || !self.objects.space.is_known(object) {
            return;
        }
        self.objects.lost_hold(object, "it was damaged", effects);
        self.objects.space.remove(object);
        let (mut waiting, mut size_bytes) = (Vec::new(), 0);
        for (task, entry) in self.tasks.iter_mut() {
            let missing = match entry.state() {
                State::Queued => continue,
                State::Running | State::Suspended => {
                    // The pin has gone with the object.
                    entry.inputs.retain(|input| input.object != object);
                    entry.derived.retain(|derived| *derived != object);
                    continue;
                }
                State::Staging { missing } => missing,
                State::Ready => 0,
            };
            let Some(input) = entry.input(object) else { continue };
            (input.origin, size_bytes) = (None, input.size_bytes);
            waiting.push((task, missing + 1));
        }
        waiting.iter().for_each(|(task, missing)| {
            self.tasks.enter(*task, State::Staging { missing: *missing })
        });
        let waiting: Vec<_> = waiting.into_iter().map(|(task, _)| task).collect();
        self.turns.forget_ready(&waiting);
        if !waiting.is_empty() {
            self.objects.bring_back(object, size_bytes, waiting);
        }
    }

    // ---- ends

    fn return_task(&mut self, task: TaskId, effects: &mut Vec<Effect>) {
        match self.tasks.state(task) {
            // The task has ended, or will end: the dispatcher gets its outcome.
            None | Some(State::Running | State::Suspended) => {}
            Some(_) => {
                let entry = self.forget(task, effects);
                if !entry.is_admitted() {
                    self.objects.give_up_unknown(&entry.inputs, effects);
                }
                effects.push(Effect::ReturnTask { task });
            }
        }
    }

    /// Forgets a task and removes its pins.
    fn forget(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> NodeTask {
        let entry = self.tasks.remove(task);
        match entry.state() {
            State::Queued => self.queue.forget(task),
            State::Ready => self.turns.forget_ready(&[task]),
            State::Staging { .. } | State::Running | State::Suspended => {}
        }
        if entry.is_admitted() {
            self.objects.leave(task, &entry.inputs, effects);
            self.objects.leave_derived(&entry.derived, effects);
        }
        entry
    }

    #[cfg(test)]
    pub(crate) fn fetches(&self) -> usize {
        self.objects.fetches.len()
    }

    #[cfg(test)]
    pub(crate) fn validate(&self) {
        let NodeObjects { space, fetches } = &self.objects;
        space.validate();
        let promised: usize = self
            .tasks
            .values()
            .filter(|entry| entry.is_admitted())
            .map(|entry| entry.inputs.len() + entry.derived.len())
            .sum();
        assert_eq!(
            space.pins() as usize,
            promised,
            "each pin belongs to a task that has left the queue"
        );
        fetches.validate();
        self.tasks.validate();
        self.turns.validate(&self.tasks);
    }
}
