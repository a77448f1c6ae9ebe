//! Executors: what they have, what they run, what they hold (the paper's `E_set` and `E_map`), and who asks for work.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Bound;

use eyas_types::{ExecutorId, Resources};

use crate::catalog::ObjectKey;
use crate::explain::ExecutorView;
use crate::hash::Map;
use crate::placement::Utilisation;
use crate::queue::TaskKey;

/// An executor's place in the table; reused when it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ExecutorKey(u32);

impl ExecutorKey {
    pub const FIRST: ExecutorKey = ExecutorKey(0);
}

/// Most tasks one executor is given at once, however short they are.
pub(crate) const MAX_IN_FLIGHT: usize = 4096;
/// An executor is given so much work beyond its slots that it need not wait for the network between tasks.
const LOOKAHEAD_US: u64 = 20_000;
/// Most tasks beyond its slots, per slot.
const MAX_LOOKAHEAD: u64 = 1024;
/// Tasks partly local to an executor that are remembered; those with the smallest share are forgotten first.
const MAX_PARTIAL: usize = 256;

/// Whether an executor can start a task at once, or only line it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// A slot is free.
    Slot,
    /// Slots are taken, but the next task's inputs can be staged.
    Ahead,
}

pub(crate) struct Executor {
    pub id: ExecutorId,
    pub capacity: Resources,
    assigned: Assigned,
    /// Tasks that it was given and has not ended, in no particular order.
    pub in_flight: Vec<TaskKey>,
    pub held: Map<ObjectKey, Held>,
    /// Held objects that tasks wait for and that were not searched to the end.
    pub to_search: VecDeque<ObjectKey>,
    /// Waiting tasks of which it holds a part, the best last. Sorted rather than a tree: most of what is met when it
    /// is full is worse than the first, and turned away by one comparison.
    partial: Vec<(u16, Reverse<u32>, TaskKey)>,
    pub partial_forgotten: bool,
    mean_run_us: u64,
    line: Line,
}

/// One replica, as the executor's side of the catalog knows it.
pub(crate) struct Held {
    /// Its place in the object's list of holders.
    pub place: u32,
    /// Waiting tasks of the object before this turn were searched; see [`Held::searched`].
    pub cursor: u32,
    /// Whether `cursor` means anything yet.
    pub searched: bool,
    /// It is on `to_search`; if not, the executor is on the object's `to_tell`.
    pub alerted: bool,
}

/// What assigned tasks hold; more than the capacity where tasks are lined up.
#[derive(Default)]
struct Assigned {
    cpus_milli: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    named: Vec<(String, u64)>,
}

/// Where an executor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// It has all it can take.
    None,
    /// In one of the ready lines.
    Ready(Level),
    /// It found nothing to take; parked since.
    Parked(Level, u64),
    /// It has left.
    Gone,
}

#[derive(Default)]
pub(crate) struct Executors {
    table: Vec<Executor>,
    free: Vec<ExecutorKey>,
    keys: Map<ExecutorId, ExecutorKey>,
    /// Those that ask for work, first come first served. Entries whose line says otherwise are skipped.
    ready: [VecDeque<ExecutorKey>; 2],
    /// With the number of their parking, which counts up.
    parked: [BTreeSet<(u64, ExecutorKey)>; 2],
    parkings: u64,
    /// Where each is parked, if it is; apart from the table, because a newcomer asks it of many.
    parked_at: Vec<Option<Level>>,
    busy_milli: u64,
    total_milli: u64,
    /// Those that have tasks lined up behind their slots.
    overbooked: BTreeSet<ExecutorKey>,
}

