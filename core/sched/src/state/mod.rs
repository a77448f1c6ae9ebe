//! What the scheduler knows: tasks, objects, executors, transfers and run times.
//!
//! All owners can read the parts. What changes several parts at once (a task that joins or leaves
//! the queue, an assignment, a replica, an executor that leaves) is a method of [`SchedulerState`],
//! and parts can be changed only by the transitions that they offer. Nothing here decides where a
//! task runs.

mod catalog;
mod class_set;
mod executors;
mod keys;
mod matchmaking;
mod partial_hits;
mod queue;
mod run_times;
mod search_agenda;
mod search_index;
mod shares;
mod task_inputs;
mod topology;
mod transfer_rates;
mod transfers;
mod usage;
mod waiting_list;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use eyas_types::{Estimate, ExecutorId, JobId, Need, ObjectId, Origin, Resources, TaskId};

pub(crate) use catalog::{Catalog, KnownCopy};
pub(crate) use executors::{Executors, InFlight};
pub(crate) use keys::{ClassKey, ExecutorKey, ObjectKey, PlacementLevel, TaskKey, Ticket};
pub use matchmaking::Mismatch;
pub(crate) use matchmaking::Pairing;
pub(crate) use partial_hits::PartialHit;
pub(crate) use queue::{ClassNeed, PlacementState, TaskQueue};
pub(crate) use run_times::RunTimes;
pub(crate) use search_index::ReadAhead;
pub(crate) use shares::{LoadPpm, LocalShare};
pub(crate) use task_inputs::{PlacedInput, TaskInputs};
pub(crate) use transfers::{ExpectedFetch, Transfers};
pub use usage::Utilisation;
pub(crate) use waiting_list::WaitingTask;

use crate::event::ExecutorProfile;

/// Holders of an object whose site is checked.
pub(crate) const SITE_LOOKS: usize = 1024;
/// An estimate compares this many of the executors that hold an object at the receiver's site.
const ESTIMATE_LOOKS: usize = 4;

/// An executor has time for all tasks while it stays at least this many times as long as the
/// longest ones run: they may wait there for a slot, and it may be slow. For example, if the
/// longest tasks run for 600 s, until 2,400 s before it is ended.
const AMPLE_TIME: f64 = 4.0;

/// Most times that a task is recalled: its taker may no longer take it when it is back, and it
/// waits elsewhere again.
const MAX_RETURNS: u8 = 4;

/// Fetches that an executor was told to do for a task.
struct FetchesToEnd {
    executor: ExecutorKey,
    task: TaskKey,
    /// The objects. Each is referred to until its fetch is ended.
    objects: Vec<ObjectKey>,
}

/// See the [module's](self) documentation.
pub(crate) struct SchedulerState {
    pub queue: TaskQueue,
    pub catalog: Catalog,
    pub executors: Executors,
    pub transfers: Transfers,
    pub run_times: RunTimes,
    /// Whether an executor ends so soon that some tasks might not end there before.
    is_short_of_time: bool,
    /// Whether tasks go where their inputs are. If not, no waiting lists are kept.
    lists_waiting: bool,
    /// Most inputs by which a task is placed.
    placed_inputs: usize,
    /// Fetches for tasks that were [sampled](TaskInputs) and are no longer with their executors;
    /// to be ended in parts.
    fetches_to_end: VecDeque<FetchesToEnd>,
    /// The number of events so far.
    pub events: u64,
    /// The number of assignments so far.
    assignments: u64,
}

impl SchedulerState {
    pub fn new(lists_waiting: bool, placed_inputs: usize) -> Self {
        SchedulerState {
            queue: TaskQueue::default(),
            catalog: Catalog::default(),
            executors: Executors::default(),
            transfers: Transfers::default(),
            run_times: RunTimes::default(),
            is_short_of_time: false,
            lists_waiting,
            placed_inputs,
            fetches_to_end: VecDeque::new(),
            events: 0,
            assignments: 0,
        }
    }

    /// The number of assignments so far.
    pub fn assignments(&self) -> u64 {
        self.assignments
    }

    pub fn inputs(&self, task: TaskKey) -> &[ObjectKey] {
        self.queue[task].inputs.as_slice()
    }

    /// What the task's class needs.
    pub fn need_of(&self, task: TaskKey) -> &ClassNeed {
        self.queue.need(self.queue[task].class)
    }

    /// The resources that the task holds while it runs.
    pub fn resources_of(&self, task: TaskKey) -> &Resources {
        &self.need_of(task).need.resources
    }

