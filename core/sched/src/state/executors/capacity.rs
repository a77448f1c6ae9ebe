//! The room that an executor has for tasks, in its slots and beyond them, and how long a task waits
//! there for a slot.

use eyas_types::{Need, Resources};

use super::{Executor, InFlight};
use crate::state::keys::PlacementLevel;
use crate::state::queue::ClassNeed;
use crate::state::shares::LoadPpm;
use crate::state::usage::ResourceUsage;

/// Most tasks that one executor is given at once, however short they are. For example an executor
/// with 4 slots reaches it if tasks run for less than 20 us.
const MAX_IN_FLIGHT: usize = 4096;
/// An executor is given this much work beyond its slots, so that it does not wait for the network
/// between tasks.
const LOOKAHEAD_US: u64 = 20_000;
/// Most tasks beyond its slots, per slot, for the reason that fetching takes longer than computing.
const MAX_FETCH_LOOKAHEAD: u64 = 3;
/// Most tasks beyond its slots, per slot. Tasks that run for less than 20 us reach it.
const MAX_LOOKAHEAD: u64 = 1024;
/// A parked executor is given this much work in advance before the next one has its turn. A message
/// costs the dispatcher some 50 us, however many tasks it assigns.
const TURN_US: u64 = 1000;
/// Most tasks of one turn.
const MAX_TURN: u64 = 64;

impl Executor {
    /// Whether the executor is given tasks at all.
    pub fn takes_tasks(&self) -> bool {
        !self.is_draining && !self.is_set_aside
    }

    /// Whether an empty executor could take a task with that need, by everything that never
    /// changes.
    pub fn is_large_enough(&self, need: &ClassNeed) -> bool {
        !self.is_draining
            && self.capacity.covers(&need.need.resources)
            && !self.excluded.contains(need.class)
    }

    /// The usage of its tasks of a priority.
    pub(super) fn usage_of_priority_mut(&mut self, priority: i32) -> &mut ResourceUsage {
        let index =
            self.usage_of_priority.binary_search_by_key(&priority, |(priority, _)| *priority);
        let index = index.unwrap_or_else(|index| {
            self.usage_of_priority.insert(index, (priority, ResourceUsage::default()));
            index
        });
        &mut self.usage_of_priority[index].1
    }

    /// Whether the executor can take a task with that need at `level`.
    pub fn has_room(&self, need: &ClassNeed, level: PlacementLevel) -> bool {
        let stretch = match level {
            PlacementLevel::Slot => 1,
            PlacementLevel::Lookahead => 1 + self.lookahead(),
        };
        self.takes_tasks()
            && self.is_large_enough(need)
            && self.in_flight.len() < MAX_IN_FLIGHT
            && (self.usage.fits_with(&need.need.resources, &self.capacity, stretch)
                || (level == PlacementLevel::Lookahead
                    && self.fits_above_lower(&need.need, stretch)))
    }

    /// Whether there is room without tasks of lower priority, which the executor suspends or starts
    /// later. For example 4 processors that have 8 tasks of priority 0, and a stretch of 2, have
    /// room for 8 of priority 1.
    fn fits_above_lower(&self, need: &Need, stretch: u64) -> bool {
        if self.usage_of_priority.first().is_none_or(|(lowest, _)| *lowest >= need.priority) {
            return false;
        }
        let mut above = ResourceUsage::default();
        let not_lower = self.usage_of_priority.iter().filter(|(other, _)| *other >= need.priority);
        not_lower.for_each(|(_, usage)| above.add_all(usage));
        above.fits_with(&need.resources, &self.capacity, stretch)
    }

    /// Whether a task with that need can run on processors of tasks that are being staged. For
    /// example 4 processors that are all lent take 4 light tasks where one task is given in advance
    /// for each slot.
    pub fn has_room_to_backfill(&self, need: &ClassNeed) -> bool {
        let lent_milli = self.lent_milli.min(self.usage.cpus_milli);
        // Short tasks are given in advance here too; of long tasks, one for each processor.
        let stretch = self.lookahead();
        let limit_milli = u64::from(self.capacity.cpus_milli) * stretch;
        let resources = &need.need.resources;
        let without_cpus = Resources { cpus_milli: 0, ..resources.clone() };
        self.takes_tasks()
            && self.is_large_enough(need)
            && self.in_flight.len() < MAX_IN_FLIGHT
            && self.usage.cpus_milli - lent_milli + u64::from(resources.cpus_milli) <= limit_milli
            && self.usage.fits_with(&without_cpus, &self.capacity, 1 + stretch)
    }

    /// Whether the executor can be given any task in advance. If not, only the end of a task can
    /// change that.
    pub fn has_any_room(&self) -> bool {
        let limit_milli = u64::from(self.capacity.cpus_milli) * (1 + self.lookahead());
        self.takes_tasks()
            && self.in_flight.len() < MAX_IN_FLIGHT
            && self.usage.cpus_milli < limit_milli
    }

