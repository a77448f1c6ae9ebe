//! Simulated time and the queue of future events. Time is counted in nanoseconds from the start of
//! a run. Events of the same instant happen in the order in which they were scheduled, so the same
//! schedule gives the same run.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds since the start of a run.
pub type Ns = u64;

/// Nanoseconds in a second.
pub const SECOND: Ns = 1_000_000_000;
/// Nanoseconds in a microsecond.
pub const MICROSECOND: Ns = 1_000;

/// Largest time that a workload or limit may have, in microseconds: a hundred years. Nanoseconds in
/// 64 bits can count that.
pub const MAX_TIME_US: u64 = 100 * 365 * 86_400 * 1_000_000;

/// The queue of future events.
pub struct EventQueue<T> {
    events: BinaryHeap<ScheduledEvent<T>>,
    scheduled: u64,
}

struct ScheduledEvent<T> {
    at: Ns,
    number: u64,
    what: T,
}

impl<T> EventQueue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        EventQueue { events: BinaryHeap::new(), scheduled: 0 }
    }

    /// Schedules an event.
    pub fn schedule(&mut self, at: Ns, what: T) {
        self.events.push(ScheduledEvent { at, number: self.scheduled, what });
        self.scheduled += 1;
    }

    /// Number of events in the queue.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<Ns> {
        self.events.peek().map(|next| next.at)
    }

    /// Takes the next event off the queue, if its time is at most `now`.
    pub fn pop_by(&mut self, now: Ns) -> Option<T> {
        self.next_at().filter(|at| *at <= now)?;
        self.events.pop().map(|next| next.what)
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        EventQueue::new()
    }
}

/// Converts seconds to nanoseconds.
pub fn from_seconds(seconds: f64) -> Ns {
    (seconds * SECOND as f64) as Ns
}

/// Converts nanoseconds to seconds.
pub fn seconds(ns: Ns) -> f64 {
    ns as f64 / SECOND as f64
}

impl<T> Ord for ScheduledEvent<T> {
    /// A binary heap yields its largest element first, so an earlier event compares as larger.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<T> PartialOrd for ScheduledEvent<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for ScheduledEvent<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for ScheduledEvent<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_scheduling() {
        let mut events = EventQueue::new();
        for (at, what) in [(5, "c"), (3, "a"), (5, "d"), (3, "b"), (9, "e")] {
            events.schedule(at, what);
        }
        let mut seen = Vec::new();
        while let Some(at) = events.next_at() {
            while let Some(what) = events.pop_by(at) {
                seen.push((at, what));
            }
        }
        assert_eq!(seen, [(3, "a"), (3, "b"), (5, "c"), (5, "d"), (9, "e")]);
        assert_eq!(events.pop_by(u64::MAX), None);
    }
}
