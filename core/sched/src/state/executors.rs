//! Executors: what they have, run and hold (the paper's `E_set` and `E_map`), and which of them ask
//! for work.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::{Estimate, ExecutorId, Need, Resources};

use super::class_set::ClassSet;
use super::keys::{ExecutorKey, ObjectKey, PlacementLevel, TaskKey};
use super::partial_hits::PartialHits;
use super::search_agenda::{SearchAgenda, SearchProgress};
use super::usage::{ResourceUsage, Utilisation};
use crate::event::ExecutorProfile;
use crate::hash::Map;

mod capacity;

/// Priorities without a task that are remembered for each executor.
const MAX_IDLE_PRIORITIES: usize = 8;

pub(crate) struct Executor {
    pub id: ExecutorId,
    pub capacity: Resources,
    pub profile: Box<ExecutorProfile>,
    /// Classes that the executor does not match and never will.
    pub(super) excluded: ClassSet,
    /// Disk space for inputs and sandboxes; unlimited until the executor has reported it.
    pub free_disk_bytes: u64,
    /// Time until its batch system ends it, microseconds; unlimited unless that was reported.
    pub left_us: u64,
    usage: ResourceUsage,
    /// The usage of each priority, the lowest first.
    usage_of_priority: Vec<(i32, ResourceUsage)>,
    /// Processors of tasks being staged that other tasks may use meanwhile, in thousandths.
    lent_milli: u64,
    /// Tasks that were assigned and have not ended, the newest last.
    pub in_flight: VecDeque<InFlight>,
    /// Processors of those of them that were recalled, in thousandths.
    pub recalled_milli: u64,
    /// The executor is about to leave, and takes no more tasks.
    pub is_draining: bool,
    /// The executor is given no tasks for now; what it holds counts.
    pub is_set_aside: bool,
    pub replicas: Map<ObjectKey, HeldReplica>,
    /// What it still has to search.
    pub agenda: SearchAgenda,
    /// `None` before a task has run on any executor.
    mean_run_us: Option<u64>,
    /// The moving mean of its fetches. The first few move it little, because one slow fetch says
    /// nothing yet. For example three fetches of 80 ms lead to 10, 18.75 and 26.4 ms.
    mean_fetch_us: u64,
    /// How many times longer its tasks run than other tasks of their jobs.
    pub slowness: f64,
    work_state: WorkState,
    /// Tasks that it has taken in advance since it was parked.
    taken_in_turn: u64,
}

/// A task that was assigned to an executor and has not ended.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    /// The number of the assignment; counts up.
    pub number: u64,
    pub task: TaskKey,
    /// The estimate at the time of the assignment, if that decided it.
    pub estimate: Option<Estimate>,
}

/// One replica, on the executor's side of the catalog.
pub(crate) struct HeldReplica {
    /// The index of the executor in the object's list of holders.
    pub(super) holder_index: u32,
    pub(super) progress: SearchProgress,
}

/// Whether an executor asks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkState {
    /// It has all that it can take.
    Full,
    /// It is in one of the ready queues.
    Ready(PlacementLevel),
    /// It found nothing to take; with the number of its parking.
    Parked(PlacementLevel, u64),
    /// It has left.
    Gone,
}

#[derive(Default)]
pub(crate) struct Executors {
    table: Vec<Executor>,
    free: Vec<ExecutorKey>,
    keys: Map<ExecutorId, ExecutorKey>,
    /// Executors that ask for work, first come, first served. Entries whose work state differs are
    /// skipped.
    ready: [VecDeque<ExecutorKey>; 2],
    /// Parked executors with a free slot, and all parked executors; with the number of their
    /// parking, which counts up.
    parked: [BTreeSet<(u64, ExecutorKey)>; 2],
    parkings: u64,
    /// The level at which each executor is parked. Apart from the table, because a new task asks
    /// this of many executors.
    parked_at: Vec<Option<PlacementLevel>>,
    busy_milli: u64,
    total_milli: u64,
    returning_milli: u64,
    /// Executors with tasks waiting behind their slots.
    overbooked: BTreeSet<ExecutorKey>,
    /// Executors that lend processors while they stage inputs.
    lending: BTreeSet<ExecutorKey>,
    /// The number of executors that accept tasks by attributes of one task or of the moment.
    constraining: u32,
    /// The number of executors with each amount of free disk, in bytes.
    free_disks: BTreeMap<u64, u32>,
    /// The moving mean over all executors; a new executor starts with it.
    mean_run_us: Option<u64>,
}

