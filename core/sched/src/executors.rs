//! Executors: what they have, what they run, what they hold (the paper's `E_set` and `E_map`), and who asks for work.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::{Estimate, ExecutorId, Resources};

use crate::assigned::Assigned;
use crate::catalog::ObjectKey;
use crate::hash::Map;
use crate::matchmaking::{ClassSet, Profile};
use crate::partial::PartialHits;
use crate::placement::Utilisation;
use crate::queue::TaskKey;
use crate::rates::Rates;
use crate::to_search::ToSearch;
use crate::ways::{Way, Ways};
use eyas_types::Need;

mod room;

pub(crate) use room::part;

/// An executor's place in the table; reused when it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ExecutorKey(u32);

impl ExecutorKey {
    pub const FIRST: ExecutorKey = ExecutorKey(0);
    pub const NONE: ExecutorKey = ExecutorKey(u32::MAX);

    pub fn place(self) -> usize {
        self.0 as usize
    }
}

/// Priorities of which it may have no task and that are remembered all the same.
const MAX_IDLE_PRIORITIES: usize = 8;

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
    pub profile: Box<Profile>,
    /// Classes that it does not match, and never will.
    pub excluded: ClassSet,
    /// What its disk has for inputs and sandboxes; the most there could be, until it has said so.
    pub free_disk_bytes: u64,
    assigned: Assigned,
    /// The same of each priority, the lowest first.
    of_priority: Vec<(i32, Assigned)>,
    /// Processors that tasks which it stages leave to others meanwhile, in thousandths.
    lent_milli: u64,
    /// Tasks that it was given and has not ended, the newest last.
    pub in_flight: VecDeque<InFlight>,
    /// Processors of those of them that were asked back, in thousandths.
    pub recalled_milli: u64,
    /// It is about to leave, and takes no more.
    pub is_draining: bool,
    /// It is given no tasks for now; what it holds counts.
    pub is_set_aside: bool,
    pub held: Map<ObjectKey, Held>,
    /// Held objects that tasks wait for and that were not searched to the end.
    pub to_search: ToSearch,
    pub partial: PartialHits,
    /// None before a task has run on any.
    mean_run_us: Option<u64>,
    /// How long its fetches took lately; the first few count little, as one slow one says nothing yet.
    mean_fetch_us: u64,
    /// How many times as long tasks run here as others of their jobs.
    pub slowness: f64,
    line: Line,
}

/// A task that an executor was given and has not ended.
#[derive(Clone, Copy)]
pub(crate) struct InFlight {
    /// Of its assignment; counts up.
    pub number: u64,
    pub task: TaskKey,
    /// What was estimated when it was assigned, if that decided it.
    pub estimate: Option<Estimate>,
}

/// One replica, as the executor's side of the catalog knows it.
pub(crate) struct Held {
    /// Its place in the object's list of holders.
    pub place: u32,
    /// Waiting tasks of the object before this turn were searched.
    pub cursor: u32,
    /// Which list of the object's `cursor` is of; 0 for none.
    pub list: u16,
    /// It is on `to_search`; if not, the executor is on the object's `to_tell`.
    pub alerted: bool,
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
    /// Those with a free slot, and all; with the number of their parking, which counts up.
    parked: [BTreeSet<(u64, ExecutorKey)>; 2],
    parkings: u64,
    /// Where each is parked, if it is; apart from the table, because a newcomer asks it of many.
    parked_at: Vec<Option<Level>>,
    ways: Ways,
    busy_milli: u64,
    total_milli: u64,
    coming_back_milli: u64,
    /// Those that have tasks lined up behind their slots.
    overbooked: BTreeSet<ExecutorKey>,
    /// Those that lend processors while they stage.
    lending: BTreeSet<ExecutorKey>,
    /// How many accept by what is of one task or of the moment.
    choosy: u32,
    /// None has less free disk.
    least_free_disk_bytes: Option<u64>,
    /// How long tasks ran lately; what a new executor's are taken to.
    mean_run_us: Option<u64>,
    /// What fetches take.
    pub rates: Rates,
    /// How many objects they are to fetch from persistent storage at the moment.
    pub from_storage: u32,
}