impl Executors {
    pub fn join(&mut self, id: ExecutorId, capacity: Resources) -> ExecutorKey {
        self.total_milli += u64::from(capacity.cpus_milli);
        let executor = Executor {
            id,
            capacity,
            assigned: Assigned::default(),
            in_flight: Vec::new(),
            held: Map::default(),
            to_search: VecDeque::new(),
            partial: Vec::new(),
            partial_forgotten: false,
            mean_run_us: LOOKAHEAD_US,
            line: Line::None,
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.table[key.0 as usize] = executor;
                key
            }
            None => {
                self.table.push(executor);
                self.parked_at.push(None);
                ExecutorKey(self.table.len() as u32 - 1)
            }
        };
        assert!(self.keys.insert(id, key).is_none(), "executor {id} joined twice");
        key
    }

    /// Forgets an executor. Its tasks and replicas have been taken from it.
    pub fn leave(&mut self, key: ExecutorKey) {
        let executor = &mut self.table[key.0 as usize];
        assert!(
            executor.in_flight.is_empty() && executor.held.is_empty(),
            "{} left with tasks or replicas",
            executor.id
        );
        self.total_milli -= u64::from(executor.capacity.cpus_milli);
        let id = executor.id;
        self.set_line(key, Line::Gone);
        self.ready.iter_mut().for_each(|line| line.retain(|other| *other != key));
        self.keys.remove(&id);
        self.free.push(key);
    }

    pub fn find(&self, id: ExecutorId) -> Option<ExecutorKey> {
        self.keys.get(&id).copied()
    }

    pub fn all(&self) -> impl Iterator<Item = (ExecutorKey, &Executor)> {
        let present = self.table.iter().enumerate().filter(|(_, executor)| executor.line != Line::Gone);
        present.map(|(place, executor)| (ExecutorKey(place as u32), executor))
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn utilisation(&self) -> Utilisation {
        Utilisation { busy_milli: self.busy_milli, total_milli: self.total_milli }
    }

    /// Executors with tasks lined up behind their slots,
    /// all round, the one after `last` first.
    pub fn overbooked_after(&self, last: ExecutorKey) -> impl Iterator<Item = ExecutorKey> {
        let after = self.overbooked.range((Bound::Excluded(last), Bound::Unbounded));
        after.chain(self.overbooked.range(..=last)).copied()
    }

    /// Books a task's needs on an executor; returns its place in the executor's list.
    pub fn assign(&mut self, key: ExecutorKey, task: TaskKey, need: &Resources) -> u32 {
        let executor = &mut self.table[key.0 as usize];
        let (before, was_overbooked) = (executor.busy_milli(), executor.is_overbooked());
        executor.assigned.add(need);
        executor.in_flight.push(task);
        self.busy_milli += executor.busy_milli() - before;
        if executor.is_overbooked() && !was_overbooked {
            self.overbooked.insert(key);
        }
        executor.in_flight.len() as u32 - 1
    }

    /// Takes a task off an executor; returns the task that moved into its place, if one did.
    pub fn unassign(&mut self, key: ExecutorKey, place: u32, need: &Resources) -> Option<TaskKey> {
        let executor = &mut self.table[key.0 as usize];
        let (before, was_overbooked) = (executor.busy_milli(), executor.is_overbooked());
        executor.assigned.subtract(need);
        executor.in_flight.swap_remove(place as usize);
        self.busy_milli -= before - executor.busy_milli();
        if was_overbooked && !executor.is_overbooked() {
            self.overbooked.remove(&key);
        }
        self[key].in_flight.get(place as usize).copied()
    }

    /// The executor asks for work.
    pub fn make_ready(&mut self, key: ExecutorKey, level: Level) {
        if self[key].line != Line::Ready(level) {
            self.set_line(key, Line::Ready(level));
            self.ready[level as usize].push_back(key);
        }
    }

    /// The next executor that asks for work at `level`.
    pub fn next_ready(&mut self, level: Level) -> Option<ExecutorKey> {
        while let Some(key) = self.ready[level as usize].pop_front() {
            if self[key].line == Line::Ready(level) {
                self.set_line(key, Line::None);
                return Some(key);
            }
        }
        None
    }

    /// The executor found nothing to take; it waits for a cause to look again.
    pub fn park(&mut self, key: ExecutorKey) {
        self.parkings += 1;
        let level = if self[key].has_free_slot() { Level::Slot } else { Level::Ahead };
        self.set_line(key, Line::Parked(level, self.parkings));
    }

    /// There is a cause to look again.
    pub fn unpark(&mut self, key: ExecutorKey) {
        if let Line::Parked(level, _) = self[key].line {
            self.make_ready(key, level);
        }
    }

    /// Executors parked at `level`, longest parked first.
    pub fn parked(&self, level: Level) -> impl ExactSizeIterator<Item = ExecutorKey> {
        self.parked[level as usize].iter().map(|(_, key)| *key)
    }

    pub fn is_parked(&self, key: ExecutorKey, level: Level) -> bool {
        self.parked_at[key.0 as usize] == Some(level)
    }

    fn set_line(&mut self, key: ExecutorKey, line: Line) {
        let executor = &mut self.table[key.0 as usize];
        if let Line::Parked(level, since) = executor.line {
            self.parked[level as usize].remove(&(since, key));
            self.parked_at[key.0 as usize] = None;
        }
        executor.line = line;
        if let Line::Parked(level, since) = line {
            self.parked[level as usize].insert((since, key));
            self.parked_at[key.0 as usize] = Some(level);
        }
    }
}

impl Executor {
    /// Whether it can take a task of such needs at `level`.
    pub fn has_room(&self, need: &Resources, level: Level) -> bool {
        let stretch = match level {
            Level::Slot => 1,
            Level::Ahead => 1 + self.lookahead(),
        };
        self.capacity.covers(need)
            && self.in_flight.len() < MAX_IN_FLIGHT
            && self.assigned.fits_with(need, &self.capacity, stretch)
    }