    // ---- executors

    pub fn join(
        &mut self,
        id: ExecutorId,
        capacity: Resources,
        profile: Box<ExecutorProfile>,
    ) -> ExecutorKey {
        let executor = self.executors.join(id, capacity, profile);
        self.transfers.join(executor, &self.executors[executor].profile);
        self.match_executor(executor);
        executor
    }

    /// An executor takes no more tasks. Returns the objects that it holds, in the order of their
    /// keys; they are to be dropped.
    pub fn drain(&mut self, executor: ExecutorKey) -> Vec<ObjectKey> {
        self.executors.drain(executor);
        self.queue.end_reservations(executor);
        let mut objects: Vec<_> = self.executors[executor].replicas.keys().copied().collect();
        objects.sort_unstable();
        objects
    }

    /// An executor that is drained, and whose tasks have been taken from it, is gone.
    pub fn leave(&mut self, executor: ExecutorKey) {
        // No receipt may name an executor that is not there.
        let (of_executor, others) = core::mem::take(&mut self.fetches_to_end)
            .into_iter()
            .partition(|fetches| fetches.executor == executor);
        self.fetches_to_end = of_executor;
        while self.has_fetches_to_end() {
            self.end_fetches(usize::MAX);
        }
        self.fetches_to_end = others;
        self.queue.forget_refusals_of(executor);
        self.transfers.leave(executor, &self.executors[executor].profile);
        self.executors.leave(executor);
    }

    /// An executor is given no tasks for now.
    pub fn set_aside(&mut self, executor: ExecutorKey) {
        self.executors.set_aside(executor, true);
        self.queue.end_reservations(executor);
    }

    /// An executor that was set aside is given tasks again.
    pub fn take_back(&mut self, executor: ExecutorKey) {
        self.executors.set_aside(executor, false);
        self.executors.make_ready(executor, PlacementLevel::Slot);
    }

    /// An executor reports the free disk for inputs and sandboxes.
    pub fn set_free_disk(&mut self, executor: ExecutorId, bytes: u64) {
        let Some(executor) = self.executors.find(executor) else { return };
        let before = self.executors.set_free_disk(executor, bytes);
        if before < bytes
            && before < self.queue.most_bytes()
            && !self.executors[executor].is_draining
        {
            // Its searches may have passed tasks that had no room there.
            self.search_again(executor);
            self.executors.unpark(executor);
        }
    }

    /// The time until each executor is ended by its batch system.
    pub fn set_times_left(&mut self, left: &[(ExecutorId, u64)]) {
        let least_us = self.executors.set_times_left(left);
        let is_short = (least_us as f64) < self.run_times.longest() * AMPLE_TIME * 1e6;
        if core::mem::replace(&mut self.is_short_of_time, is_short) && !is_short {
            // Searches may have passed tasks that had no time there.
            let staying = self.executors.all().filter(|(_, executor)| !executor.is_draining);
            for executor in staying.map(|(key, _)| key).collect::<Vec<_>>() {
                self.search_again(executor);
                self.executors.unpark(executor);
            }
        }
    }

    // ---- replicas

    /// An executor reports a replica.
    pub fn add_replica_of(&mut self, executor: ExecutorId, object: ObjectId, size_bytes: u64) {
        let Some(executor) = self.executors.find_staying(executor) else { return };
        let key = self.catalog.key_for_replica(object, size_bytes);
        self.transfers.received(key, executor);
        self.add_replica(executor, key);
    }

    /// An executor has made a derived copy, which it holds.
    pub fn copy_made(&mut self, executor: ExecutorId, copy: (ObjectId, u64), took_us: u64) {
        let (object, size_bytes) = copy;
        self.add_replica_of(executor, object, size_bytes);
        self.catalog.copy_made(object, took_us as f64 / 1e6);
    }

    /// Of these objects, the inputs of a task, those that an executor need not have because it has
    /// what was made of them, in order. One that has a folder does not need the folder packed, and
    /// one that has it packed unpacks it.
    pub fn covered(&self, executor: ExecutorKey, inputs: &[ObjectKey]) -> Vec<ObjectKey> {
        if !self.catalog.has_copies() {
            return Vec::new();
        }
        let replicas = &self.executors[executor].replicas;
        let mut covered = Vec::new();
        for input in inputs {
            let Some(KnownCopy { of, packed, .. }) = self.catalog.copy(*input) else { continue };
            let packed = packed.and_then(|id| self.catalog.find(id));
            if replicas.contains_key(input) {
                covered.extend(packed.into_iter().chain(of.and_then(|id| self.catalog.find(id))));
            } else if packed.is_some_and(|packed| replicas.contains_key(&packed)) {
                covered.push(*input);
            }
        }
        covered.sort_unstable();
        covered
    }

