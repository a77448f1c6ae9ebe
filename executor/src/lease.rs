//! The right to let outputs appear. A dispatcher that has not heard of this executor for a while gives its tasks to
//! others; then an executor that was merely suspended must not overwrite what those have written. So each heartbeat is
//! answered, and the answer holds for less time than the dispatcher waits, counted from when the heartbeat was sent.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who waits for an answer looks whether it is still wanted so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The lease of one session.
pub(crate) struct Lease {
    length: Duration,
    times: Mutex<Times>,
    renewed: Condvar,
}

struct Times {
    until: Instant,
    /// When heartbeats were sent that have not been answered, the oldest first.
    unanswered: VecDeque<Instant>,
}

impl Lease {
    /// A lease from a registration that was sent at `sent` and has been answered.
    pub fn new(sent: Instant, length: Duration) -> Self {
        let times = Times { until: sent + length, unanswered: VecDeque::new() };
        Lease { length, times: Mutex::new(times), renewed: Condvar::new() }
    }

    /// A heartbeat is being sent.
    pub fn asked(&self, now: Instant) {
        self.times().unanswered.push_back(now);
    }

    /// The oldest heartbeat that was not answered has been.
    pub fn answered(&self) {
        let mut times = self.times();
        if let Some(sent) = times.unanswered.pop_front() {
            times.until = sent + self.length;
            self.renewed.notify_all();
        }
    }

    /// Waits until the lease holds, for as long as `is_wanted`; whether it does.
    pub fn wait(&self, is_wanted: impl Fn() -> bool) -> bool {
        let mut times = self.times();
        while is_wanted() {
            if Instant::now() < times.until {
                return true;
            }
            times = self.renewed.wait_timeout(times, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_from_when_the_answered_heartbeat_was_sent() {
        let hour = Duration::from_secs(3600);
        let now = Instant::now();
        let lease = Lease::new(now, Duration::from_secs(60));
        assert!(lease.wait(|| true));
        let expired = Lease::new(now.checked_sub(hour).unwrap(), Duration::from_secs(60));
        // Asked for long ago, answered only now: too late.
        expired.asked(now.checked_sub(hour / 2).unwrap());
        expired.asked(now);
        expired.answered();
        let looks = std::cell::Cell::new(0);
        assert!(!expired.wait(|| looks.replace(looks.get() + 1) < 2));
        expired.answered();
        assert!(expired.wait(|| true));
        assert!(!expired.wait(|| false));
    }
}
