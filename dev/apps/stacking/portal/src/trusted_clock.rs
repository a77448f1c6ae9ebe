//! The time by which jobs are deleted. A clock that is set forward by mistake must not delete all
//! of them at once: the portal believes it after some minutes in which it was not set back.

/// A clock that is ahead of the expected time by more was set.
const MAX_AHEAD_MS: u64 = 60 * 1000;
/// A clock that was set is believed after this time.
const BELIEVED_MS: u64 = 10 * 60 * 1000;

/// The time that is believed.
pub struct TrustedClock {
    /// The time of the clock that was believed last, and the monotonic time then.
    believed_ms: u64,
    at_ms: u64,
    /// The monotonic time since which the clock is ahead.
    ahead_since_ms: Option<u64>,
}

impl TrustedClock {
    /// Begins with the time of the clock.
    pub fn begin(clock_ms: u64, monotonic_ms: u64) -> Self {
        TrustedClock { believed_ms: clock_ms, at_ms: monotonic_ms, ahead_since_ms: None }
    }

    /// The time now, milliseconds since 1970. For example, a clock that is set forward by 30 days
    /// counts for 10 min as if it was not.
    pub fn now_ms(&mut self, clock_ms: u64, monotonic_ms: u64) -> u64 {
        let expected_ms = self.believed_ms + monotonic_ms.saturating_sub(self.at_ms);
        if clock_ms > expected_ms + MAX_AHEAD_MS {
            let since_ms = *self.ahead_since_ms.get_or_insert(monotonic_ms);
            if monotonic_ms < since_ms + BELIEVED_MS {
                return expected_ms;
            }
        }
        *self = TrustedClock::begin(clock_ms, monotonic_ms);
        clock_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_forward_is_believed_later() {
        let (day, minute) = (24 * 3600 * 1000, 60 * 1000);
        let mut clock = TrustedClock::begin(day, 0);
        assert_eq!(clock.now_ms(day + minute, minute), day + minute);
        assert_eq!(clock.now_ms(31 * day, 2 * minute), day + 2 * minute);
        assert_eq!(clock.now_ms(31 * day, 11 * minute), day + 11 * minute);
        // It is set back before it is believed.
        assert_eq!(clock.now_ms(day + 11 * minute, 11 * minute), day + 11 * minute);
        assert_eq!(clock.now_ms(31 * day, 12 * minute), day + 12 * minute);
        assert_eq!(clock.now_ms(31 * day, 22 * minute), 31 * day);
        // Set back, it deletes nothing.
        assert_eq!(clock.now_ms(day, 23 * minute), day);
    }
}
