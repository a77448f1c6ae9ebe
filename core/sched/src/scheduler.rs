//! The facade: routes each event to the owners of state, replication and placement, in the order
//! that it takes.

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::{AssignmentEnd, CopyNews, ExecutorId, JobId, ObjectId, Origin, TaskId};

use crate::event::{Config, Effect, Event, Hint, PlacementCommand, PlacementReport, PushId};
use crate::placement::{self, AssignmentSink, ChosenParts, Placement, PlacementRules, ReplicaUse};
use crate::replication::{NewPush, PushProgress, Replication};
use crate::state::{
    ExecutorKey, ObjectKey, PlacementLevel, PlacementState, SchedulerState, TaskKey, Utilisation,
};

/// See the [crate's](crate) documentation.
pub struct Scheduler {
    state: SchedulerState,
    placement: Placement,
    replication: Replication,
    pub(crate) chosen_parts: ChosenParts,
}

impl Scheduler {
    /// An empty scheduler.
    pub fn new(config: Config) -> Self {
        let rules = placement::rules(config.policy, config.utilisation_threshold);
        Scheduler::with_rules(rules, &config)
    }

    /// A scheduler with these rules instead of those of `config.policy`.
    pub(crate) fn with_rules(rules: Box<dyn PlacementRules>, config: &Config) -> Self {
        let replica_use = rules.replica_use();
        Scheduler {
            state: SchedulerState::new(replica_use == ReplicaUse::Placement, config.placed_inputs),
            placement: Placement::new(rules, config),
            replication: Replication::new(replica_use >= ReplicaUse::Hints, config.relays),
            chosen_parts: ChosenParts::default(),
        }
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    ///
    /// # Panics
    /// If the event contradicts earlier ones (a task submitted twice, the end of a task that was
    /// not assigned).
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) {
        self.state.events += 1;
        match event {
            Event::ExecutorJoined { executor, capacity, profile, held } => {
                let key = self.state.join(executor, capacity, profile);
                self.executor_joined(executor, key, &held, effects);
            }
            Event::ExecutorDraining { executor } => self.executor_draining(executor, effects),
            Event::ExecutorLeft { executor } => self.executor_left(executor, effects),
            Event::ExecutorSetAside { executor } => self.set_aside(executor, effects),
            Event::ExecutorTakenBack { executor } => self.taken_back(executor),
            Event::TaskReady { task, inputs, need } => {
                let task = self.state.add_task(task, &inputs, &need);
                self.enqueue(task, false);
            }
            Event::EndFetches { objects } => self.end_fetches(objects),
            Event::TaskCancelled { task } => self.task_cancelled(task, effects),
            Event::TasksWithdrawn { tasks } => {
                tasks.iter().for_each(|task| self.task_withdrawn(*task))
            }
            Event::TaskDropped { task } => self.task_dropped(task),
            Event::TaskEnded { executor, task, ended, ran_us } => {
                if let Some(ran_us) = ran_us {
                    self.learn_run_time(executor, task, ended, ran_us);
                }
                self.task_ended(executor, task, ended, effects);
            }
            Event::Stored { executor, object, size_bytes } => {
                self.state.add_replica_of(executor, object, size_bytes);
                self.replication.stored(&mut self.state, executor, object, effects);
            }
            Event::NotHeld { executor, object } => {
                self.evicted(executor, object);
                self.replication.not_held(&mut self.state, executor, object, effects);
            }
            Event::Evicted { executor, object } => {
                self.evicted(executor, object);
                self.replication.evicted(&self.state, executor, object, effects);
            }
            Event::Fetched { executor, object, from, took_us } => {
                self.fetched(executor, object, from, took_us)
            }
            Event::Copy { executor, object, news } => {
                self.copy_news(executor, object, news, effects)
            }
            Event::Keep { object, replicas, executor } => {
                self.replication.keep(&self.state, object, replicas, executor, effects);
            }
            Event::Release { object } => self.replication.release(&self.state, object, effects),
            Event::Doubted { object } => self.replication.verify(&self.state, object, effects),
            Event::HoldAgain => self.replication.ask_again(&self.state, effects),
            Event::Evacuate => self.replication.replicate_all(&self.state, effects),
            Event::Push { push, objects, to, distribution } => {
                let push = NewPush { id: push, objects: &objects, to, distribution };
                self.replication.push(&mut self.state, push, effects);
            }
            Event::PushEnded { push } => self.replication.end_push(&mut self.state, push, effects),
            Event::Staging { executor, lent_milli, light_bytes } => {
                if let Some(executor) = self.state.executors.find(executor) {
                    self.placement.lend(&mut self.state, executor, lent_milli, light_bytes);
                }
            }
            Event::TimesLeft { executors } => self.state.set_times_left(&executors),
            Event::JobNamed { job, name } => self.state.name_job(job, name),
            Event::FreeDisk { executor, bytes } => self.state.set_free_disk(executor, bytes),
        }
        let mut sink = AssignmentSink { replication: &self.replication, effects };
        self.placement.run(&mut self.state, &mut sink);
    }

