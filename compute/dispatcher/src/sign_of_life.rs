//! The last sign of life of an executor. Its session notes it, without a message to the core; the
//! core reads it when the executor may be lost.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;

/// The time of an executor that was given up. No later sign of life counts: others have its tasks.
const GIVEN_UP: u64 = u64::MAX;

pub(crate) struct SignOfLife {
    clock: Clock,
    /// Microseconds since 1970, or [`GIVEN_UP`].
    last_us: AtomicU64,
}

impl SignOfLife {
    /// The sign of life of an executor that has just joined, by the core's clock.
    pub fn new(clock: Clock) -> Self {
        SignOfLife { clock, last_us: AtomicU64::new(clock.now_us()) }
    }

    /// When the executor was last heard of, microseconds since 1970.
    pub fn last_us(&self) -> u64 {
        self.last_us.load(Ordering::Acquire)
    }

    /// The executor was heard of now. False if it had been given up before.
    pub fn note(&self) -> bool {
        self.note_at(self.clock.now_us())
    }

    /// The executor was heard of at this time. False if it had been given up before.
    pub fn note_at(&self, now_us: u64) -> bool {
        self.update(|last_us| (last_us != GIVEN_UP).then_some(last_us.max(now_us)))
    }

    /// Gives the executor up, unless it was heard of at `since_us` or later. Whether it is given up
    /// now.
    pub fn give_up_unless_heard_since(&self, since_us: u64) -> bool {
        self.update(|last_us| (last_us < since_us).then_some(GIVEN_UP))
    }

    /// Gives the executor up.
    pub fn give_up(&self) {
        self.last_us.store(GIVEN_UP, Ordering::Release);
    }

    /// Changes the time in one step, if `change` returns a new one. Whether it did.
    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> bool {
        self.last_us.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_that_was_given_up_is_not_heard_of_again() {
        let sign = SignOfLife::new(Clock::new());
        let joined_us = sign.last_us();
        assert!(!sign.give_up_unless_heard_since(joined_us));
        assert!(sign.note() && sign.note_at(joined_us + 1_000_000_000));
        assert!(sign.note_at(joined_us), "a message that was handled late");
        assert_eq!(sign.last_us(), joined_us + 1_000_000_000);
        assert!(sign.give_up_unless_heard_since(joined_us + 1_000_000_001));
        assert!(!sign.note() && !sign.note_at(joined_us + 2_000_000_000));
    }
}
