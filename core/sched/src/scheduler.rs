//! The scheduler's state machine: applies events, then lets executors that can take work look for some.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, JobId, ObjectId, PlacementPolicy, Resources, TaskId};

use crate::catalog::{Catalog, ObjectKey, Wait};
use crate::executors::{ExecutorKey, Executors, Held, Level};
use crate::placement::{self, Otherwise, Placement};
use crate::queue::{Queue, State, TaskKey, Ticket};
use crate::search::{self, FULL};

/// Most holders named in a [`Hint`].
pub const MAX_HINTS: usize = 4;
/// Tasks looked at, of one class and from the oldest on, for one that the executor may take without holding any of it.
const HEAD_LOOKS: usize = 64;
/// Lined-up tasks that are looked at after one event, for some to ask back.
const RECALL_LOOKS: usize = 16;
/// Parked executors that are offered the oldest task after one event.
const PARKED_LOOKS: usize = 64;

/// How a scheduler decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// The placement policy.
    pub policy: PlacementPolicy,
    /// GCC's threshold (the paper uses 0.8 and 0.9).
    pub utilisation_threshold: f64,
    /// `W`: entries looked at in one decision, and how often the oldest task may be overtaken. `None`: 100 for each
    /// executor, at least 2,500 (data-diffusion §4.4, §5.1.1).
    pub window: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Config { policy: PlacementPolicy::GoodCacheCompute, utilisation_threshold: 0.9, window: None }
    }
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An executor is there, with nothing on it.
    ExecutorJoined {
        /// Its id, never used before.
        executor: ExecutorId,
        /// What it has for tasks.
        capacity: Resources,
    },
    /// An executor is gone, with all it held. Its tasks are queued again, first in line.
    ExecutorLeft {
        /// Which.
        executor: ExecutorId,
    },
    /// A task may run.
    TaskReady {
        /// Its id, not in use.
        task: TaskId,
        /// Objects it reads, with their sizes in bytes; each once.
        inputs: Box<[(ObjectId, u64)]>,
        /// What it holds while it runs.
        need: Resources,
    },
    /// A task shall not run, or not go on.
    TaskCancelled {
        /// Which.
        task: TaskId,
    },
    /// A task is over, wherever it is; if it was assigned, its executor is about to leave.
    TaskDropped {
        /// Which.
        task: TaskId,
    },
    /// An executor has done with a task.
    TaskEnded {
        /// The executor it was assigned to.
        executor: ExecutorId,
        /// Which.
        task: TaskId,
        /// How.
        ended: Ended,
        /// How long it ran, microseconds.
        ran_us: u64,
    },
    /// An executor holds a replica.
    Stored {
        /// Which.
        executor: ExecutorId,
        /// Of which object.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// An executor no longer holds a replica.
    Evicted {
        /// Which.
        executor: ExecutorId,
        /// Of which object.
        object: ObjectId,
    },
}

/// How an executor has done with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// For good.
    Finished,
    /// It is to be tried again, anywhere.
    Again,
    /// It was given back before it started.
    Returned,
    /// This executor cannot take it; another may.
    Refused,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give the task to the executor.
    Assign {
        /// To which.
        executor: ExecutorId,
        /// Which task.
        task: TaskId,
        /// How often it was assigned before.
        attempt: u32,
        /// Who holds the inputs that this executor does not.
        hints: Box<[Hint]>,
    },
    /// Ask for a task back if it has not started, because another executor is idle.
    Recall {
        /// From which.
        executor: ExecutorId,
        /// Which task.
        task: TaskId,
    },
    /// Kill a task.
    Cancel {
        /// On which.
        executor: ExecutorId,
        /// Which task.
        task: TaskId,
    },
    /// Every executor there is has refused the task; it is forgotten.
    Unplaceable {
        /// Which.
        task: TaskId,
    },
}

/// Who holds an input: a hint, never a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The input's place among the task's inputs.
    pub input: u16,
    /// Up to [`MAX_HINTS`] holders, the first to be tried first.
    pub holders: Box<[ExecutorId]>,
}