    /// An executor no longer has a replica that it had. Whether queued tasks want the object.
    pub fn drop_replica(&mut self, executor: ExecutorKey, key: ObjectKey) -> bool {
        self.remove_replica(executor, key);
        let is_wanted = self.catalog[key].waiting.wanted() > 0;
        self.catalog.forget_if_unused(key);
        is_wanted
    }

    /// The number of executors that stay and have a replica.
    pub fn replicas(&self, object: ObjectId) -> usize {
        self.catalog.find(object).map_or(0, |key| self.catalog[key].holders.len())
    }

    /// Executors with a replica of the object, in no particular order.
    pub fn holders(&self, object: ObjectId) -> impl Iterator<Item = ExecutorId> {
        let holders =
            self.catalog.find(object).into_iter().flat_map(|key| &self.catalog[key].holders);
        holders.map(|holder| self.executors[*holder].id)
    }

    /// Executors with a replica of the object, in the order of their ids.
    pub fn sorted_holders(&self, object: ObjectId) -> Vec<ExecutorId> {
        let mut holders: Vec<_> = self.holders(object).collect();
        holders.sort_unstable();
        holders
    }

    /// An executor evicted an object: receivers that were to get it from there now get it from
    /// elsewhere.
    pub fn reroute_receivers(&mut self, executor: ExecutorKey, key: ObjectKey) {
        self.transfers.evicted(key, executor);
    }

    /// An executor reports how long a fetch took.
    pub fn learn_fetch(
        &mut self,
        executor: ExecutorKey,
        object: ObjectKey,
        from: Origin,
        took_us: u64,
    ) {
        self.executors.learn_fetch_time(executor, took_us);
        self.transfers.learn_fetch(&self.catalog, object, executor, (from, took_us as f64 / 1e6));
    }

    // ---- tasks

    /// A task becomes known; it waits once it is [enqueued](Self::enqueue).
    pub fn add_task(&mut self, id: TaskId, inputs: &[(ObjectId, u64)], need: &Need) -> TaskKey {
        let (inputs, input_bytes) =
            TaskInputs::refer(&mut self.catalog, inputs, self.placed_inputs);
        let had_priorities = self.queue.has_priorities();
        let task = self.queue.insert(id, inputs, input_bytes, need);
        if self.queue.has_priorities() && !had_priorities {
            self.executors.wake_full();
        }
        if let Some(class) = self.queue.take_new_class() {
            self.match_class(class);
        }
        task
    }

    /// Puts a task in transition into the queue, and alerts the holders of its inputs.
    pub fn enqueue(&mut self, task: TaskKey, front: bool) -> Ticket {
        let ticket = self.queue.push(task, front);
        if self.lists_waiting {
            self.want_inputs(ticket);
        }
        ticket
    }

    /// Takes a task out of the queue.
    pub fn dequeue(&mut self, task: TaskKey) {
        let ticket = self.queue.ticket(task);
        if let Some(reserved) = self.queue.take(task) {
            self.executors.make_ready(reserved, PlacementLevel::Slot);
        }
        if self.lists_waiting {
            self.unwant_inputs(ticket);
        }
    }

    /// Assigns a task in transition. Returns the attempt, which counts from 0.
    pub fn assign(
        &mut self,
        executor: ExecutorKey,
        task: TaskKey,
        estimate: Option<Estimate>,
    ) -> u32 {
        let number = self.assignments;
        self.assignments += 1;
        let need = &self.queue.need(self.queue[task].class).need;
        self.executors.assign(executor, InFlight { number, task, estimate }, need);
        let task = self.queue.get_mut(task);
        assert_eq!(
            task.state,
            PlacementState::InTransition,
            "task {} assigned while it is queued",
            task.id
        );
        task.state = PlacementState::Assigned { executor, number, recalled: false };
        task.attempt += 1;
        task.attempt - 1
    }