    /// The number of tasks beyond each slot: enough for [`LOOKAHEAD_US`] of work or for the time of
    /// a fetch, and at least one, so that its inputs are staged while others compute. For example
    /// 20 tasks of 1 ms, or one of 1 s; or two of 1 s if a fetch takes 2.5 s.
    fn lookahead(&self) -> u64 {
        let mean_run_us = self.mean_run_us.unwrap_or(LOOKAHEAD_US);
        let fetching = (self.mean_fetch_us / mean_run_us.max(1)).min(MAX_FETCH_LOOKAHEAD);
        (LOOKAHEAD_US / mean_run_us.max(1)).max(fetching).clamp(1, MAX_LOOKAHEAD)
    }

    /// Whether the newest of its tasks waits for a slot for `wait_us`, or it is not known how long
    /// tasks run. For example 10 tasks of 0.5 s on 4 slots are a load of 2.5, so the newest waits
    /// for 1.5 * 0.5 s.
    pub fn newest_waits(&self, wait_us: u64) -> bool {
        self.mean_run_us.is_none_or(|mean_run_us| {
            let excess = self.load().saturating_sub(LoadPpm::WHOLE).as_wholes();
            excess * mean_run_us as f64 >= wait_us as f64
        })
    }

    /// The number of tasks of one turn. For example 10 of 100 us.
    pub(super) fn turn(&self) -> u64 {
        self.mean_run_us.map_or(1, |mean_run_us| (TURN_US / mean_run_us.max(1)).clamp(1, MAX_TURN))
    }

    /// The assignment with that number.
    pub fn in_flight(&self, number: u64) -> &InFlight {
        let index = self.in_flight.binary_search_by_key(&number, |given| given.number);
        &self.in_flight[index.expect("an assigned task is in flight")]
    }

    /// The load that a task with that need is: of the resource of which it takes the largest part.
    /// For example 1 of 4 processors and 8 of 16 GB are 500,000.
    pub fn load_of(&self, need: &Resources) -> LoadPpm {
        let Resources { cpus_milli, memory_bytes, disk_bytes, .. } = self.capacity;
        let named = need
            .named
            .iter()
            .map(|(name, amount)| LoadPpm::of(*amount, self.capacity.amount_of(name)));
        let loads = [
            LoadPpm::of(need.cpus_milli.into(), cpus_milli.into()),
            LoadPpm::of(need.memory_bytes, memory_bytes),
            LoadPpm::of(need.disk_bytes, disk_bytes),
        ];
        loads.into_iter().chain(named).max().unwrap_or(LoadPpm::NONE)
    }

    /// The load of all its tasks together.
    pub fn load(&self) -> LoadPpm {
        self.usage.load(&self.capacity)
    }

    /// Seconds until a task whose load is `own` gets a slot, when tasks with a load of `ahead` go
    /// before it.
    ///
    /// With `excess = max(0, ahead + own - 1)` executors, the wait is `(excess - min(own / 2,
    /// excess)) * run_seconds`, because the running tasks are half done on average. For example one
    /// slot with two tasks of 10 s ahead: `excess` is 2, and the wait is 15 s. The run time is the
    /// executor's recent mean, or `run_seconds` if that is longer.
    pub fn wait_seconds(&self, ahead: LoadPpm, own: LoadPpm, run_seconds: f64) -> f64 {
        let excess = (ahead + own).saturating_sub(LoadPpm::WHOLE);
        let half_done = own.half().min(excess);
        let run_seconds = run_seconds.max(self.mean_run_us.unwrap_or(LOOKAHEAD_US) as f64 / 1e6);
        excess.saturating_sub(half_done).as_wholes() * run_seconds
    }

    /// Processors that assigned tasks ask for, in thousandths.
    pub fn assigned_milli(&self) -> u64 {
        self.usage.cpus_milli
    }

    /// Whether a processor, or a part of one, is without a task.
    pub fn has_free_slot(&self) -> bool {
        self.usage.cpus_milli < self.capacity.cpus_milli.into()
    }

    /// Whether tasks wait behind its slots, for a processor or for another resource.
    pub fn is_overbooked(&self) -> bool {
        self.takes_tasks() && self.usage.exceeds(&self.capacity)
    }

    /// What its assigned tasks hold.
    pub fn usage(&self) -> &ResourceUsage {
        &self.usage
    }

    /// Processors that are missing for the tasks behind its slots, in thousandths.
    fn excess_milli(&self) -> u64 {
        let excess = self.usage.cpus_milli.saturating_sub(self.capacity.cpus_milli.into());
        if self.takes_tasks() { excess } else { 0 }
    }

    pub(super) fn total_milli(&self) -> u64 {
        if self.takes_tasks() { self.capacity.cpus_milli.into() } else { 0 }
    }

    /// Processors with a task, in thousandths; 0 if the executor takes no tasks.
    pub fn busy_milli(&self) -> u64 {
        self.usage.cpus_milli.min(self.total_milli())
    }

    /// Processors of recalled tasks that may still return, in thousandths.
    pub(super) fn returning_milli(&self) -> u64 {
        self.recalled_milli.min(self.excess_milli())
    }
}