/// See the [crate's](crate) documentation.
pub struct Scheduler {
    config: Config,
    policy: Box<dyn Placement>,
    pub(crate) queue: Queue,
    pub(crate) catalog: Catalog,
    pub(crate) executors: Executors,
    /// Waiting tasks of whose inputs nobody holds any; kept only where the policy may hold others back. Entries
    /// that are no longer cold are skipped.
    cold: VecDeque<Ticket>,
    /// Tasks that came to wait in this event.
    newcomers: Vec<Ticket>,
    /// Processors of tasks that were asked back and have not come, in thousandths.
    recalled_milli: u64,
    /// The last executor that was looked at for tasks to ask back.
    recall_from: ExecutorKey,
    decisions: u64,
}

impl Scheduler {
    /// An empty scheduler.
    pub fn new(config: Config) -> Self {
        Scheduler {
            policy: placement::of(config.policy, config.utilisation_threshold),
            config,
            queue: Queue::default(),
            catalog: Catalog::default(),
            executors: Executors::default(),
            cold: VecDeque::new(),
            newcomers: Vec::new(),
            recalled_milli: 0,
            recall_from: ExecutorKey::FIRST,
            decisions: 0,
        }
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    ///
    /// # Panics
    /// If the event contradicts earlier ones (a task submitted twice, an end of a task that was not assigned).
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::ExecutorJoined { executor, capacity } => {
                let key = self.executors.join(executor, capacity);
                self.executors.make_ready(key, Level::Slot);
            }
            Event::ExecutorLeft { executor } => self.executor_left(executor, effects),
            Event::TaskReady { task, inputs, need } => self.task_ready(task, &inputs, &need),
            Event::TaskCancelled { task } => self.task_cancelled(task, effects),
            Event::TaskDropped { task } => self.task_dropped(task),
            Event::TaskEnded { executor, task, ended, ran_us } => {
                self.task_ended(executor, task, ended, ran_us, effects);
            }
            Event::Stored { executor, object, size_bytes } => self.stored(executor, object, size_bytes),
            Event::Evicted { executor, object } => self.evicted(executor, object),
        }
        self.place(effects);
    }

    /// Forgets a job all of whose tasks are forgotten.
    pub fn forget_job(&mut self, job: JobId) {
        self.queue.remove_job(job);
    }

    /// How many tasks wait.
    pub fn waiting(&self) -> u64 {
        self.queue.waiting()
    }

    /// How many objects the catalog knows.
    pub fn objects(&self) -> usize {
        self.catalog.len()
    }

    /// Share of processors with a task.
    pub fn utilisation(&self) -> placement::Utilisation {
        self.executors.utilisation()
    }

    /// How many tasks were assigned so far.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    #[cfg(test)]
    pub(crate) fn policy_name(&self) -> PlacementPolicy {
        self.config.policy
    }

    pub(crate) fn window(&self) -> u64 {
        self.config.window.unwrap_or_else(|| (100 * self.executors.len() as u64).max(2_500))
    }

    // ---- events

    fn task_ready(&mut self, id: TaskId, inputs: &[(ObjectId, u64)], need: &Resources) {
        let keys: Vec<_> = inputs.iter().map(|(id, size_bytes)| self.catalog.refer(*id, *size_bytes)).collect();
        let task = self.queue.insert(id, &keys, need);
        self.enqueue(task, false);
    }

    fn task_cancelled(&mut self, id: TaskId, effects: &mut Vec<Effect>) {
        let Some(task) = self.queue.find(id) else { return };
        match self.queue[task].state {
            State::Waiting => {
                self.dequeue(task);
                self.forget(task);
            }
            State::Assigned { executor, .. } => {
                effects.push(Effect::Cancel { executor: self.executors[executor].id, task: id });
            }
            State::Held | State::Forgotten => unreachable!("task {id} is between two states"),
        }
    }

    fn task_dropped(&mut self, id: TaskId) {
        let Some(task) = self.queue.find(id) else { return };
        match self.queue[task].state {
            State::Waiting => self.dequeue(task),
            State::Assigned { executor, .. } => self.unassign(task, executor),
            State::Held | State::Forgotten => unreachable!("task {id} is between two states"),
        }
        self.forget(task);
    }

    fn task_ended(&mut self, executor: ExecutorId, id: TaskId, ended: Ended, ran_us: u64, effects: &mut Vec<Effect>) {
        let by = self.executors.find(executor).unwrap_or_else(|| panic!("{executor} ended {id} but never joined"));
        let task = self.queue.find(id).unwrap_or_else(|| panic!("{executor} ended {id}, which is not known"));
        self.unassign(task, by);
        match ended {
            Ended::Finished => {
                self.executors[by].learn_run_time(ran_us);
                self.forget(task);
            }
            Ended::Again => self.enqueue(task, true),
            Ended::Returned => {
                // It was not tried.
                self.queue[task].attempt -= 1;
                self.enqueue(task, true);
            }
            Ended::Refused => {
                self.queue[task].was_refused = true;
                self.queue.refusals.entry(task).or_default().push(by);
                if self.executors.all().all(|(key, _)| search::has_refused(&self.queue, key, task)) {
                    effects.push(Effect::Unplaceable { task: id });
                    self.forget(task);
                } else {
                    self.enqueue(task, true);
                }
            }
        }
        self.executors.make_ready(by, Level::Slot);
    }

    fn executor_left(&mut self, id: ExecutorId, effects: &mut Vec<Effect>) {
        let Some(gone) = self.executors.find(id) else { return };
        let mut objects: Vec<_> = self.executors[gone].held.keys().copied().collect();
        objects.sort_unstable();
        for object in objects {
            self.drop_replica(gone, object);
        }
        let mut tasks = self.executors[gone].in_flight.clone();
        // Queued again at the front, newest first, so that they are in their old order.
        tasks.sort_unstable_by_key(|task| core::cmp::Reverse(self.queue[*task].id));
        for task in tasks {
            self.unassign(task, gone);
            self.enqueue(task, true);
        }
        for refusals in self.queue.refusals.values_mut() {
            refusals.retain(|by| *by != gone);
        }
        self.executors.leave(gone);
        self.give_up_on_refused(effects);
    }

    /// With one executor less, a task may have been refused by all that are left.
    fn give_up_on_refused(&mut self, effects: &mut Vec<Effect>) {
        if self.executors.all().next().is_none() {
            return;
        }
        let refused: Vec<_> = self.queue.refusals.keys().copied().collect();
        for task in refused {
            let waits = self.queue[task].state == State::Waiting;
            if waits && self.executors.all().all(|(key, _)| search::has_refused(&self.queue, key, task)) {
                effects.push(Effect::Unplaceable { task: self.queue[task].id });
                self.dequeue(task);
                self.forget(task);
            }
        }
    }

    fn stored(&mut self, executor: ExecutorId, object: ObjectId, size_bytes: u64) {
        let Some(by) = self.executors.find(executor) else { return };
        let key = self.catalog.key_for_replica(object, size_bytes);
        let object = &mut self.catalog[key];
        let wanted = object.wanted > 0;
        let place = object.holders.len() as u32;
        let held = Held { place, cursor: 0, searched: false, alerted: wanted };
        match self.executors[by].held.entry(key) {
            hashbrown::hash_map::Entry::Occupied(_) => return,
            hashbrown::hash_map::Entry::Vacant(entry) => entry.insert(held),
        };
        object.holders.push(by);
        if wanted {
            self.executors[by].to_search.push_back(key);
            self.executors.unpark(by);
        } else {
            object.to_tell.push(by);
        }
    }

    fn evicted(&mut self, executor: ExecutorId, object: ObjectId) {
        let Some(by) = self.executors.find(executor) else { return };
        if let Some(key) = self.catalog.find(object)
            && self.executors[by].held.contains_key(&key)
        {
            self.drop_replica(by, key);
        }
    }

    fn drop_replica(&mut self, by: ExecutorKey, key: ObjectKey) {
        let held = self.executors[by].held.remove(&key).expect("the caller has looked");
        let object = &mut self.catalog[key];
        object.holders.swap_remove(held.place as usize);
        if !held.alerted {
            let place = object.to_tell.iter().position(|other| *other == by);
            object.to_tell.swap_remove(place.expect("who is not alerted is to be told"));
        }
        if let Some(moved) = object.holders.get(held.place as usize).copied() {
            let moved = self.executors[moved].held.get_mut(&key);
            moved.expect("a holder holds").place = held.place;
        }
        if self.catalog[key].holders.is_empty() {
            let waiting: Vec<_> = self.catalog[key].waiting.iter().map(|wait| wait.ticket).collect();
            for ticket in waiting {
                if self.queue.is_waiting(ticket) && self.is_cold(ticket.task) {
                    self.list_cold(ticket, false);
                }
            }
        }
        self.catalog.forget_if_unused(key);
    }

    // ---- a task's moves

    /// Puts a held task into the queue, and tells those who hold its inputs.
    fn enqueue(&mut self, task: TaskKey, front: bool) {
        let ticket = self.queue.push(task, front);
        if !self.policy.is_data_aware() {
            return;
        }
        self.newcomers.push(ticket);
        let mut cold = true;
        for place in 0..self.queue[task].inputs.as_slice().len() {
            let key = self.queue[task].inputs.as_slice()[place];
            let object = &mut self.catalog[key];
            object.waiting.push_back(Wait { ticket, other: self.queue[task].inputs.other_than(key) });
            object.wanted += 1;
            cold &= object.holders.is_empty();
            let mut to_tell = core::mem::take(&mut object.to_tell);
            for holder in to_tell.drain(..) {
                let executor = &mut self.executors[holder];
                executor.held.get_mut(&key).expect("a holder holds").alerted = true;
                executor.to_search.push_back(key);
            }
            // Empty, with its memory: holders come back with each search.
            self.catalog[key].to_tell = to_tell;
        }
        if cold || self.queue[task].was_refused {
            self.list_cold(ticket, front);
        }
    }

    fn list_cold(&mut self, ticket: Ticket, front: bool) {
        if !self.policy.may_hold_back() || core::mem::replace(&mut self.queue[ticket.task].listed_cold, true) {
            return;
        }
        if self.cold.len() as u64 > 2 * self.queue.waiting() + 64 {
            self.cold.retain(|ticket| self.queue.is_waiting(*ticket));
        }
        if front {
            self.cold.push_front(ticket);
        } else {
            self.cold.push_back(ticket);
        }
    }

    /// Takes a task out of the queue.
    fn dequeue(&mut self, task: TaskKey) {
        self.queue.take(task);
        if !self.policy.is_data_aware() {
            return;
        }
        let ticket = Ticket { task, turn: self.queue[task].turn };
        for input in self.queue[task].inputs.as_slice() {
            self.catalog.leave(*input, ticket, |ticket| self.queue.is_waiting(ticket));
        }
    }

    fn assign(&mut self, by: ExecutorKey, task: TaskKey, effects: &mut Vec<Effect>) {
        if self.queue[task].state == State::Waiting {
            self.dequeue(task);
        }
        let place = self.executors.assign(by, task, self.queue.need(self.queue[task].class));
        let entry = &mut self.queue[task];
        entry.state = State::Assigned { executor: by, place, recalled: false };
        let (id, attempt) = (entry.id, entry.attempt);
        entry.attempt += 1;
        self.decisions += 1;
        effects.push(Effect::Assign {
            executor: self.executors[by].id,
            task: id,
            attempt,
            hints: self.hints(by, task),
        });
    }

    fn unassign(&mut self, task: TaskKey, by: ExecutorKey) {
        let State::Assigned { executor, place, recalled } = self.queue[task].state else {
            panic!("task {} ended but is {:?}", self.queue[task].id, self.queue[task].state);
        };
        assert_eq!(executor, by, "task {} ended by another than it was assigned to", self.queue[task].id);
        let need = self.queue.need(self.queue[task].class);
        self.recalled_milli -= if recalled { need.cpus_milli.into() } else { 0 };
        if let Some(moved) = self.executors.unassign(by, place, need)
            && let State::Assigned { place: its_place, .. } = &mut self.queue[moved].state
        {
            *its_place = place;
        }
        self.queue[task].state = State::Held;
    }

    fn forget(&mut self, task: TaskKey) {
        let task = self.queue.remove(task);
        for input in task.inputs.as_slice() {
            self.catalog.release(*input);
        }
    }

    fn hints(&self, by: ExecutorKey, task: TaskKey) -> Box<[Hint]> {
        if !self.policy.is_data_aware() {
            return Box::default();
        }
        let held = &self.executors[by].held;
        let inputs = self.queue[task].inputs.as_slice();
        let missing = inputs.iter().enumerate().filter(|(_, input)| !held.contains_key(*input));
        let hints = missing.filter_map(|(place, input)| {
            let holders = &self.catalog[*input].holders;
            // Start at another holder for each task, so that none serves them all.
            let start = self.decisions as usize;
            let chosen = (0..holders.len().min(MAX_HINTS)).map(|i| holders[(start + i) % holders.len()]);
            let holders: Box<[_]> = chosen.map(|key| self.executors[key].id).collect();
            (!holders.is_empty()).then_some(Hint { input: place as u16, holders })
        });
        hints.collect()
    }

    // ---- decisions

    /// Lets every executor that can take work look for some, those with a free slot first.
    fn place(&mut self, effects: &mut Vec<Effect>) {
        // A free slot goes before lining a task up, even where its inputs are.
        for level in [Level::Slot, Level::Ahead] {
            self.serve_ready(level, effects);
            self.offer_newcomers(level, effects);
            self.offer_to_parked(level, effects);
        }
        self.newcomers.clear();
        if self.queue.waiting() == 0 {
            self.recall(effects);
        }
    }

    fn serve_ready(&mut self, level: Level, effects: &mut Vec<Effect>) {
        while let Some(by) = self.executors.next_ready(level) {
            if self.queue.waiting() == 0 {
                if self.executors[by].has_any_room() {
                    self.executors.park(by);
                }
            } else {
                self.serve(by, level, effects);
            }
        }
    }

    /// Figure 5: gives an executor tasks until it has no room, or nothing that it may take.
    fn serve(&mut self, by: ExecutorKey, level: Level, effects: &mut Vec<Effect>) {
        loop {
            let has_room = match self.queue.only_class() {
                Some(class) => self.executors[by].has_room(self.queue.need(class), level),
                None => self.queue.waiting_classes().any(|c| self.executors[by].has_room(self.queue.need(c), level)),
            };
            match (has_room, level) {
                (false, Level::Slot) => return self.executors.make_ready(by, Level::Ahead),
                // Too little is free for what waits now; smaller tasks may come.
                (false, Level::Ahead) if self.executors[by].has_free_slot() => return self.executors.park(by),
                (false, Level::Ahead) => return,
                (true, _) => {}
            }
            match self.choose(by, level) {
                Some(task) => self.assign(by, task, effects),
                // The window ended the search: it goes on where it stopped.
                None if !self.executors[by].to_search.is_empty() => {}
                None => return self.executors.park(by),
            }
        }
    }

    /// Figure 4: a task that came to wait goes to the parked executor that holds the most of it. Asking all parked
    /// holders to look for themselves would wake as many as there are, for one task.
    fn offer_newcomers(&mut self, level: Level, effects: &mut Vec<Effect>) {
        for place in 0..self.newcomers.len() {
            let ticket = self.newcomers[place];
            if self.queue.is_waiting(ticket)
                && let Some(by) = self.parked_taker(ticket.task, level)
            {
                self.assign(by, ticket.task, effects);
                self.executors.make_ready(by, level);
                self.serve_ready(level, effects);
            }
        }
    }

    /// Of those parked, the one that holds the most of the task, if the policy lets it take that.
    fn parked_taker(&self, task: TaskKey, level: Level) -> Option<ExecutorKey> {
        let Scheduler { queue, catalog, executors, .. } = self;
        let (by, share) = search::best_parked_holder(queue, catalog, executors, task, level)?;
        let takes = share == FULL
            || self.otherwise() == Otherwise::AnyTask
            || !search::someone_holds_more(queue, catalog, executors, task, by, share);
        takes.then_some(by)
    }

    pub(crate) fn otherwise(&self) -> Otherwise {
        self.policy.otherwise(self.executors.utilisation())
    }

    /// The task that this executor shall take, if any.
    fn choose(&mut self, by: ExecutorKey, level: Level) -> Option<TaskKey> {
        if !self.policy.is_data_aware() {
            return self.oldest_for(by, level);
        }
        if let Some(task) = self.overdue(by, level) {
            return Some(task);
        }
        let mut looks = self.window();
        let Scheduler { queue, catalog, executors, .. } = self;
        if let Some(task) = search::next_full_hit(queue, catalog, executors, by, level, &mut looks) {
            return Some(task);
        }
        let otherwise = self.otherwise();
        let only_best_holder = otherwise == Otherwise::OnlyBestHolder;
        let Scheduler { queue, catalog, executors, .. } = self;
        search::best_partial_hit(queue, catalog, executors, by, level, only_best_holder)
            .or_else(|| self.without_hit(by, level, otherwise))
    }

    fn without_hit(&mut self, by: ExecutorKey, level: Level, otherwise: Otherwise) -> Option<TaskKey> {
        match otherwise {
            Otherwise::AnyTask => self.oldest_for(by, level),
            Otherwise::OnlyBestHolder => self.oldest_cold_for(by, level),
        }
    }

    /// Aging: the oldest task, if it was overtaken a whole window of times.
    fn overdue(&self, by: ExecutorKey, level: Level) -> Option<TaskKey> {
        let window = self.window();
        let is_overdue = |class| self.queue.head_overtaken(class) >= window;
        match self.queue.only_class() {
            Some(class) if !is_overdue(class) => None,
            _ => self.oldest_where(by, level, is_overdue),
        }
    }

    fn oldest_for(&self, by: ExecutorKey, level: Level) -> Option<TaskKey> {
        self.oldest_where(by, level, |_| true)
    }

    fn oldest_where(
        &self,
        by: ExecutorKey,
        level: Level,
        class_counts: impl Fn(crate::queue::Class) -> bool,
    ) -> Option<TaskKey> {
        let may_take = |task: &TaskKey| search::may_take(&self.queue, &self.executors, by, *task, level);
        if let Some(class) = self.queue.only_class() {
            // Else each task would be found too large.
            let has_room = self.executors[by].has_room(self.queue.need(class), level);
            return self.queue.waiting_in(class).take(if has_room { HEAD_LOOKS } else { 0 }).find(may_take);
        }
        let classes = self.queue.waiting_classes().filter(|class| class_counts(*class));
        let roomy = classes.filter(|class| self.executors[by].has_room(self.queue.need(*class), level));
        roomy.flat_map(|class| self.queue.waiting_in(class).take(HEAD_LOOKS)).find(may_take)
    }

    fn oldest_cold_for(&mut self, by: ExecutorKey, level: Level) -> Option<TaskKey> {
        for place in 0..HEAD_LOOKS {
            let task = self.cold_at(place)?;
            if search::may_take(&self.queue, &self.executors, by, task, level) {
                return Some(task);
            }
        }
        None
    }

    /// The cold task at that place of the list, from which entries that are no longer cold are dropped.
    fn cold_at(&mut self, place: usize) -> Option<TaskKey> {
        while let Some(ticket) = self.cold.get(place).copied() {
            let waits = self.queue.is_waiting(ticket);
            if waits && self.is_cold(ticket.task) {
                return Some(ticket.task);
            }
            if waits {
                self.queue[ticket.task].listed_cold = false;
            }
            // Nearly always at the front, where this costs nothing.
            self.cold.remove(place);
        }
        None
    }

    /// Whether waiting for a holder is pointless: there is none, or one could not take it.
    fn is_cold(&self, task: TaskKey) -> bool {
        self.queue[task].was_refused
            || self.queue[task].inputs.as_slice().iter().all(|input| self.catalog[*input].holders.is_empty())
    }

    /// Executors that found nothing are offered what may be taken without a hit: utilisation may have fallen, or a
    /// task arrived of which nobody holds anything.
    fn offer_to_parked(&mut self, level: Level, effects: &mut Vec<Effect>) {
        let mut unfit = 0;
        while self.queue.waiting() > 0 && unfit < PARKED_LOOKS {
            // Where nothing runs, waiting for a holder is waiting for nothing.
            let nothing_runs = self.executors.utilisation().busy_milli == 0;
            let otherwise = if nothing_runs { Otherwise::AnyTask } else { self.otherwise() };
            if otherwise == Otherwise::OnlyBestHolder && self.cold_at(0).is_none() {
                break;
            }
            let Some(by) = self.executors.parked(level).nth(unfit) else { break };
            match self.without_hit(by, level, otherwise) {
                Some(task) => {
                    self.assign(by, task, effects);
                    self.executors.make_ready(by, level);
                    self.serve_ready(level, effects);
                }
                None => unfit += 1,
            }
        }
    }

    /// The queue is empty: idle slots ask for tasks that are lined up behind others elsewhere, if they would take them.
    fn recall(&mut self, effects: &mut Vec<Effect>) {
        let utilisation = self.executors.utilisation();
        let mut idle_milli = (utilisation.total_milli - utilisation.busy_milli).saturating_sub(self.recalled_milli);
        if idle_milli == 0 || self.executors.parked(Level::Slot).len() == 0 {
            return;
        }
        let mut recalled = Vec::new();
        let mut looks = RECALL_LOOKS;
        let mut last = self.recall_from;
        for by in self.executors.overbooked_after(self.recall_from) {
            if looks == 0 || idle_milli == 0 {
                break;
            }
            last = by;
            let executor = &self.executors[by];
            let mut over_milli = executor.slots_taken_milli() - u64::from(executor.capacity.cpus_milli);
            for task in executor.in_flight.iter().rev() {
                let need_milli = u64::from(self.queue.need(self.queue[*task].class).cpus_milli).max(1);
                if looks == 0 || over_milli < need_milli || idle_milli < need_milli {
                    break;
                }
                looks -= 1;
                let already = matches!(self.queue[*task].state, State::Assigned { recalled: true, .. });
                if already || self.has_idle_taker(*task) {
                    over_milli -= need_milli;
                    if !already {
                        idle_milli -= need_milli;
                        recalled.push(*task);
                    }
                }
            }
        }
        self.recall_from = last;
        for task in recalled {
            let need_milli = self.queue.need(self.queue[task].class).cpus_milli;
            let entry = &mut self.queue[task];
            if let State::Assigned { executor, recalled, .. } = &mut entry.state {
                *recalled = true;
                self.recalled_milli += u64::from(need_milli);
                effects.push(Effect::Recall { executor: self.executors[*executor].id, task: entry.id });
            }
        }
    }

    /// Whether an idle executor would take the task if it waited. If none would, it would only come back to where it
    /// is lined up.
    fn has_idle_taker(&self, task: TaskKey) -> bool {
        let may_take = |by| search::may_take(&self.queue, &self.executors, by, task, Level::Slot);
        let takes_any = self.otherwise() == Otherwise::AnyTask || self.is_cold(task);
        takes_any && self.executors.parked(Level::Slot).take(PARKED_LOOKS).any(may_take)
            || self.policy.is_data_aware() && self.parked_taker(task, Level::Slot).is_some()
    }
}