impl Executors {
    pub(super) fn join(
        &mut self,
        id: ExecutorId,
        capacity: Resources,
        profile: Box<ExecutorProfile>,
    ) -> ExecutorKey {
        self.total_milli += u64::from(capacity.cpus_milli);
        self.constraining += u32::from(profile.is_constraining());
        let executor = Executor {
            id,
            capacity,
            profile,
            excluded: ClassSet::default(),
            free_disk_bytes: u64::MAX,
            left_us: u64::MAX,
            usage: ResourceUsage::default(),
            usage_of_priority: Vec::new(),
            lent_milli: 0,
            in_flight: VecDeque::new(),
            recalled_milli: 0,
            is_draining: false,
            is_set_aside: false,
            replicas: Map::default(),
            agenda: SearchAgenda::default(),
            mean_run_us: self.mean_run_us,
            mean_fetch_us: 0,
            slowness: 1.0,
            work_state: WorkState::Full,
            taken_in_turn: 0,
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.table[key.index()] = executor;
                key
            }
            None => {
                self.table.push(executor);
                self.parked_at.push(None);
                ExecutorKey::at(self.table.len() - 1)
            }
        };
        assert!(self.keys.insert(id, key).is_none(), "executor {id} joined twice");
        *self.free_disks.entry(u64::MAX).or_default() += 1;
        key
    }

    /// Forgets an executor. Its tasks and replicas have been taken from it.
    pub(super) fn leave(&mut self, key: ExecutorKey) {
        let executor = &mut self.table[key.index()];
        assert!(
            executor.in_flight.is_empty() && executor.replicas.is_empty(),
            "{} left with tasks or replicas",
            executor.id
        );
        self.total_milli -= executor.total_milli();
        self.constraining -= u32::from(executor.profile.is_constraining());
        let (id, free_disk_bytes) = (executor.id, executor.free_disk_bytes);
        self.lending.remove(&key);
        self.set_work_state(key, WorkState::Gone);
        self.ready.iter_mut().for_each(|queue| queue.retain(|other| *other != key));
        self.keys.remove(&id);
        self.free.push(key);
        self.uncount_free_disk(free_disk_bytes);
    }

    /// Whether an executor accepts tasks by attributes of one task or of the moment.
    pub fn is_any_constraining(&self) -> bool {
        self.constraining > 0
    }

    /// The smallest free disk of all executors.
    pub fn least_free_disk_bytes(&self) -> u64 {
        self.free_disks.first_key_value().map_or(u64::MAX, |(bytes, _)| *bytes)
    }

    /// Sets an executor's free disk, and returns the earlier value.
    pub(super) fn set_free_disk(&mut self, key: ExecutorKey, bytes: u64) -> u64 {
        let before = core::mem::replace(&mut self.table[key.index()].free_disk_bytes, bytes);
        if before != bytes {
            *self.free_disks.entry(bytes).or_default() += 1;
            self.uncount_free_disk(before);
        }
        before
    }

    /// Sets the time until each executor is ended. Returns the shortest of executors that take
    /// tasks.
    pub(super) fn set_times_left(&mut self, left: &[(ExecutorId, u64)]) -> u64 {
        self.table.iter_mut().for_each(|executor| executor.left_us = u64::MAX);
        for (id, left_us) in left {
            if let Some(key) = self.find(*id) {
                self.table[key.index()].left_us = *left_us;
            }
        }
        let staying = self.all().filter(|(_, executor)| !executor.is_draining);
        staying.map(|(_, executor)| executor.left_us).min().unwrap_or(u64::MAX)
    }

    /// One executor less has that amount of free disk.
    fn uncount_free_disk(&mut self, bytes: u64) {
        let count =
            self.free_disks.get_mut(&bytes).expect("the free disk of each executor is counted");
        *count -= 1;
        if *count == 0 {
            self.free_disks.remove(&bytes);
        }
    }

    pub fn find(&self, id: ExecutorId) -> Option<ExecutorKey> {
        self.keys.get(&id).copied()
    }

    /// The executor with that id, unless it is draining.
    pub fn find_staying(&self, id: ExecutorId) -> Option<ExecutorKey> {
        self.find(id).filter(|key| !self[*key].is_draining)
    }

    pub fn all(&self) -> impl Iterator<Item = (ExecutorKey, &Executor)> {
        let present = self
            .table
            .iter()
            .enumerate()
            .filter(|(_, executor)| executor.work_state != WorkState::Gone);
        present.map(|(index, executor)| (ExecutorKey::at(index), executor))
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn utilisation(&self) -> Utilisation {
        Utilisation { busy_milli: self.busy_milli, total_milli: self.total_milli }
    }

    /// Executors with tasks waiting behind their slots.
    pub fn overbooked(&self) -> &BTreeSet<ExecutorKey> {
        &self.overbooked
    }

    /// Processors of tasks that were recalled and may still return, in thousandths. A task that had
    /// started when it was recalled runs to its end where it is.
    pub fn returning_milli(&self) -> u64 {
        self.returning_milli
    }

    /// The executor lends `lent_milli` of its processors while it stages inputs.
    pub fn lend(&mut self, key: ExecutorKey, lent_milli: u64) {
        let executor = &mut self.table[key.index()];
        executor.lent_milli = if executor.takes_tasks() { lent_milli } else { 0 };
        if executor.lent_milli == 0 {
            self.lending.remove(&key);
        } else {
            self.lending.insert(key);
        }
    }

    /// Executors that lend processors while they stage inputs.
    pub fn lending(&self) -> &BTreeSet<ExecutorKey> {
        &self.lending
    }

    /// Full executors look for work again: tasks of another priority have come.
    pub(super) fn wake_full(&mut self) {
        let full = self.all().filter(|(_, executor)| executor.work_state == WorkState::Full);
        let full: Vec<_> = full.map(|(key, _)| key).collect();
        full.into_iter().for_each(|key| self.make_ready(key, PlacementLevel::Lookahead));
    }

    /// Books a task's needs on an executor.
    pub(super) fn assign(&mut self, key: ExecutorKey, given: InFlight, need: &Need) {
        self.change(key, |executor| {
            executor.usage.add(&need.resources);
            executor.usage_of_priority_mut(need.priority).add(&need.resources);
            executor.in_flight.push_back(given);
        });
    }

    /// Takes a task off an executor.
    pub(super) fn unassign(
        &mut self,
        key: ExecutorKey,
        number: u64,
        was_recalled: bool,
        need: &Need,
    ) {
        self.change(key, |executor| {
            executor.usage.subtract(&need.resources);
            executor.usage_of_priority_mut(need.priority).subtract(&need.resources);
            if executor.usage_of_priority.len() > MAX_IDLE_PRIORITIES {
                executor.usage_of_priority.retain(|(_, usage)| usage.cpus_milli > 0);
            }
            executor.recalled_milli -=
                if was_recalled { need.resources.cpus_milli.into() } else { 0 };
            let index = executor.in_flight.binary_search_by_key(&number, |given| given.number);
            executor.in_flight.remove(index.expect("an assigned task is in flight"));
        });
    }

    /// A task with that need was recalled from an executor, or is no longer expected back.
    pub(super) fn expect_back(&mut self, key: ExecutorKey, need: &Resources, is_expected: bool) {
        let cpus_milli = u64::from(need.cpus_milli);
        self.change(key, |executor| {
            if is_expected {
                executor.recalled_milli += cpus_milli;
            } else {
                executor.recalled_milli -= cpus_milli;
            }
        });
    }

    /// The executor takes no more tasks. Its replicas are taken from it next.
    pub(super) fn drain(&mut self, key: ExecutorKey) {
        self.set_work_state(key, WorkState::Full);
        self.lend(key, 0);
        self.change(key, |executor| executor.is_draining = true);
    }

    /// The executor is given no tasks for now, or tasks again.
    pub(super) fn set_aside(&mut self, key: ExecutorKey, is_set_aside: bool) {
        self.set_work_state(key, WorkState::Full);
        self.lend(key, 0);
        self.change(key, |executor| executor.is_set_aside = is_set_aside);
    }

    /// Learns from a task that ran for `ran_us` on an executor.
    pub(super) fn learn_run_time(&mut self, key: ExecutorKey, ran_us: u64) {
        for mean_us in [&mut self.mean_run_us, &mut self.table[key.index()].mean_run_us] {
            *mean_us = Some(mean_us.map_or(ran_us, |mean_us| moved_mean(mean_us, ran_us)));
        }
    }

    /// Learns from a fetch that took an executor `took_us`.
    pub(super) fn learn_fetch_time(&mut self, key: ExecutorKey, took_us: u64) {
        let mean_us = &mut self.get_mut(key).mean_fetch_us;
        *mean_us = moved_mean(*mean_us, took_us);
    }

    /// Changes an executor, and with it the sums over all executors.
    fn change(&mut self, key: ExecutorKey, change: impl FnOnce(&mut Executor)) {
        let executor = &mut self.table[key.index()];
        self.total_milli -= executor.total_milli();
        self.busy_milli -= executor.busy_milli();
        self.returning_milli -= executor.returning_milli();
        let was_overbooked = executor.is_overbooked();
        change(executor);
        self.total_milli += executor.total_milli();
        self.busy_milli += executor.busy_milli();
        self.returning_milli += executor.returning_milli();
        match (was_overbooked, executor.is_overbooked()) {
            (false, true) => _ = self.overbooked.insert(key),
            (true, false) => _ = self.overbooked.remove(&key),
            _ => {}
        }
    }

    /// The partial hits of an executor, to remember and to take.
    pub fn partial_hits_mut(&mut self, key: ExecutorKey) -> &mut PartialHits {
        &mut self.get_mut(key).agenda.partial
    }

    pub(super) fn get_mut(&mut self, key: ExecutorKey) -> &mut Executor {
        &mut self.table[key.index()]
    }

    // ---- work states

    /// The executor asks for work.
    pub fn make_ready(&mut self, key: ExecutorKey, level: PlacementLevel) {
        if self[key].work_state != WorkState::Ready(level) && self[key].takes_tasks() {
            self.set_work_state(key, WorkState::Ready(level));
            self.ready[level as usize].push_back(key);
        }
    }

    /// The next executor that asks for work at `level`.
    pub fn next_ready(&mut self, level: PlacementLevel) -> Option<ExecutorKey> {
        while let Some(key) = self.ready[level as usize].pop_front() {
            if self[key].work_state == WorkState::Ready(level) {
                self.set_work_state(key, WorkState::Full);
                return Some(key);
            }
        }
        None
    }

    pub fn is_any_ready(&self, level: PlacementLevel) -> bool {
        self.ready[level as usize]
            .iter()
            .any(|key| self[*key].work_state == WorkState::Ready(level))
    }

    /// The executor found nothing to take; it waits for a cause to look again.
    pub fn park(&mut self, key: ExecutorKey) {
        self.parkings += 1;
        self.table[key.index()].taken_in_turn = 0;
        let level = if self[key].has_free_slot() {
            PlacementLevel::Slot
        } else {
            PlacementLevel::Lookahead
        };
        self.set_work_state(key, WorkState::Parked(level, self.parkings));
    }

    /// A parked executor has taken a task. Whether it stays the next to be offered tasks in
    /// advance: very short tasks then go to one executor in a single message, and not one by one to
    /// each executor that is parked.
    pub fn continues_turn(&mut self, key: ExecutorKey) -> bool {
        let executor = &mut self.table[key.index()];
        executor.taken_in_turn += 1;
        matches!(executor.work_state, WorkState::Parked(PlacementLevel::Lookahead, _))
            && executor.taken_in_turn < executor.turn()
            && executor.has_any_room()
    }

    /// There is a cause to look again.
    pub(super) fn unpark(&mut self, key: ExecutorKey) {
        if let WorkState::Parked(level, _) = self[key].work_state {
            self.make_ready(key, level);
        }
    }

    /// Executors that are parked and may be offered tasks at `level`, the longest parked first. An
    /// executor with a part of a slot free may also be offered tasks in advance.
    pub fn parked(&self, level: PlacementLevel) -> impl ExactSizeIterator<Item = ExecutorKey> {
        self.parked[level as usize].iter().map(|(_, key)| *key)
    }

    pub fn is_parked(&self, key: ExecutorKey, level: PlacementLevel) -> bool {
        self.parked_at[key.index()].is_some_and(|at| at <= level)
    }

    /// The executors of [`parked`](Self::parked) from that parking on, with the numbers of their
    /// parkings.
    pub(super) fn parked_from(
        &self,
        level: PlacementLevel,
        first: u64,
    ) -> impl Iterator<Item = (u64, ExecutorKey)> {
        self.parked[level as usize].range((first, ExecutorKey::FIRST)..).copied()
    }

    /// The number of the next parking.
    pub(super) fn next_parking(&self) -> u64 {
        self.parkings + 1
    }

    fn set_work_state(&mut self, key: ExecutorKey, work_state: WorkState) {
        let executor = &mut self.table[key.index()];
        if let WorkState::Parked(level, since) = executor.work_state {
            self.parked[level as usize..]
                .iter_mut()
                .for_each(|parked| _ = parked.remove(&(since, key)));
            self.parked_at[key.index()] = None;
        }
        executor.work_state = work_state;
        if let WorkState::Parked(level, since) = work_state {
            self.parked[level as usize..]
                .iter_mut()
                .for_each(|parked| _ = parked.insert((since, key)));
            self.parked_at[key.index()] = Some(level);
        }
    }
}

/// A moving mean over about eight values, so that a change of jobs shows within a few: `(7 * mean +
/// new) / 8`. For example 100 ms and a new value of 20 ms give 90 ms.
fn moved_mean(mean_us: u64, us: u64) -> u64 {
    mean_us.saturating_mul(7).saturating_add(us) / 8
}

impl core::ops::Index<ExecutorKey> for Executors {
    type Output = Executor;

    fn index(&self, key: ExecutorKey) -> &Executor {
        &self.table[key.index()]
    }
}