    /// Takes an assigned task from its executor.
    pub fn unassign(&mut self, task: TaskKey, executor: ExecutorKey) {
        let entry = &self.queue[task];
        let PlacementState::Assigned { executor: assigned, number, recalled } = entry.state else {
            panic!("task {} ended but is {:?}", entry.id, entry.state);
        };
        assert_eq!(
            assigned, executor,
            "task {} ended by another executor than it was assigned to",
            entry.id
        );
        self.executors.unassign(executor, number, recalled, &self.queue.need(entry.class).need);
        match self
            .queue
            .get_mut(task)
            .inputs
            .sample_mut()
            .map(|sample| core::mem::take(&mut sample.fetched))
        {
            Some(objects) if objects.is_empty() => {}
            Some(objects) => {
                self.fetches_to_end.push_back(FetchesToEnd { executor, task, objects })
            }
            None => {
                self.transfers.done_with(Some(task), executor, self.queue[task].inputs.as_slice())
            }
        }
        self.queue.get_mut(task).state = PlacementState::InTransition;
    }

    /// Whether fetches for sampled tasks are left to end.
    pub fn has_fetches_to_end(&self) -> bool {
        !self.fetches_to_end.is_empty()
    }

    /// Ends up to `most` of the fetches for a sampled task that is no longer with its executor.
    /// Returns the objects that are known still.
    pub fn end_fetches(&mut self, most: usize) -> Vec<ObjectKey> {
        let Some(mut fetches) = self.fetches_to_end.pop_front() else { return Vec::new() };
        let rest = fetches.objects.len().saturating_sub(most);
        let mut ended = fetches.objects.split_off(rest);
        let FetchesToEnd { executor, task, .. } = fetches;
        if rest > 0 {
            self.fetches_to_end.push_front(fetches);
        }
        self.transfers.done_with(Some(task), executor, &ended);
        ended.retain(|object| !self.catalog.release(*object));
        ended
    }

    /// Notes that an executor is told to fetch an object for a sampled task, which refers to the
    /// object from now on.
    pub fn note_fetched(&mut self, task: TaskKey, object: ObjectKey) {
        let sample = self.queue.get_mut(task).inputs.sample_mut().expect("the task is sampled");
        if sample.fetched.is_empty() {
            // The executor mostly lacks all inputs or none.
            sample.fetched.reserve(sample.count);
        }
        sample.fetched.push(object);
    }

    /// Forgets a task in transition.
    pub fn forget(&mut self, task: TaskKey) {
        let task = self.queue.remove(task);
        self.run_times.forget_task(task.id);
        task.inputs.as_slice().iter().for_each(|input| _ = self.catalog.release(*input));
    }

    /// Forgets a job all of whose tasks are forgotten.
    pub fn forget_job(&mut self, job: JobId) {
        self.run_times.forget(job);
        self.queue.remove_job(job);
    }

    pub fn name_job(&mut self, job: JobId, name: Box<str>) {
        self.queue.name_job(job, name);
    }

    /// A task of the job ran for `ran_us` on the executor.
    pub fn learn_run_time(&mut self, executor: ExecutorKey, job: JobId, ran_us: u64) {
        self.executors.learn_run_time(executor, ran_us);
        if let Some(ratio) = self.run_times.learn(job, ran_us as f64 / 1e6) {
            let slowness = &mut self.executors.get_mut(executor).slowness;
            *slowness = run_times::moved_slowness(*slowness, ratio);
        }
    }

    /// A task had run for `ran_us` when its executor was ended.
    pub fn note_interrupted(&mut self, task: TaskId, ran_us: u64) {
        self.run_times.interrupted(task, ran_us as f64 / 1e6);
        // Until the times left are reported again.
        self.is_short_of_time = true;
    }

    /// An assigned task was returned without having been tried.
    pub fn note_returned(&mut self, task: TaskKey) {
        let task = self.queue.get_mut(task);
        task.attempt -= 1;
        task.returns = task.returns.saturating_add(1);
    }

    /// An executor could not take the task, or tried and failed.
    pub fn refuse(&mut self, task: TaskKey, executor: ExecutorKey, has_failed: bool) {
        self.queue.refuse(task, executor, has_failed);
    }

    /// Executors that failed the task may try it again.
    pub fn forget_failures(&mut self, task: TaskKey) {
        self.queue.forget_failures(task);
    }

    /// Sets whether an assigned task is expected back. Returns the executor.
    pub fn expect_back(&mut self, task: TaskKey, is_expected: bool) -> ExecutorKey {
        let entry = self.queue.get_mut(task);
        let PlacementState::Assigned { executor, recalled, .. } = &mut entry.state else {
            panic!("task {} recalled but is {:?}", entry.id, entry.state);
        };
        assert_ne!(
            core::mem::replace(recalled, is_expected),
            is_expected,
            "task {} recalled twice",
            entry.id
        );
        let (executor, class) = (*executor, entry.class);
        self.executors.expect_back(executor, self.queue.resources(class), is_expected);
        executor
    }

