//! The scheduler's state machine: what it knows, what an event changes, and a task's moves. What executors are then
//! given is decided [elsewhere](crate::decide).

use alloc::boxed::Box;
use alloc::vec::Vec;

#[cfg(test)]
use eyas_types::PlacementPolicy;
use eyas_types::{ExecutorId, JobId, ObjectId, TaskId};

use crate::catalog::{Catalog, ObjectKey, Wait};
use crate::cold::Cold;
use crate::estimate::{RunTimes, learn_slowness};
use crate::event::{Config, Effect, Event, Hint};
use crate::executors::{ExecutorKey, Executors, Held, InFlight, Level};
use crate::fill::Light;
use crate::kept::Kept;
use crate::lines::Lines;
use crate::placement::{self, Placement};
use crate::push::Pushes;
use crate::queue::{Queue, State, TaskKey, Ticket};
use crate::relay::{Relays, Wish};
use crate::search;
use eyas_types::{Ended, Need};

/// See the [crate's](crate) documentation.
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) policy: Box<dyn Placement>,
    pub(crate) queue: Queue,
    pub(crate) catalog: Catalog,
    pub(crate) executors: Executors,
    pub(crate) cold: Cold,
    pub(crate) relays: Relays,
    pub(crate) kept: Kept,
    pub(crate) pushes: Pushes,
    pub(crate) light: Light,
    pub(crate) lines: Lines,
    pub(crate) run_times: RunTimes,
    /// Tasks that came to wait in this event, or whose holders went.
    pub(crate) newcomers: Vec<Ticket>,
    /// How many events there were.
    pub(crate) events: u64,
    /// The last executor that was looked at for tasks to ask back.
    pub(crate) recall_from: ExecutorKey,
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
            cold: Cold::default(),
            relays: Relays::default(),
            kept: Kept::default(),
            pushes: Pushes::default(),
            light: Light::default(),
            lines: Lines::default(),
            run_times: RunTimes::default(),
            newcomers: Vec::new(),
            events: 0,
            recall_from: ExecutorKey::FIRST,
            decisions: 0,
        }
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    ///
    /// # Panics
    /// If the event contradicts earlier ones (a task submitted twice, an end of a task that was not assigned).
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.events += 1;
        match event {
            Event::ExecutorJoined { executor, capacity, profile, held } => {
                let key = self.executors.join(executor, capacity, profile);
                self.match_executor(key);
                held.iter().for_each(|(object, size_bytes)| self.stored(executor, *object, *size_bytes));
                self.executors.make_ready(key, Level::Slot);
                if !self.kept.is_empty() {
                    held.iter().for_each(|(object, _)| self.note_stored(executor, *object, effects));
                    self.evacuate(effects);
                }
                self.push_to_newcomer(key, effects);
            }
            Event::ExecutorDraining { executor } => self.executor_draining(executor, effects),
            Event::ExecutorLeft { executor } => self.executor_left(executor, effects),
            Event::TaskReady { task, inputs, need } => self.task_ready(task, &inputs, &need),
            Event::TaskCancelled { task } => self.task_cancelled(task, effects),
            Event::TasksWithdrawn { tasks } => tasks.iter().for_each(|task| self.task_withdrawn(*task)),
            Event::ExecutorSetAside { executor } => self.set_aside(executor, effects),
            Event::ExecutorTakenBack { executor } => self.take_back(executor),
            Event::TaskDropped { task } => self.task_dropped(task),
            Event::TaskEnded { executor, task, ended, ran_us } => {
                if let (Some(by), Some(ran_us)) = (self.executors.find(executor), ran_us) {
                    self.ran(by, task.job, ran_us);
                }
                self.task_ended(executor, task, ended, effects);
            }
            Event::Stored { executor, object, size_bytes } => {
                self.stored(executor, object, size_bytes);
                if self.is_held(object) {
                    self.note_stored(executor, object, effects);
                }
                self.note_pushed(executor, object, true, effects);
            }
            Event::NotHeld { executor, object } => {
                self.evicted(executor, object);
                self.note_gone(executor, object, effects);
                self.note_pushed(executor, object, false, effects);
            }
            Event::Evicted { executor, object } => {
                self.evicted(executor, object);
                self.note_gone(executor, object, effects);
            }
            Event::Fetched { executor, object, from, took_us } => {
                if let (Some(by), Some(key)) = (self.executors.find(executor), self.catalog.find(object)) {
                    self.executors.learn_fetch_time(by, took_us);
                    let seconds = took_us as f64 / 1e6;
                    self.relays.fetched(&self.catalog, &mut self.executors, key, by, (from, seconds));
                }
            }
            Event::Keep { object, replicas, by } => self.keep(object, replicas, by, effects),
            Event::Release { object } => self.release(object, effects),
            Event::Doubted { object } => self.doubt(object, effects),
            Event::HoldAgain => self.hold_again(effects),
            Event::Evacuate => self.evacuate(effects),
            Event::Push { push, objects, to, distribution } => self.push(push, &objects, to, distribution, effects),
            Event::PushEnded { push } => self.end_push(push, effects),
            Event::Staging { executor, lent_milli, light_bytes } => {
                if let Some(by) = self.executors.find(executor) {
                    self.staging(by, lent_milli, light_bytes);
                }
            }
            Event::JobNamed { job, name } => self.queue.name_job(job, name),
            Event::FreeDisk { executor, bytes } => {
                if let Some(by) = self.executors.find(executor) {
                    self.disk_looked_at(by, bytes);
                }
            }
        }
        self.place(effects);
        self.fill(effects);
    }

    /// Forgets a job all of whose tasks are forgotten.
    pub fn forget_job(&mut self, job: JobId) {
        self.run_times.forget(job);
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

    // ---- events

    fn task_ready(&mut self, id: TaskId, inputs: &[(ObjectId, u64)], need: &Need) {
        let keys: Vec<_> = inputs.iter().map(|(id, size_bytes)| self.catalog.refer(*id, *size_bytes)).collect();
        let input_bytes = inputs.iter().map(|(_, size_bytes)| *size_bytes).fold(0, u64::saturating_add);
        let had_priorities = self.queue.has_priorities();
        let task = self.queue.insert(id, &keys, input_bytes, need);
        if self.queue.has_priorities() && !had_priorities {
            self.executors.wake_full();
        }
        if let Some(class) = self.queue.new_class.take() {
            self.match_class(class);
        }
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

    fn task_withdrawn(&mut self, id: TaskId) {
        let Some(task) = self.queue.find(id) else { return };
        assert!(matches!(self.queue[task].state, State::Waiting), "task {id} is withdrawn while an executor has it");
        self.dequeue(task);
        self.forget(task);
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

    fn task_ended(&mut self, executor: ExecutorId, id: TaskId, ended: Ended, effects: &mut Vec<Effect>) {
        let by = self.executors.find(executor).unwrap_or_else(|| panic!("{executor} ended {id} but never joined"));
        let task = self.queue.find(id).unwrap_or_else(|| panic!("{executor} ended {id}, which is not known"));
        self.unassign(task, by);
        self.expect_no_more(by);
        match ended {
            Ended::Finished => self.forget(task),
            Ended::Again => self.enqueue(task, true),
            Ended::Returned => {
                // It was not tried.
                self.queue[task].attempt -= 1;
                let returns = &mut self.queue[task].returns;
                *returns = returns.saturating_add(1);
                self.enqueue(task, true);
                self.offer_returned(task, effects);
            }
            Ended::Elsewhere => {
                self.queue[task].was_refused = true;
                self.queue.refusals.entry(task).or_default().push(by);
                self.queue.failed_on.entry(task).or_default().push(by);
                if !self.has_untried(task) {
                    self.forget_failures(task);
                }
                self.enqueue(task, true);
            }
            Ended::Refused => {
                self.queue[task].was_refused = true;
                self.queue.refusals.entry(task).or_default().push(by);
                if self.is_hopeless(task) {
                    self.forget_failures(task);
                }
                if self.is_hopeless(task) {
                    effects.push(Effect::Unplaceable { task: id });
                    self.forget(task);
                } else {
                    self.enqueue(task, true);
                }
            }
        }
        self.executors.make_ready(by, Level::Slot);
    }

    fn ran(&mut self, by: ExecutorKey, job: JobId, ran_us: u64) {
        self.executors.learn_run_time(by, ran_us);
        if let Some(ratio) = self.run_times.learn(job, ran_us as f64 / 1e6) {
            learn_slowness(&mut self.executors[by].slowness, ratio);
        }
    }

    fn executor_left(&mut self, id: ExecutorId, effects: &mut Vec<Effect>) {
        let Some(gone) = self.executors.find(id) else { return };
        self.drain(gone, effects);
        let mut tasks: Vec<_> = self.executors[gone].in_flight.iter().map(|given| given.task).collect();
        // Queued again at the front, newest first, so that they are in their old order.
        tasks.sort_unstable_by_key(|task| core::cmp::Reverse(self.queue[*task].id));
        for task in tasks {
            self.unassign(task, gone);
            self.enqueue(task, true);
        }
        let queue = &mut self.queue;
        for executors in queue.refusals.values_mut().chain(queue.failed_on.values_mut()) {
            executors.retain(|by| *by != gone);
        }
        self.relays.executor_left(&mut self.executors, gone);
        self.executors.leave(gone);
        self.note_left(id, effects);
        self.go_on_pushing(effects);
        self.give_up_on_refused(effects);
    }

    fn executor_draining(&mut self, id: ExecutorId, effects: &mut Vec<Effect>) {
        let Some(by) = self.executors.find(id) else { return };
        self.drain(by, effects);
        self.go_on_pushing(effects);
        self.give_up_on_refused(effects);
    }

    /// An executor is given no more tasks for now, and no task waits for it.
    fn set_aside(&mut self, id: ExecutorId, effects: &mut Vec<Effect>) {
        let Some(by) = self.executors.find(id).filter(|by| !self.executors[*by].is_draining) else { return };
        self.executors.set_aside(by, true);
        self.queue.forget_way_made_by(by);
        let stood = self.lines.dissolve(&self.queue, by);
        stood.into_iter().for_each(|ticket| self.list_cold(ticket, false));
        self.ask_all_back(by, effects);
        self.give_up_on_refused(effects);
    }

    fn take_back(&mut self, id: ExecutorId) {
        let Some(by) = self.executors.find(id).filter(|by| !self.executors[*by].is_draining) else { return };
        self.executors.set_aside(by, false);
        self.executors.make_ready(by, Level::Slot);
    }

    /// An executor takes no more tasks, and nobody waits for one that does not.
    fn drain(&mut self, by: ExecutorKey, effects: &mut Vec<Effect>) {
        self.executors.drain(by);
        self.queue.forget_way_made_by(by);
        // Where they are lined up next is asked when they are looked at.
        let stood = self.lines.dissolve(&self.queue, by);
        stood.into_iter().for_each(|ticket| self.list_cold(ticket, false));
        let mut objects: Vec<_> = self.executors[by].held.keys().copied().collect();
        objects.sort_unstable();
        let id = self.executors[by].id;
        let mut ids = Vec::new();
        for object in objects {
            ids.push(self.catalog[object].id);
            self.drop_replica(by, object);
        }
        if !self.kept.is_empty() {
            self.note_draining(id, &ids, effects);
        }
        self.push_no_more_to(by);
    }

    /// Whether every executor that is large enough for a task has refused it, and there is one.
    fn is_hopeless(&self, task: TaskKey) -> bool {
        let need = self.queue.need(self.queue[task].class);
        let large_enough = self.executors.all().filter(|(_, executor)| executor.is_large_enough(need));
        let mut large_enough = large_enough.peekable();
        large_enough.peek().is_some() && large_enough.all(|(by, _)| search::has_refused(&self.queue, by, task))
    }

    /// Whether an executor that takes tasks could try the task and has neither refused nor failed it.
    fn has_untried(&self, task: TaskKey) -> bool {
        self.executors.all().any(|(by, _)| search::may_ever_take(&self.queue, &self.executors, by, task))
    }

    /// Executors that failed the task may try it again.
    fn forget_failures(&mut self, task: TaskKey) {
        let Some(failed) = self.queue.failed_on.remove(&task) else { return };
        if let Some(refusals) = self.queue.refusals.get_mut(&task) {
            refusals.retain(|by| !failed.contains(by));
            if refusals.is_empty() {
                self.queue.refusals.remove(&task);
            }
        }
    }

    /// With one executor less, a task may have been refused by all that are left.
    fn give_up_on_refused(&mut self, effects: &mut Vec<Effect>) {
        let refused: Vec<_> = self.queue.refusals.keys().copied().collect();
        for task in refused {
            let waits = self.queue[task].state == State::Waiting;
            if waits && self.queue.failed_on.contains_key(&task) && !self.has_untried(task) {
                self.dequeue(task);
                self.forget_failures(task);
                self.enqueue(task, true);
            }
            if waits && self.is_hopeless(task) {
                effects.push(Effect::Unplaceable { task: self.queue[task].id });
                self.dequeue(task);
                self.forget(task);
            }
        }
    }

    fn stored(&mut self, executor: ExecutorId, object: ObjectId, size_bytes: u64) {
        let Some(by) = self.executors.find(executor).filter(|by| !self.executors[*by].is_draining) else { return };
        let key = self.catalog.key_for_replica(object, size_bytes);
        self.relays.received(&mut self.executors, key, by);
        let object = &mut self.catalog[key];
        let wanted = object.wanted > 0;
        let place = object.holders.len() as u32;
        let held = Held { place, cursor: 0, list: 0, alerted: wanted };
        match self.executors[by].held.entry(key) {
            hashbrown::hash_map::Entry::Occupied(_) => return,
            hashbrown::hash_map::Entry::Vacant(entry) => entry.insert(held),
        };
        object.holders.push(by);
        if wanted {
            self.executors[by].to_search.push(key);
            self.executors.unpark(by);
        } else {
            object.to_tell.push(by);
        }
    }

    fn disk_looked_at(&mut self, by: ExecutorKey, bytes: u64) {
        let before = self.executors.set_free_disk(by, bytes);
        if before < bytes && before < self.queue.most_bytes() && !self.executors[by].is_draining {
            // Its searches may have passed tasks that had no room there.
            search::search_again(&mut self.catalog, &mut self.executors, by);
            self.executors.unpark(by);
        }
    }

    fn evicted(&mut self, executor: ExecutorId, object: ObjectId) {
        let Some(by) = self.executors.find(executor) else { return };
        if let Some(key) = self.catalog.find(object)
            && self.executors[by].held.contains_key(&key)
        {
            self.drop_replica(by, key);
            self.relays.evicted(&mut self.executors, key, by);
        }
    }

    fn drop_replica(&mut self, by: ExecutorKey, key: ObjectKey) {
        let held = self.executors[by].held.remove(&key).expect("the caller has looked");
        let object = &mut self.catalog[key];
        object.holders.swap_remove(held.place as usize);
        if !held.alerted {
            object.tell_no_more(by);
        }
        if let Some(moved) = object.holders.get(held.place as usize).copied() {
            let moved = self.executors[moved].held.get_mut(&key);
            moved.expect("a holder holds").place = held.place;
        }
        self.look_after_waiting(key);
        self.catalog.forget_if_unused(key);
    }

    // ---- a task's moves

    /// Puts a held task into the queue, and tells those who hold its inputs.
    fn enqueue(&mut self, task: TaskKey, front: bool) {
        let ticket = self.queue.push(task, front);
        if self.policy.is_data_aware() || self.is_any_choosy() {
            self.newcomers.push(ticket);
        }
        if !self.policy.is_data_aware() {
            return;
        }
        for place in 0..self.queue[task].inputs.as_slice().len() {
            let key = self.queue[task].inputs.as_slice()[place];
            self.catalog.want(key, Wait { ticket, other: self.queue[task].inputs.other_than(key) });
            let mut to_tell = core::mem::take(&mut self.catalog[key].to_tell);
            for holder in to_tell.drain(..) {
                let executor = &mut self.executors[holder];
                executor.held.get_mut(&key).expect("a holder holds").alerted = true;
                executor.to_search.push(key);
            }
            // Empty, with its memory: holders come back with each search.
            self.catalog[key].to_tell = to_tell;
        }
        let is_cold = match self.policy.lines_up() {
            true => !self.line_up(ticket),
            false => self.policy.may_hold_back() && self.is_cold(task),
        };
        if is_cold {
            self.list_cold(ticket, front);
        }
    }

    /// Takes a task out of the queue.
    fn dequeue(&mut self, task: TaskKey) {
        let ticket = self.queue.ticket(task);
        if let Some(by) = self.queue.take(task) {
            self.executors.make_ready(by, Level::Slot);
        }
        if !self.policy.is_data_aware() {
            return;
        }
        self.lines.leave(&self.queue, task);
        for input in self.queue[task].inputs.as_slice() {
            self.catalog.leave(*input, ticket, |ticket| self.queue.is_waiting(ticket));
        }
    }

    pub(crate) fn assign(&mut self, by: ExecutorKey, task: TaskKey, effects: &mut Vec<Effect>) {
        if self.queue[task].state == State::Waiting {
            self.dequeue(task);
        }
        let number = self.decisions;
        let reads = !self.queue[task].inputs.as_slice().is_empty();
        let estimate = (self.policy.lines_up() && reads).then(|| {
            let ahead = self.executors[by].assigned_share();
            self.estimator().estimate(task, by, ahead)
        });
        let given = InFlight { number, task, estimate };
        self.executors.assign(by, given, &self.queue.need(self.queue[task].class).need);
        let entry = &mut self.queue[task];
        entry.state = State::Assigned { executor: by, number, recalled: false };
        let (id, attempt) = (entry.id, entry.attempt);
        entry.attempt += 1;
        self.decisions += 1;
        let hints = self.hints(by, task);
        effects.push(Effect::Assign { executor: self.executors[by].id, task: id, attempt, hints });
    }

    fn unassign(&mut self, task: TaskKey, by: ExecutorKey) {
        let State::Assigned { executor, number, recalled } = self.queue[task].state else {
            panic!("task {} ended but is {:?}", self.queue[task].id, self.queue[task].state);
        };
        assert_eq!(executor, by, "task {} ended by another than it was assigned to", self.queue[task].id);
        self.executors.unassign(by, number, recalled, &self.queue.need(self.queue[task].class).need);
        self.relays.done_with(&mut self.executors, Some(task), by, self.queue[task].inputs.as_slice());
        self.queue[task].state = State::Held;
        for place in 0..self.queue[task].inputs.as_slice().len() {
            let input = self.queue[task].inputs.as_slice()[place];
            // Others may be lined up for what does not come now.
            if self.policy.lines_up() && self.catalog[input].holders.is_empty() {
                self.look_after_waiting(input);
            }
        }
    }

    fn forget(&mut self, task: TaskKey) {
        let task = self.queue.remove(task);
        for input in task.inputs.as_slice() {
            self.catalog.release(*input);
        }
    }

    fn hints(&mut self, by: ExecutorKey, task: TaskKey) -> Box<[Hint]> {
        if !self.policy.is_data_aware() {
            return Box::default();
        }
        let Scheduler { config, queue, catalog, executors, relays, kept, .. } = self;
        let mut hints = Vec::new();
        for (place, input) in queue[task].inputs.as_slice().iter().enumerate() {
            if !executors[by].held.contains_key(input) {
                // Other holders for each task, so that none serves them all.
                let crosses = kept.contains_key(&catalog[*input].id);
                let wish = Wish { object: *input, by, task: Some(task), crosses, from_relays: config.relays };
                let holders = relays.plan(catalog, executors, wish, self.decisions as usize);
                if !holders.is_empty() {
                    hints.push(Hint { input: place as u16, holders });
                }
            }
        }
        hints.into()
    }
}