impl Executors {
    pub fn join(&mut self, id: ExecutorId, capacity: Resources, profile: Box<Profile>) -> ExecutorKey {
        self.total_milli += u64::from(capacity.cpus_milli);
        self.choosy += u32::from(profile.is_choosy());
        let place = self.free.last().map_or(self.table.len(), |key| key.place());
        self.ways.join(place, &profile);
        let executor = Executor {
            id,
            capacity,
            profile,
            excluded: ClassSet::default(),
            free_disk_bytes: u64::MAX,
            assigned: Assigned::default(),
            of_priority: Vec::new(),
            lent_milli: 0,
            in_flight: VecDeque::new(),
            recalled_milli: 0,
            is_draining: false,
            is_set_aside: false,
            held: Map::default(),
            to_search: ToSearch::default(),
            partial: PartialHits::default(),
            mean_run_us: self.mean_run_us,
            mean_fetch_us: 0,
            slowness: 1.0,
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
        self.total_milli -= executor.total_milli();
        self.choosy -= u32::from(executor.profile.is_choosy());
        self.ways.leave(&executor.profile);
        let id = executor.id;
        self.lending.remove(&key);
        self.set_line(key, Line::Gone);
        self.ready.iter_mut().for_each(|line| line.retain(|other| *other != key));
        self.keys.remove(&id);
        self.free.push(key);
        self.find_least_free_disk();
    }

    /// How many objects an executor is to give; without one, how many are to come from persistent storage.
    pub fn giving(&mut self, from: Option<ExecutorKey>) -> &mut u32 {
        match from {
            Some(from) => self.ways.gives_mut(from.place()),
            None => &mut self.from_storage,
        }
    }

    /// Where an executor is, and to how many it is to give.
    pub fn way(&self, key: ExecutorKey) -> Way {
        *self.ways.of(key.place())
    }

    /// Whether somebody accepts by what is of one task or of the moment.
    pub fn is_anyone_choosy(&self) -> bool {
        self.choosy > 0
    }

    /// None has less free disk than this.
    pub fn least_free_disk_bytes(&self) -> u64 {
        self.least_free_disk_bytes.unwrap_or(u64::MAX)
    }

    /// Returns what it was before.
    pub fn set_free_disk(&mut self, key: ExecutorKey, bytes: u64) -> u64 {
        let before = core::mem::replace(&mut self.table[key.0 as usize].free_disk_bytes, bytes);
        let least = self.least_free_disk_bytes();
        if bytes <= least {
            self.least_free_disk_bytes = Some(bytes);
        } else if before == least {
            self.find_least_free_disk();
        }
        before
    }

    fn find_least_free_disk(&mut self) {
        self.least_free_disk_bytes = self.all().map(|(_, executor)| executor.free_disk_bytes).min();
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

    /// Executors with tasks lined up behind their slots.
    pub fn overbooked(&self) -> &BTreeSet<ExecutorKey> {
        &self.overbooked
    }

    /// Processors of tasks that were asked back and may still come, in thousandths. One that was not lined up any more
    /// when it was asked for runs to its end where it is.
    pub fn coming_back_milli(&self) -> u64 {
        self.coming_back_milli
    }

    /// The executor lends so much while it stages.
    pub fn lend(&mut self, key: ExecutorKey, lent_milli: u64) {
        let executor = &mut self.table[key.0 as usize];
        executor.lent_milli = if executor.takes_tasks() { lent_milli } else { 0 };
        match executor.lent_milli {
            0 => self.lending.remove(&key),
            _ => self.lending.insert(key),
        };
    }

    /// Executors that lend processors while they stage.
    pub fn lending(&self) -> &BTreeSet<ExecutorKey> {
        &self.lending
    }

    /// Executors that have all they could take look again: tasks of another priority have come.
    pub fn wake_full(&mut self) {
        let full: Vec<_> = self.all().filter(|(_, executor)| executor.line == Line::None).map(|(key, _)| key).collect();
        full.into_iter().for_each(|key| self.make_ready(key, Level::Ahead));
    }

    /// Books a task's needs on an executor.
    pub fn assign(&mut self, key: ExecutorKey, given: InFlight, need: &Need) {
        self.change(key, |executor| {
            executor.assigned.add(&need.resources);
            executor.of_priority(need.priority).add(&need.resources);
            executor.in_flight.push_back(given);
        });
    }

    /// Takes a task off an executor.
    pub fn unassign(&mut self, key: ExecutorKey, number: u64, was_recalled: bool, need: &Need) {
        self.change(key, |executor| {
            executor.assigned.subtract(&need.resources);
            executor.of_priority(need.priority).subtract(&need.resources);
            if executor.of_priority.len() > MAX_IDLE_PRIORITIES {
                executor.of_priority.retain(|(_, assigned)| assigned.cpus_milli > 0);
            }
            executor.recalled_milli -= if was_recalled { need.resources.cpus_milli.into() } else { 0 };
            let place = executor.in_flight.binary_search_by_key(&number, |given| given.number);
            executor.in_flight.remove(place.expect("what is assigned is in flight"));
        });
    }

    /// A task of such needs was asked back from an executor, or is no longer expected.
    pub fn expect_back(&mut self, key: ExecutorKey, need: &Resources, is_expected: bool) {
        self.change(key, |executor| match is_expected {
            true => executor.recalled_milli += u64::from(need.cpus_milli),
            false => executor.recalled_milli -= u64::from(need.cpus_milli),
        });
    }

    /// The executor takes no more tasks. Its replicas have been taken from it.
    pub fn drain(&mut self, key: ExecutorKey) {
        self.set_line(key, Line::None);
        self.lend(key, 0);
        self.change(key, |executor| executor.is_draining = true);
    }

    /// The executor is given no tasks for now, or tasks again.
    pub fn set_aside(&mut self, key: ExecutorKey, is_set_aside: bool) {
        self.set_line(key, Line::None);
        self.lend(key, 0);
        self.change(key, |executor| executor.is_set_aside = is_set_aside);
    }

    /// Learns from a task that ran so long on an executor.
    pub fn learn_run_time(&mut self, key: ExecutorKey, ran_us: u64) {
        for mean_us in [&mut self.mean_run_us, &mut self.table[key.0 as usize].mean_run_us] {
            *mean_us = Some(mean_us.map_or(ran_us, |mean_us| moved(mean_us, ran_us)));
        }
    }

    /// Learns from a fetch that took an executor so long.
    pub fn learn_fetch_time(&mut self, key: ExecutorKey, took_us: u64) {
        let mean_us = &mut self[key].mean_fetch_us;
        *mean_us = moved(*mean_us, took_us);
    }

    /// Changes an executor, and with it the sums over all.
    fn change(&mut self, key: ExecutorKey, change: impl FnOnce(&mut Executor)) {
        let executor = &mut self.table[key.0 as usize];
        let before = (executor.total_milli(), executor.busy_milli(), executor.coming_back_milli());
        let was_overbooked = executor.is_overbooked();
        change(executor);
        self.total_milli = self.total_milli - before.0 + executor.total_milli();
        self.busy_milli = self.busy_milli - before.1 + executor.busy_milli();
        self.coming_back_milli = self.coming_back_milli - before.2 + executor.coming_back_milli();
        match (was_overbooked, executor.is_overbooked()) {
            (false, true) => _ = self.overbooked.insert(key),
            (true, false) => _ = self.overbooked.remove(&key),
            _ => {}
        }
    }

    /// The executor asks for work.
    pub fn make_ready(&mut self, key: ExecutorKey, level: Level) {
        if self[key].line != Line::Ready(level) && self[key].takes_tasks() {
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

    pub fn is_anyone_ready(&self, level: Level) -> bool {
        self.ready[level as usize].iter().any(|key| self[*key].line == Line::Ready(level))
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

    /// Executors that are parked and may be offered tasks at `level`, longest parked first: one with a part of a slot
    /// free may also line tasks up.
    pub fn parked(&self, level: Level) -> impl ExactSizeIterator<Item = ExecutorKey> {
        self.parked[level as usize].iter().map(|(_, key)| *key)
    }

    pub fn is_parked(&self, key: ExecutorKey, level: Level) -> bool {
        self.parked_at[key.0 as usize].is_some_and(|at| at <= level)
    }

    /// Those of [`parked`](Self::parked) from that parking on, with the numbers of their parkings.
    pub fn parked_from(&self, level: Level, first: u64) -> impl Iterator<Item = (u64, ExecutorKey)> {
        self.parked[level as usize].range((first, ExecutorKey::FIRST)..).copied()
    }

    /// The number of the next parking.
    pub fn next_parking(&self) -> u64 {
        self.parkings + 1
    }

    fn set_line(&mut self, key: ExecutorKey, line: Line) {
        let executor = &mut self.table[key.0 as usize];
        if let Line::Parked(level, since) = executor.line {
            self.parked[level as usize..].iter_mut().for_each(|parked| _ = parked.remove(&(since, key)));
            self.parked_at[key.0 as usize] = None;
        }
        executor.line = line;
        if let Line::Parked(level, since) = line {
            self.parked[level as usize..].iter_mut().for_each(|parked| _ = parked.insert((since, key)));
            self.parked_at[key.0 as usize] = Some(level);
        }
    }
}

/// A moving average over about eight, so that a change of job shows within a few.
fn moved(mean_us: u64, us: u64) -> u64 {
    mean_us.saturating_mul(7).saturating_add(us) / 8
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
