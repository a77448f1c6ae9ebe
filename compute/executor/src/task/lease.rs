//! The lease: an executor's right to let outputs appear. A dispatcher that has not heard from an
//! executor for a while gives the executor's tasks to others. If the executor was only suspended,
//! it must not overwrite what the others have written. So the dispatcher answers each heartbeat,
//! and the answer is valid for less time than the dispatcher waits, counted from the moment when
//! the heartbeat was sent.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time between two checks whether the lease is still wanted.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The lease of one session.
pub(crate) struct Lease {
    length: Duration,
    times: Mutex<Times>,
    renewed: Condvar,
}

struct Times {
    until: Moment,
    /// When the unanswered heartbeats were sent, oldest first.
    unanswered: VecDeque<Moment>,
}

/// A moment on a clock that continues while the machine sleeps. The dispatcher's clock stops then,
/// so a lease never lasts longer than the dispatcher waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Moment(Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
    }

    fn after(self, length: Duration) -> Self {
        Moment(self.0 + length)
    }
}

impl Lease {
    /// The lease after the answer to a registration that was sent at `sent`.
    pub fn new(sent: Moment, length: Duration) -> Self {
        let times = Times { until: sent.after(length), unanswered: VecDeque::new() };
        Lease { length, times: Mutex::new(times), renewed: Condvar::new() }
    }

    /// Records that a heartbeat is being sent.
    pub fn asked(&self, now: Moment) {
        self.times().unanswered.push_back(now);
    }

    /// Records the answer to the oldest unanswered heartbeat.
    pub fn answered(&self) {
        let mut times = self.times();
        if let Some(sent) = times.unanswered.pop_front() {
            times.until = sent.after(self.length);
            self.renewed.notify_all();
        }
    }

    /// Waits until the lease is valid, while it `is_wanted`. Whether it is valid.
    pub fn wait(&self, is_wanted: impl Fn() -> bool) -> bool {
        let mut times = self.times();
        while is_wanted() {
            if Moment::now() < times.until {
                return true;
            }
            times = self
                .renewed
                .wait_timeout(times, CHECK_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
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
    fn a_lease_counts_from_when_the_answered_heartbeat_was_sent() {
        let lease = Lease::new(Moment::now(), Duration::from_secs(60));
        assert!(lease.wait(|| true));
        let expired = Lease::new(Moment(Duration::ZERO), Duration::ZERO);
        // Sent long ago and answered only now: too late.
        expired.asked(Moment(Duration::ZERO));
        expired.asked(Moment::now().after(Duration::from_secs(60)));
        expired.answered();
        let looks = std::cell::Cell::new(0);
        assert!(!expired.wait(|| looks.replace(looks.get() + 1) < 2));
        expired.answered();
        assert!(expired.wait(|| true));
        assert!(!expired.wait(|| false));
    }
}