    /// Whether the task is assigned and was recalled.
    pub fn is_recalled(&self, task: TaskKey) -> bool {
        matches!(self.queue[task].state, PlacementState::Assigned { recalled: true, .. })
    }

    /// Whether an assigned task can be recalled, as far as is known: it was not before, or has come
    /// back.
    pub fn may_return(&self, task: TaskKey) -> bool {
        !self.is_recalled(task) && self.queue[task].returns < MAX_RETURNS
    }

    /// Whether every executor that is large enough for the task has refused it, and there is such
    /// an executor.
    pub fn is_hopeless(&self, task: TaskKey) -> bool {
        let need = self.need_of(task);
        let large_enough =
            self.executors.all().filter(|(_, executor)| executor.is_large_enough(need));
        let mut large_enough = large_enough.peekable();
        large_enough.peek().is_some()
            && large_enough.all(|(executor, _)| self.queue.has_refused(executor, task))
    }

    /// Whether an executor that takes tasks could try the task and has neither refused nor failed
    /// it.
    pub fn has_untried(&self, task: TaskKey) -> bool {
        self.executors.all().any(|(executor, _)| self.may_ever_take(executor, task))
    }

    #[cfg(test)]
    pub fn skip_turns(&mut self, count: u32) {
        self.queue.skip_turns(count);
    }

    // ---- transfers

    /// Seconds to bring those of a task's inputs that the executor lacks.
    ///
    /// Each comes from the holder at its site that would give it the soonest, of the first
    /// [`ESTIMATE_LOOKS`] there. If none holds it, it comes from a
    /// receiver, which may be the executor itself and has it in a number of seconds, as far as
    /// `coming` knows. All others come from persistent storage together.
    ///
    /// A derived copy that it lacks is made or fetched; a source of which it has the copy is not
    /// needed.
    ///
    /// For example, at 125 MB/s, two inputs of 10 MB from executors that give nothing else and two
    /// of 25 MB from persistent storage take 0.08 + 0.08 + 0.4 s.
    pub fn transfer_seconds(
        &self,
        task: TaskKey,
        executor: ExecutorKey,
        coming: impl Fn(ObjectKey) -> Option<(ExecutorKey, f64)>,
    ) -> f64 {
        let replicas = &self.executors[executor].replicas;
        let covered = self.covered(executor, self.inputs(task));
        let (mut seconds, mut from_storage) = (0.0, 0);
        let inputs = self.queue[task].inputs.placed(&self.catalog);
        for PlacedInput { object, count, bytes } in inputs.filter(|input| {
            !replicas.contains_key(&input.object) && covered.binary_search(&input.object).is_err()
        }) {
            let is_here = |giver: &ExecutorKey| self.transfers.is_one_site(*giver, executor);
            let holders = self.catalog[object].holders.iter().copied().take(SITE_LOOKS);
            let holders = holders.filter(is_here).take(ESTIMATE_LOOKS).map(|giver| (giver, 0.0));
            let givers = holders.chain(coming(object).filter(|(giver, _)| is_here(giver)));
            let seconds_from = |(giver, until_there): (ExecutorKey, f64)| {
                if giver == executor {
                    until_there
                } else {
                    self.transfers
                        .peer_seconds(giver, executor, bytes / count as u64)
                        .max(until_there)
                }
            };
            let from_peer = givers.map(seconds_from).min_by(f64::total_cmp);
            if let Some(KnownCopy { made_s, packed, .. }) = self.catalog.copy(object) {
                let packed = packed.and_then(|id| self.catalog.find(id));
                if packed.is_some_and(|packed| !self.catalog[packed].holders.is_empty()) {
                    // It counts as what it is packed in.
                    continue;
                }
                // The executor makes it or fetches it, whichever is sooner.
                seconds += made_s.into_iter().chain(from_peer).reduce(f64::min).unwrap_or(0.0);
                continue;
            }
            match from_peer {
                Some(from_peer) => seconds += from_peer * count as f64,
                None => from_storage += bytes,
            }
        }
        if from_storage > 0 {
            seconds += self.transfers.storage_seconds(from_storage);
        }
        seconds
    }
}
