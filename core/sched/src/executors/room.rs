//! What room an executor has for tasks, beyond its slots too, and how long one waits for a slot there.

use eyas_types::Resources;

use super::{Executor, InFlight, Level};
use crate::assigned::Assigned;
use crate::explain::ExecutorView;
use crate::queue::ClassNeed;
use eyas_types::Need;

/// Most tasks one executor is given at once, however short they are.
const MAX_IN_FLIGHT: usize = 4096;
/// An executor is given so much work beyond its slots that it need not wait for the network between tasks.
const LOOKAHEAD_US: u64 = 20_000;
/// Of these per slot, most for which the reason is that fetching takes longer than computing.
const MAX_FETCH_LOOKAHEAD: u64 = 3;
/// Most tasks beyond its slots, per slot.
const MAX_LOOKAHEAD: u64 = 1024;
/// All of an executor.
const WHOLE: u64 = 1_000_000;

impl Executor {
    /// Whether it is given tasks at all.
    pub fn takes_tasks(&self) -> bool {
        !self.is_draining && !self.is_set_aside
    }

    /// Whether it could take a task of such needs if it had no other, by all that never changes.
    pub fn is_large_enough(&self, need: &ClassNeed) -> bool {
        !self.is_draining && self.capacity.covers(&need.need.resources) && !self.excluded.contains(need.class)
    }

    /// What its tasks of a priority hold.
    pub(super) fn of_priority(&mut self, priority: i32) -> &mut Assigned {
        let place = self.of_priority.binary_search_by_key(&priority, |(priority, _)| *priority);
        let place = place.unwrap_or_else(|place| {
            self.of_priority.insert(place, (priority, Assigned::default()));
            place
        });
        &mut self.of_priority[place].1
    }

    /// Whether it can take a task of such needs at `level`.
    pub fn has_room(&self, need: &ClassNeed, level: Level) -> bool {
        let stretch = match level {
            Level::Slot => 1,
            Level::Ahead => 1 + self.lookahead(),
        };
        self.takes_tasks()
            && self.is_large_enough(need)
            && self.in_flight.len() < MAX_IN_FLIGHT
            && (self.assigned.fits_with(&need.need.resources, &self.capacity, stretch)
                || (level == Level::Ahead && self.fits_above_lower(&need.need, stretch)))
    }

    /// Whether there is room if tasks of lower priority are left out, which it suspends or starts later.
    fn fits_above_lower(&self, need: &Need, stretch: u64) -> bool {
        if self.of_priority.first().is_none_or(|(lowest, _)| *lowest >= need.priority) {
            return false;
        }
        let mut above = Assigned::default();
        let not_lower = self.of_priority.iter().filter(|(other, _)| *other >= need.priority);
        not_lower.for_each(|(_, assigned)| above.add_all(assigned));
        above.fits_with(&need.resources, &self.capacity, stretch)
    }

    /// Whether a task of such needs can start while others are staged whose processors it may have.
    pub fn has_room_to_fill(&self, need: &ClassNeed) -> bool {
        let lent_milli = self.lent_milli.min(self.assigned.cpus_milli);
        // Short tasks are lined up here too; of long ones there is one for each processor.
        let stretch = self.lookahead();
        let limit_milli = u64::from(self.capacity.cpus_milli) * stretch;
        let resources = &need.need.resources;
        let without_cpus = Resources { cpus_milli: 0, ..resources.clone() };
        self.takes_tasks()
            && self.is_large_enough(need)
            && self.in_flight.len() < MAX_IN_FLIGHT
            && self.assigned.cpus_milli - lent_milli + u64::from(resources.cpus_milli) <= limit_milli
            && self.assigned.fits_with(&without_cpus, &self.capacity, 1 + stretch)
    }

    /// Whether it can line up any task. If not, only the end of one can change that.
    pub fn has_any_room(&self) -> bool {
        let limit_milli = u64::from(self.capacity.cpus_milli) * (1 + self.lookahead());
        self.takes_tasks() && self.in_flight.len() < MAX_IN_FLIGHT && self.assigned.cpus_milli < limit_milli
    }

