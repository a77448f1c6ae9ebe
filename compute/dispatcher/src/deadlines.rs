//! What the core does at its time: it counts silent executors as lost, ends the cluster, and looks
//! after what others say is due.

use std::time::Duration;

/// An executor that was not heard of for this many heartbeats is lost.
const MISSED_HEARTBEATS: u32 = 4;
/// Time for executors to leave after they were told to stop, microseconds.
const STOP_DEADLINE_US: u64 = 15_000_000;
/// Clients that wait for a push are shown how it goes on after this time, microseconds.
const SHOW_PUSHES_EVERY_US: u64 = 100_000;
/// Shortest time between two ticks, microseconds, so that messages are handled in between.
const MIN_PAUSE_US: u64 = 1000;

/// When the core has something to do without being told.
pub(crate) struct Deadlines {
    heartbeat: Duration,
    /// When the last tick was, microseconds since 1970.
    ticked_us: u64,
    /// When the cluster was told to stop, microseconds since 1970.
    stopping_us: Option<u64>,
}

impl Deadlines {
    pub fn new(heartbeat: Duration, now_us: u64) -> Self {
        Deadlines { heartbeat, ticked_us: now_us, stopping_us: None }
    }

    /// Time between heartbeats of an executor, microseconds.
    pub fn heartbeat_us(&self) -> u64 {
        self.heartbeat.as_micros() as u64
    }

    /// For how long an executor may work without being heard of, microseconds: shorter than it
    /// takes to count as lost.
    pub fn lease_us(&self) -> u64 {
        self.heartbeat_us() * u64::from(MISSED_HEARTBEATS - 1)
    }

    /// The silence after which an executor counts as lost.
    pub fn silence(&self) -> Duration {
        self.heartbeat * MISSED_HEARTBEATS
    }

    /// The same, microseconds.
    pub fn silence_us(&self) -> u64 {
        self.silence().as_micros() as u64
    }

    /// The next deadline, microseconds since 1970, if there is one: the first of those `known`, or
    /// one that is known here.
    pub fn next_us(&self, known: &[Option<u64>], are_pushes_shown: bool) -> Option<u64> {
        let stop = self.stopping_us.map(|since_us| since_us + STOP_DEADLINE_US + 1);
        let pushes = are_pushes_shown.then_some(self.ticked_us + SHOW_PUSHES_EVERY_US);
        let due_us = known.iter().copied().chain([stop, pushes]).flatten().min()?;
        Some(due_us.max(self.ticked_us + MIN_PAUSE_US))
    }

    /// A tick that was planned for `due_us`. Returns whether the dispatcher itself has stood still
    /// before (suspended, or waiting for its disk), so that no executor could be heard.
    pub fn tick(&mut self, now_us: u64, due_us: u64) -> bool {
        self.ticked_us = now_us;
        u128::from(now_us.saturating_sub(due_us)) > self.heartbeat.as_micros() / 2
    }

    pub fn begin_to_stop(&mut self, now_us: u64) {
        self.stopping_us = Some(now_us);
    }

    /// Whether the cluster was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping_us.is_some()
    }

    /// Whether executors have had the time to leave.
    pub fn is_stop_over(&self, now_us: u64) -> bool {
        self.stopping_us.is_some_and(|since_us| now_us > since_us + STOP_DEADLINE_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Duration = Duration::from_secs(2);

    #[test]
    fn the_first_deadline_counts_but_ticks_have_a_pause_between_them() {
        let mut deadlines = Deadlines::new(HEARTBEAT, 1_000_000);
        assert_eq!(deadlines.next_us(&[None, None], false), None);
        assert_eq!(deadlines.next_us(&[Some(9_000_000), Some(5_000_000)], false), Some(5_000_000));
        assert_eq!(deadlines.next_us(&[Some(9_000_000)], true), Some(1_100_000));
        assert_eq!(deadlines.next_us(&[Some(7)], true), Some(1_000_000 + MIN_PAUSE_US));
        deadlines.tick(2_000_000, 2_000_000);
        assert_eq!(deadlines.next_us(&[Some(7)], false), Some(2_000_000 + MIN_PAUSE_US));
        deadlines.begin_to_stop(3_000_000);
        let last_us = 3_000_000 + STOP_DEADLINE_US;
        assert_eq!(deadlines.next_us(&[], false), Some(last_us + 1));
        assert_eq!([last_us, last_us + 1].map(|us| deadlines.is_stop_over(us)), [false, true]);
    }

    #[test]
    fn a_tick_that_is_late_by_half_a_heartbeat_means_that_no_executor_could_be_heard() {
        let mut deadlines = Deadlines::new(HEARTBEAT, 0);
        assert!(!deadlines.tick(11_000_000, 10_000_000));
        assert!(deadlines.tick(11_000_001, 10_000_000));
        assert!(deadlines.lease_us() < deadlines.silence_us());
    }
}