    /// Plans from where an executor fetches some inputs of a task that was assigned to it in parts,
    /// and returns the hints: holders of those that the executor lacks, by their places among these
    /// inputs. There are none if the executor does not have the task any longer.
    pub fn hints_of_part(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        inputs: &[(ObjectId, u64)],
    ) -> Box<[Hint]> {
        let (Some(executor), Some(task)) =
            (self.state.executors.find(executor), self.state.queue.find(task))
        else {
            return Box::default();
        };
        let task_state = &self.state.queue[task];
        let is_there = match task_state.state {
            PlacementState::Assigned { executor: by, .. } => by == executor,
            _ => false,
        };
        if !is_there || task_state.inputs.sample().is_none() {
            return Box::default();
        }
        self.replication.hints_of_part(&mut self.state, executor, task, inputs)
    }

    /// Names a derived copy by which tasks are placed, before the first of them is ready, and the
    /// object that it is made of. Returns its size if it is known; else `size_bytes` stands for the
    /// size. A folder is named with the copy in which executors give it to each other, which is
    /// named, too.
    pub fn name_copy(
        &mut self,
        copy: ObjectId,
        (of, packed): (ObjectId, Option<ObjectId>),
        size_bytes: u64,
    ) -> u64 {
        self.state.catalog.name_copy(copy, (of, packed), size_bytes)
    }

    /// Whether fetches are left to end; see [`Event::EndFetches`].
    pub fn has_fetches_to_end(&self) -> bool {
        self.state.has_fetches_to_end()
    }

    /// Forgets a job all of whose tasks are forgotten.
    pub fn forget_job(&mut self, job: JobId) {
        self.state.forget_job(job);
    }

    // ---- queries; more are in `explain.rs`

    /// The number of waiting tasks.
    pub fn waiting(&self) -> u64 {
        self.state.queue.waiting()
    }

    /// The number of objects in the catalog.
    pub fn objects(&self) -> usize {
        self.state.catalog.len()
    }

    /// The share of processors with a task.
    pub fn utilisation(&self) -> Utilisation {
        self.state.executors.utilisation()
    }

    /// The number of assignments so far.
    pub fn decisions(&self) -> u64 {
        self.state.assignments()
    }

    /// Whether an executor that stays has a replica.
    pub fn is_held(&self, object: ObjectId) -> bool {
        self.replicas(object) > 0
    }

    /// The number of executors that stay and have a replica.
    pub fn replicas(&self, object: ObjectId) -> usize {
        self.state.replicas(object)
    }

    /// Executors with a replica of the object, in no particular order.
    pub fn holders(&self, object: ObjectId) -> impl Iterator<Item = ExecutorId> {
        self.state.holders(object)
    }

    /// The number of kept objects that only this executor has, which is leaving, and that others
    /// were told to fetch from it.
    pub fn moving_from(&self, executor: ExecutorId) -> usize {
        self.replication.kept().moving_from(executor)
    }

    /// Whether an executor that is leaving can go without a loss: it has no task, and others have
    /// the kept objects that it has.
    pub fn is_emptied(&self, executor: ExecutorId) -> bool {
        self.tasks_of(executor).is_empty() && !self.replication.kept().has_last(executor)
    }

    /// Whether an executor was told to fetch the kept object from one that is leaving.
    pub fn is_moving(&self, object: ObjectId) -> bool {
        self.replication.kept().is_moving(object)
    }

    /// How far a push is with each of its recipients.
    pub fn explain_push(&self, id: PushId) -> Vec<PushProgress> {
        self.replication.pushes().explain(id)
    }

    /// Pushes that wait for an executor's answer about an object.
    pub fn pushes_awaiting(&self, executor: ExecutorId, object: ObjectId) -> Vec<PushId> {
        self.replication.pushes().awaiting(&self.state, executor, object)
    }

    /// Objects of a push that executors have stored, and evicted since.
    pub fn evicted_of_push(&self, id: PushId) -> Vec<(ExecutorId, ObjectId)> {
        self.replication.pushes().evicted(&self.state, id)
    }

