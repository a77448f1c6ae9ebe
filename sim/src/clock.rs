//! Simulated time: what is going to happen, and when. Nanoseconds since the start; what happens at the same instant
//! happens in the order in which it was planned, so that the same plans give the same run.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds since the start of a run.
pub type Ns = u64;

/// Nanoseconds of a second.
pub const SECOND: Ns = 1_000_000_000;
/// Nanoseconds of a microsecond.
pub const MICROSECOND: Ns = 1_000;

/// Times of workloads and limits are at most so long, microseconds: a hundred years, which nanoseconds can count.
pub const MAX_TIME_US: u64 = 100 * 365 * 86_400 * 1_000_000;

/// What is planned.
pub struct Clock<T> {
    planned: BinaryHeap<Planned<T>>,
    plans: u64,
}

struct Planned<T> {
    at: Ns,
    number: u64,
    what: T,
}

impl<T> Clock<T> {
    /// Nothing is planned.
    pub fn new() -> Self {
        Clock { planned: BinaryHeap::new(), plans: 0 }
    }

    /// Plans that something happens.
    pub fn plan(&mut self, at: Ns, what: T) {
        self.planned.push(Planned { at, number: self.plans, what });
        self.plans += 1;
    }

    /// How much is planned.
    #[cfg(test)]
    pub(crate) fn planned(&self) -> usize {
        self.planned.len()
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Ns> {
        self.planned.peek().map(|next| next.at)
    }

    /// What happens next, if it is by `now`.
    pub fn pop_by(&mut self, now: Ns) -> Option<T> {
        self.next_at().filter(|at| *at <= now)?;
        self.planned.pop().map(|next| next.what)
    }
}

impl<T> Default for Clock<T> {
    fn default() -> Self {
        Clock::new()
    }
}

/// Seconds as nanoseconds.
pub fn from_seconds(seconds: f64) -> Ns {
    (seconds * SECOND as f64) as Ns
}

/// Nanoseconds as seconds.
pub fn seconds(ns: Ns) -> f64 {
    ns as f64 / SECOND as f64
}

impl<T> Ord for Planned<T> {
    /// The heap has its largest first: what is earlier is larger.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for Planned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Planned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Planned<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_happens_in_order_of_time_and_then_of_plans() {
        let mut clock = Clock::new();
        for (at, what) in [(5, "c"), (3, "a"), (5, "d"), (3, "b"), (9, "e")] {
            clock.plan(at, what);
        }
        let mut seen = Vec::new();
        while let Some(at) = clock.next_at() {
            while let Some(what) = clock.pop_by(at) {
                seen.push((at, what));
            }
        }
        assert_eq!(seen, [(3, "a"), (3, "b"), (5, "c"), (5, "d"), (9, "e")]);
        assert_eq!(clock.pop_by(u64::MAX), None);
    }
}