    /// How many tasks it is given beyond each slot: enough for [`LOOKAHEAD_US`] of work, or for as long as a fetch takes,
    /// and at least one, so that its inputs are staged while others compute.
    fn lookahead(&self) -> u64 {
        let mean_run_us = self.mean_run_us.unwrap_or(LOOKAHEAD_US);
        let fetching = (self.mean_fetch_us / mean_run_us.max(1)).min(MAX_FETCH_LOOKAHEAD);
        (LOOKAHEAD_US / mean_run_us.max(1)).max(fetching).clamp(1, MAX_LOOKAHEAD)
    }

    /// What it was given by that number.
    pub fn in_flight(&self, number: u64) -> &InFlight {
        let place = self.in_flight.binary_search_by_key(&number, |given| given.number);
        &self.in_flight[place.expect("what is assigned is in flight")]
    }

    /// What part of it a task of such needs has, millionths: of whatever it has the largest part of.
    pub fn share_of(&self, need: &Resources) -> u64 {
        let Resources { cpus_milli, memory_bytes, disk_bytes, .. } = self.capacity;
        let named = need.named.iter().map(|(name, amount)| part(*amount, self.capacity.amount_of(name)));
        let parts = [
            part(need.cpus_milli.into(), cpus_milli.into()),
            part(need.memory_bytes, memory_bytes),
            part(need.disk_bytes, disk_bytes),
        ];
        parts.into_iter().chain(named).max().unwrap_or(0)
    }

    /// What part of it its tasks have together, millionths; more than all where tasks are lined up.
    pub fn assigned_share(&self) -> u64 {
        self.assigned.share_of(&self.capacity)
    }

    /// Seconds until a task that has `need` of it has a slot when such go before it that have `ahead` together, its own
    /// among them (millionths). Those that run are half done. Tasks run as long as its last did, or as `run_seconds` if
    /// that is longer.
    pub fn wait_seconds(&self, ahead: u64, need: u64, run_seconds: f64) -> f64 {
        let over = (ahead + need).saturating_sub(WHOLE);
        let half_done = (need / 2).min(over);
        let run_seconds = run_seconds.max(self.mean_run_us.unwrap_or(LOOKAHEAD_US) as f64 / 1e6);
        (over - half_done) as f64 / WHOLE as f64 * run_seconds
    }

    pub fn view(&self) -> ExecutorView {
        ExecutorView {
            executor: self.id,
            capacity: self.capacity.clone(),
            assigned_milli: self.assigned.cpus_milli,
            in_flight: self.in_flight.len(),
            held: self.held.len(),
        }
    }

    /// Whether a processor, or a part of one, is without a task.
    pub fn has_free_slot(&self) -> bool {
        self.assigned.cpus_milli < self.capacity.cpus_milli.into()
    }

    /// Whether tasks are lined up behind its slots.
    pub fn is_overbooked(&self) -> bool {
        self.over_milli() > 0
    }

    /// Processors that it lacks for tasks lined up behind its slots, in thousandths.
    pub fn over_milli(&self) -> u64 {
        let over = self.assigned.cpus_milli.saturating_sub(self.capacity.cpus_milli.into());
        if self.takes_tasks() { over } else { 0 }
    }

    pub(super) fn total_milli(&self) -> u64 {
        if self.takes_tasks() { self.capacity.cpus_milli.into() } else { 0 }
    }

    /// Processors with a task, in thousandths; none if it is not to count.
    pub fn busy_milli(&self) -> u64 {
        self.assigned.cpus_milli.min(self.total_milli())
    }

    pub fn coming_back_milli(&self) -> u64 {
        self.recalled_milli.min(self.over_milli())
    }
}

/// What part of the capacity so much is, millionths.
pub(crate) fn part(amount: u64, capacity: u64) -> u64 {
    if amount == 0 { 0 } else { amount.saturating_mul(WHOLE) / capacity.max(1) }
}