    /// Whether it can line up any task. If not, only the end of one can change that.
    pub fn has_any_room(&self) -> bool {
        let limit_milli = u64::from(self.capacity.cpus_milli) * (1 + self.lookahead());
        self.in_flight.len() < MAX_IN_FLIGHT && self.assigned.cpus_milli < limit_milli
    }

    /// How many tasks it is given beyond each slot: enough for [`LOOKAHEAD_US`] of work, and at least one, so that its
    /// inputs are staged while others compute.
    fn lookahead(&self) -> u64 {
        (LOOKAHEAD_US / self.mean_run_us.max(1)).clamp(1, MAX_LOOKAHEAD)
    }

    /// Learns from a task that ran so long.
    pub fn learn_run_time(&mut self, ran_us: u64) {
        // A moving average over about eight tasks, so that a change of job shows within a few.
        self.mean_run_us = (7 * self.mean_run_us + ran_us) / 8;
    }

    pub fn slots_taken_milli(&self) -> u64 {
        self.assigned.cpus_milli
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
        self.assigned.cpus_milli > self.capacity.cpus_milli.into()
    }

    fn busy_milli(&self) -> u64 {
        self.assigned.cpus_milli.min(self.capacity.cpus_milli.into())
    }

    /// Whether a task of which it holds `share` would be forgotten at once; then it is.
    pub fn turns_away(&mut self, share: u16, turn: u32) -> bool {
        let is_worse = self.partial.len() == MAX_PARTIAL && (share, Reverse(turn)) < (self.partial[0].0, self.partial[0].1);
        self.partial_forgotten |= is_worse;
        is_worse
    }

    /// Remembers a waiting task of which it holds `share` (of 65,535).
    pub fn remember_partial(&mut self, share: u16, turn: u32, task: TaskKey) {
        if self.turns_away(share, turn) {
            return;
        }
        let entry = (share, Reverse(turn), task);
        let Err(place) = self.partial.binary_search(&entry) else { return };
        if self.partial.len() < MAX_PARTIAL {
            self.partial.insert(place, entry);
        } else {
            // In the place of the worst.
            self.partial.copy_within(1..place, 0);
            self.partial[place - 1] = entry;
            self.partial_forgotten = true;
        }
    }

    /// The waiting task of which it was last seen to hold the largest share; of equals, the oldest.
    pub fn pop_partial(&mut self) -> Option<(u16, u32, TaskKey)> {
        self.partial.pop().map(|(share, Reverse(turn), task)| (share, turn, task))
    }
}

impl Assigned {
    fn add(&mut self, need: &Resources) {
        self.cpus_milli += u64::from(need.cpus_milli);
        self.memory_bytes += need.memory_bytes;
        self.disk_bytes += need.disk_bytes;
        for (name, amount) in &need.named {
            match self.named.iter_mut().find(|(n, _)| n == name) {
                Some((_, sum)) => *sum += amount,
                None => self.named.push((name.clone(), *amount)),
            }
        }
    }

    fn subtract(&mut self, need: &Resources) {
        self.cpus_milli -= u64::from(need.cpus_milli);
        self.memory_bytes -= need.memory_bytes;
        self.disk_bytes -= need.disk_bytes;
        for (name, amount) in &need.named {
            if let Some((_, sum)) = self.named.iter_mut().find(|(n, _)| n == name) {
                *sum -= amount;
            }
        }
    }

    fn fits_with(&self, need: &Resources, capacity: &Resources, stretch: u64) -> bool {
        let fits = |sum: u64, need: u64, capacity: u64| need == 0 || sum + need <= capacity.saturating_mul(stretch);
        let sum_of = |name: &str| self.named.iter().find(|(n, _)| n == name).map_or(0, |(_, sum)| *sum);
        fits(self.cpus_milli, need.cpus_milli.into(), capacity.cpus_milli.into())
            && fits(self.memory_bytes, need.memory_bytes, capacity.memory_bytes)
            && fits(self.disk_bytes, need.disk_bytes, capacity.disk_bytes)
            && need.named.iter().all(|(name, amount)| fits(sum_of(name), *amount, capacity.amount_of(name)))
    }
}

impl core::ops::Index<ExecutorKey> for Executors {
    type Output = Executor;

    fn index(&self, key: ExecutorKey) -> &Executor {
        &self.table[key.0 as usize]
    }
}

impl core::ops::IndexMut<ExecutorKey> for Executors {
    fn index_mut(&mut self, key: ExecutorKey) -> &mut Executor {
        &mut self.table[key.0 as usize]
    }
}
