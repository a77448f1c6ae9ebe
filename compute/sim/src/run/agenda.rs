//! The agenda of a run: simulated time, and the events to come.

use super::event::SimEvent;
use crate::clock::{EventQueue, MICROSECOND, Ns};

pub(super) struct Agenda {
    now: Ns,
    events: EventQueue<SimEvent>,
}

impl Agenda {
    pub fn new() -> Self {
        Agenda { now: 0, events: EventQueue::new() }
    }

    pub fn now(&self) -> Ns {
        self.now
    }

    /// The time as deciders count it.
    pub fn now_us(&self) -> u64 {
        self.now / MICROSECOND
    }

    pub fn schedule(&mut self, at: Ns, event: SimEvent) {
        self.events.schedule(at, event);
    }

    pub fn schedule_after(&mut self, after_ns: Ns, event: SimEvent) {
        self.events.schedule(self.now + after_ns, event);
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<Ns> {
        self.events.next_at()
    }

    pub fn advance(&mut self, now: Ns) {
        self.now = now;
    }

    /// Takes the next event off the agenda, if its time has come.
    pub fn next_event(&mut self) -> Option<SimEvent> {
        self.events.pop_by(self.now)
    }

    /// Number of events to come.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.events.len()
    }
}
