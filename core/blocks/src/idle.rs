//! Workers without a block. They look for work from time to time, a few at a time, in turns.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::event::WorkerId;

/// Number of idle workers that look for work at a time; they take turns.
const IDLE_LOOKS: usize = 16;

/// Idle workers look for work again after this time, microseconds.
const LOOK_US: u64 = 100_000;

pub(crate) struct IdleWorkers {
    idle: BTreeSet<WorkerId>,
    /// When they look for others' work again, and which of them looked last.
    look_us: Option<u64>,
    looked: WorkerId,
}

impl IdleWorkers {
    pub fn new() -> Self {
        IdleWorkers { idle: BTreeSet::new(), look_us: None, looked: WorkerId(0) }
    }

    pub fn add(&mut self, worker: WorkerId) {
        self.idle.insert(worker);
    }

    pub fn remove(&mut self, worker: WorkerId) {
        self.idle.remove(&worker);
    }

    pub fn contains(&self, worker: WorkerId) -> bool {
        self.idle.contains(&worker)
    }

    pub fn len(&self) -> usize {
        self.idle.len()
    }

    pub fn first(&self) -> Option<WorkerId> {
        self.idle.first().copied()
    }

    pub fn all(&self) -> Vec<WorkerId> {
        self.idle.iter().copied().collect()
    }

    /// When they look for work next.
    pub fn look_us(&self) -> Option<u64> {
        self.look_us
    }

    pub fn is_time(&self, now_us: u64) -> bool {
        self.look_us.is_some_and(|look_us| look_us <= now_us)
    }

    /// The workers that look now. Of 20 idle workers the first 16 look, and 100 ms later the other
    /// 4 and the first 12.
    pub fn take_turns(&mut self) -> Vec<WorkerId> {
        let later = self.idle.range((Bound::Excluded(self.looked), Bound::Unbounded));
        let turns: Vec<_> =
            later.chain(self.idle.range(..=self.looked)).copied().take(IDLE_LOOKS).collect();
        self.looked = turns.last().copied().unwrap_or(self.looked);
        turns
    }

    /// Those that are still idle look again later: at the time that was set, unless they have
    /// looked now.
    pub fn wait(&mut self, now_us: u64, have_looked: bool) {
        let next_us = if have_looked { None } else { self.look_us };
        self.look_us = (!self.idle.is_empty()).then(|| next_us.unwrap_or(now_us + LOOK_US));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_workers_take_turns() {
        let mut idle = IdleWorkers::new();
        (1..21).for_each(|worker| idle.add(WorkerId(worker)));
        idle.wait(0, false);
        assert!(!idle.is_time(LOOK_US - 1) && idle.is_time(LOOK_US));
        let mut turns = || idle.take_turns().into_iter().map(|worker| worker.0).collect::<Vec<_>>();
        assert_eq!(turns(), (1..17).collect::<Vec<_>>());
        assert_eq!(turns(), (17..21).chain(1..13).collect::<Vec<_>>());
        idle.wait(LOOK_US, true);
        assert_eq!(idle.look_us(), Some(2 * LOOK_US));
    }
}