    pub(crate) fn state(&self) -> &SchedulerState {
        &self.state
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    #[cfg(test)]
    pub(crate) fn state_mut(&mut self) -> &mut SchedulerState {
        &mut self.state
    }

    #[cfg(test)]
    pub(crate) fn replication(&self) -> &Replication {
        &self.replication
    }

    fn fetched(&mut self, executor: ExecutorId, object: ObjectId, from: Origin, took_us: u64) {
        let executor = self.state.executors.find(executor);
        if let (Some(executor), Some(object)) = (executor, self.state.catalog.find(object)) {
            self.state.learn_fetch(executor, object, from, took_us);
        }
    }

    /// Learns from the time that a task ran, whether it has ended or was interrupted.
    fn learn_run_time(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        ended: AssignmentEnd,
        ran_us: u64,
    ) {
        if ended == AssignmentEnd::Interrupted {
            self.state.note_interrupted(task, ran_us);
        } else if let Some(executor) = self.state.executors.find(executor) {
            self.state.learn_run_time(executor, task.job, ran_us);
        }
    }

    // ---- executors

    fn executor_joined(
        &mut self,
        id: ExecutorId,
        executor: ExecutorKey,
        held: &[(ObjectId, u64)],
        effects: &mut Vec<Effect>,
    ) {
        for (object, size_bytes) in held {
            self.state.add_replica_of(id, *object, *size_bytes);
        }
        self.state.executors.make_ready(executor, PlacementLevel::Slot);
        self.replication.joined(&mut self.state, executor, held, effects);
    }

    fn executor_draining(&mut self, id: ExecutorId, effects: &mut Vec<Effect>) {
        let Some(executor) = self.state.executors.find(id) else { return };
        self.drain(executor, effects);
        self.replication.continue_pushes(&mut self.state, effects);
        self.give_up_refused(effects);
    }

    fn executor_left(&mut self, id: ExecutorId, effects: &mut Vec<Effect>) {
        let Some(executor) = self.state.executors.find(id) else { return };
        self.drain(executor, effects);
        let mut tasks: Vec<_> =
            self.state.executors[executor].in_flight.iter().map(|given| given.task).collect();
        // Queued again at the front, the newest first, so that they are in their old order.
        tasks.sort_unstable_by_key(|task| core::cmp::Reverse(self.state.queue[*task].id));
        for task in tasks {
            self.unassign(task, executor);
            self.enqueue(task, true);
        }
        self.state.leave(executor);
        self.replication.left(&self.state, id, effects);
        self.replication.continue_pushes(&mut self.state, effects);
        self.give_up_refused(effects);
    }

    /// An executor takes no more tasks, and no task waits for it.
    fn drain(&mut self, executor: ExecutorKey, effects: &mut Vec<Effect>) {
        let objects = self.state.drain(executor);
        self.placement.dissolve_home(&mut self.state, executor);
        let mut held = Vec::new();
        for object in objects {
            held.push(self.state.catalog[object].id);
            self.drop_replica(executor, object);
        }
        self.replication.draining(&mut self.state, executor, &held, effects);
    }

    /// An executor is given no more tasks for now, and no task waits for it.
    fn set_aside(&mut self, id: ExecutorId, effects: &mut Vec<Effect>) {
        let Some(executor) = self.state.executors.find_staying(id) else { return };
        self.state.set_aside(executor);
        self.placement.dissolve_home(&mut self.state, executor);
        self.placement.recall_all(&mut self.state, executor, effects);
        self.give_up_refused(effects);
    }

    fn taken_back(&mut self, id: ExecutorId) {
        if let Some(executor) = self.state.executors.find_staying(id) {
            self.state.take_back(executor);
        }
    }

    // ---- replicas

    fn copy_news(
        &mut self,
        executor: ExecutorId,
        object: ObjectId,
        news: CopyNews,
        effects: &mut Vec<Effect>,
    ) {
        match news {
            // It lacks the copy, and must not seem to give it.
            CopyNews::Wanted => self.evicted(executor, object),
            CopyNews::Made { size_bytes, took_us } => {
                self.state.copy_made(executor, (object, size_bytes), took_us)
            }
            CopyNews::Missing | CopyNews::Private | CopyNews::Stopped => {}
        }
        self.replication.copy_news(&mut self.state, executor, (object, news), effects);
    }

    fn evicted(&mut self, executor: ExecutorId, object: ObjectId) {
        let (Some(executor), Some(object)) =
            (self.state.executors.find(executor), self.state.catalog.find(object))
        else {
            return;
        };
        if self.state.executors[executor].replicas.contains_key(&object) {
            self.drop_replica(executor, object);
            self.state.reroute_receivers(executor, object);
        }
    }

    fn drop_replica(&mut self, executor: ExecutorKey, object: ObjectKey) {
        if self.state.drop_replica(executor, object) {
            self.placement.replica_gone(&mut self.state, object);
        }
    }

    /// Ends fetches that tasks have left behind: their objects may not come.
    fn end_fetches(&mut self, most: usize) {
        for object in self.state.end_fetches(most) {
            self.placement.fetch_ended(&mut self.state, object);
        }
    }

    // ---- tasks

    fn task_cancelled(&mut self, id: TaskId, effects: &mut Vec<Effect>) {
        let Some(task) = self.state.queue.find(id) else { return };
        match self.state.queue[task].state {
            PlacementState::Waiting => self.take_out(task),
            PlacementState::Assigned { executor, .. } => {
                effects.push(Effect::Command(PlacementCommand::Cancel {
                    executor: self.state.executors[executor].id,
                    task: id,
                }));
            }
            PlacementState::InTransition | PlacementState::Forgotten => {
                unreachable!("task {id} is between two states")
            }
        }
    }

    fn task_withdrawn(&mut self, id: TaskId) {
        let Some(task) = self.state.queue.find(id) else { return };
        let waits = self.state.queue[task].state == PlacementState::Waiting;
        assert!(waits, "task {id} is withdrawn while an executor has it");
        self.take_out(task);
    }

    fn task_dropped(&mut self, id: TaskId) {
        let Some(task) = self.state.queue.find(id) else { return };
        match self.state.queue[task].state {
            PlacementState::Waiting => self.take_out(task),
            PlacementState::Assigned { executor, .. } => {
                self.unassign(task, executor);
                self.state.forget(task);
            }
            PlacementState::InTransition | PlacementState::Forgotten => {
                unreachable!("task {id} is between two states")
            }
        }
    }

    fn task_ended(
        &mut self,
        executor: ExecutorId,
        id: TaskId,
        ended: AssignmentEnd,
        effects: &mut Vec<Effect>,
    ) {
        let found = self.state.executors.find(executor);
        let executor = found.unwrap_or_else(|| panic!("{executor} ended {id} but never joined"));
        let task = self
            .state
            .queue
            .find(id)
            .unwrap_or_else(|| panic!("task {id}, which is not known, has ended"));
        self.unassign(task, executor);
        self.placement.ended_on(&mut self.state, executor);
        match ended {
            AssignmentEnd::Finished => self.state.forget(task),
            AssignmentEnd::Again => self.enqueue(task, true),
            // In front, it would be the first on the next node too, and keep the others from that.
            AssignmentEnd::Interrupted => self.enqueue(task, false),
            AssignmentEnd::Returned => {
                self.state.note_returned(task);
                self.enqueue(task, true);
                let mut sink = AssignmentSink { replication: &self.replication, effects };
                self.placement.offer_returned(&mut self.state, task, &mut sink);
            }
            AssignmentEnd::Elsewhere => {
                self.state.refuse(task, executor, true);
                if !self.state.has_untried(task) {
                    self.state.forget_failures(task);
                }
                self.enqueue(task, true);
            }
            AssignmentEnd::Refused => {
                self.state.refuse(task, executor, false);
                if self.state.is_hopeless(task) {
                    self.state.forget_failures(task);
                }
                if self.state.is_hopeless(task) {
                    effects.push(Effect::Report(PlacementReport::Unplaceable { task: id }));
                    self.state.forget(task);
                } else {
                    self.enqueue(task, true);
                }
            }
        }
        self.state.executors.make_ready(executor, PlacementLevel::Slot);
    }

    /// With one executor less, a task may have been refused by all that are left.
    fn give_up_refused(&mut self, effects: &mut Vec<Effect>) {
        for task in self.state.queue.refused_tasks().collect::<Vec<_>>() {
            let waits = self.state.queue[task].state == PlacementState::Waiting;
            if waits && self.state.queue.has_failures(task) && !self.state.has_untried(task) {
                self.placement.dequeue(&mut self.state, task);
                self.state.forget_failures(task);
                self.enqueue(task, true);
            }
            if waits && self.state.is_hopeless(task) {
                effects.push(Effect::Report(PlacementReport::Unplaceable {
                    task: self.state.queue[task].id,
                }));
                self.take_out(task);
            }
        }
    }

    fn enqueue(&mut self, task: TaskKey, front: bool) {
        let ticket = self.state.enqueue(task, front);
        self.placement.enqueued(&mut self.state, ticket, front);
    }

    /// Takes a waiting task out of the queue and forgets it.
    fn take_out(&mut self, task: TaskKey) {
        self.placement.dequeue(&mut self.state, task);
        self.state.forget(task);
    }

    fn unassign(&mut self, task: TaskKey, executor: ExecutorKey) {
        self.state.unassign(task, executor);
        self.placement.fetches_ended(&mut self.state, task);
    }
}
