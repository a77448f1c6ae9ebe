//! Whether ordering the requests of a storage pays.
//!
//! Ordering saves what requests cost beyond their bytes: the seeks of a disk, the round trips and
//! slots of a busy server. Flash and memory have no such costs, so waiting for a turn only adds
//! time. Which of them a storage is cannot be seen from outside, and an NFS server may be either.
//! So it is measured, by the most recent requests:
//!
//! - While requests are ordered, by the duration of small requests that had a turn of their own. If
//!   12 of the last 16 took less than [`CHEAP_US`], the storage is *bypassed*: programs no longer
//!   ask. Large requests count only if they are faster than any disk.
//! - While a storage is bypassed, by how long single calls take. If half of them are slow, or slow
//!   calls take nine tenths of the time, requests are ordered again and stay so for a while, which
//!   doubles each time.

/// A small request that takes less than this is cheap. Asking for a turn costs about 50 µs, which
/// should be at most 3 % of a request.
const CHEAP_US: u64 = 1_700;
/// Largest small request.
const SMALL_BYTES: u64 = 128 << 10;
/// A larger request is cheap above this bandwidth. Otherwise it tells nothing. For example 1 MiB in
/// less than 524 us is cheap.
const CHEAP_BYTES_PER_US: u64 = 2_000;
/// Number of recent requests that are looked at,
const JUDGED_REQUESTS: u32 = 16;
/// and how many of them must be cheap to bypass the storage. Now and then one waits for a
/// processor.
const MIN_CHEAP_REQUESTS: u32 = 12;
/// Bypassed calls that are evaluated together,
const JUDGED_CALLS: u64 = 16;
/// or slow ones of them.
const JUDGED_SLOW_CALLS: u64 = 8;
/// If slow calls take this ratio of the time, the number of quick ones does not matter. For example
/// 8 slow calls that took 900 of 1,000 ms.
const SLOW_TIME_RATIO: (u64, u64) = (9, 10);
/// After this many calls the sums are halved, so that older calls count less.
const FADING_CALLS: u64 = 64;
/// Ordering is kept this long after a bypass that was wrong: the first time, and at most. It
/// doubles each time. For example 1, 2, 4 s and so on, up to 64 s.
const KEEP_ORDERING_US: core::ops::Range<u64> = 1_000_000..64_000_000;
/// A bypass that lasted this long was right.
const MIN_GOOD_BYPASS_US: u64 = 60_000_000;

/// Durations of calls to a bypassed storage, without those that found their bytes in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnorderedCalls {
    /// Number of calls.
    pub calls: u64,
    /// Duration of all of them together.
    pub total_us: u64,
    /// Number of slow calls among them.
    pub slow_calls: u64,
    /// Duration of the slow calls together.
    pub slow_us: u64,
}

/// Decides whether one storage is bypassed; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Bypass {
    state: State,
    keep_us: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Ordered {
        /// Whether each of the last requests was cheap: one bit each.
        last: u32,
        seen: u32,
        until_us: u64,
    },
    Bypassed {
        since_us: u64,
        seen: UnorderedCalls,
    },
}

impl Default for Bypass {
    fn default() -> Self {
        Bypass { state: State::ordered(0), keep_us: KEEP_ORDERING_US.start }
    }
}

impl State {
    fn ordered(until_us: u64) -> State {
        State::Ordered { last: 0, seen: 0, until_us }
    }
}

impl Bypass {
    /// Whether requests are ordered.
    pub fn is_ordered(&self) -> bool {
        matches!(self.state, State::Ordered { .. })
    }

    /// A request that had a turn of its own took `took_us`. `has_jumped`: it did not begin where
    /// the previous one ended.
    pub fn record_ordered(&mut self, now_us: u64, bytes: u64, took_us: u64, has_jumped: bool) {
        let State::Ordered { last, seen, until_us } = &mut self.state else { return };
        let is_small = bytes <= SMALL_BYTES;
        let is_cheap =
            if is_small { took_us < CHEAP_US } else { took_us < bytes / CHEAP_BYTES_PER_US };
        let tells = if is_small { has_jumped } else { is_cheap };
        if !tells {
            return;
        }
        *last = *last << 1 & ((1 << JUDGED_REQUESTS) - 1) | u32::from(is_cheap);
        *seen = (*seen + 1).min(JUDGED_REQUESTS);
        if *seen == JUDGED_REQUESTS
            && last.count_ones() >= MIN_CHEAP_REQUESTS
            && now_us >= *until_us
        {
            self.state = State::Bypassed { since_us: now_us, seen: UnorderedCalls::default() };
        }
    }

    /// Ordering must be kept, whatever it gains.
    pub fn keep_ordering(&mut self, now_us: u64) {
        self.state = State::ordered(now_us.saturating_add(self.keep_us));
    }

    /// More calls were measured while the storage is bypassed.
    pub fn record_unordered(&mut self, now_us: u64, more: UnorderedCalls) {
        let State::Bypassed { since_us, seen } = &mut self.state else { return };
        seen.calls = seen.calls.saturating_add(more.calls);
        seen.total_us = seen.total_us.saturating_add(more.total_us);
        seen.slow_calls = seen.slow_calls.saturating_add(more.slow_calls);
        seen.slow_us = seen.slow_us.saturating_add(more.slow_us);
        let most_calls_are_slow = seen.calls >= JUDGED_CALLS && seen.slow_calls >= seen.calls / 2;
        let (part, of) = SLOW_TIME_RATIO;
        let most_time_is_slow =
            seen.slow_calls >= JUDGED_SLOW_CALLS && seen.slow_us / part >= seen.total_us / of;
        if most_calls_are_slow || most_time_is_slow {
            let went_well = now_us.saturating_sub(*since_us) >= MIN_GOOD_BYPASS_US;
            let keep_us = if went_well { KEEP_ORDERING_US.start } else { self.keep_us };
            self.state = State::ordered(now_us.saturating_add(keep_us));
            self.keep_us = (keep_us * 2).min(KEEP_ORDERING_US.end);
        }
        while let State::Bypassed { seen, .. } = &mut self.state
            && seen.calls >= FADING_CALLS
        {
            let UnorderedCalls { calls, total_us, slow_calls, slow_us } = *seen;
            *seen = UnorderedCalls {
                calls: calls / 2,
                total_us: total_us / 2,
                slow_calls: slow_calls / 2,
                slow_us: slow_us / 2,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000;

    /// A storage that is bypassed.
    fn bypassed() -> Bypass {
        let mut bypass = Bypass::default();
        seen(&mut bypass, JUDGED_REQUESTS, 4 * KIB, 90);
        assert!(!bypass.is_ordered());
        bypass
    }

    /// Records `count` requests that each jumped.
    fn seen(bypass: &mut Bypass, count: u32, bytes: u64, took_us: u64) {
        (0..count).for_each(|_| bypass.record_ordered(0, bytes, took_us, true));
    }

    /// Sums for quick and slow calls of these durations.
    fn calls(quick: u64, quick_us: u64, slow: u64, slow_us: u64) -> UnorderedCalls {
        let total_us = quick * quick_us + slow * slow_us;
        UnorderedCalls { calls: quick + slow, total_us, slow_calls: slow, slow_us: slow * slow_us }
    }

    #[test]
    fn flash_is_not_ordered() {
        let mut bypass = Bypass::default();
        seen(&mut bypass, JUDGED_REQUESTS - 1, 4 * KIB, 90);
        assert!(bypass.is_ordered(), "too few");
        bypass.record_ordered(0, 4 * KIB, 90, true);
        assert!(!bypass.is_ordered());
        // One call in twenty waits for a processor.
        (0..100).for_each(|second| {
            bypass.record_unordered(second * SECOND, calls(190, 100, 10, 5_000))
        });
        assert!(!bypass.is_ordered());
    }

    #[test]
    fn a_disk_that_seeks_is_ordered() {
        let mut bypass = Bypass::default();
        seen(&mut bypass, 1_000, 4 * KIB, 8_000);
        assert!(bypass.is_ordered());
        seen(&mut bypass, 1_000, MIB / 2, 700);
        assert!(bypass.is_ordered(), "these only say that it streams well");
        (0..1_000).for_each(|_| bypass.record_ordered(0, 64 * KIB, 400, false));
        assert!(bypass.is_ordered(), "nor do those that go on");
        seen(&mut bypass, MIN_CHEAP_REQUESTS - 1, 4 * KIB, 300);
        assert!(bypass.is_ordered(), "some were in its memory");
    }

    #[test]
    fn a_process_that_waits_for_a_processor_changes_nothing() {
        let mut bypass = Bypass::default();
        for number in 0..JUDGED_REQUESTS {
            bypass.record_ordered(0, 4 * KIB, if number % 4 == 0 { 5_000 } else { 90 }, true);
        }
        assert!(!bypass.is_ordered());
    }

    #[test]
    fn large_requests_at_memory_speed_count_too() {
        let mut bypass = Bypass::default();
        seen(&mut bypass, JUDGED_REQUESTS, MIB / 2, 150);
        assert!(!bypass.is_ordered());
    }

    #[test]
    fn slow_calls_that_are_half_of_all_end_the_bypass() {
        let mut bypass = bypassed();
        bypass.record_unordered(SECOND, calls(8, 100, 7, 16_000));
        assert!(!bypass.is_ordered(), "too few");
        bypass.record_unordered(SECOND, calls(0, 0, 1, 16_000));
        assert!(bypass.is_ordered());
    }

    #[test]
    fn few_slow_calls_that_take_most_of_the_time_end_the_bypass() {
        // Many calls hit the server's memory; eight wait for its disk.
        let mut bypass = bypassed();
        (0..4).for_each(|second| {
            bypass.record_unordered(second * SECOND, calls(120, 200, 8, 60_000))
        });
        assert!(bypass.is_ordered());
    }

    #[test]
    fn recent_calls_count_most() {
        let mut bypass = bypassed();
        bypass.record_unordered(SECOND, calls(1_000_000, 100, 0, 0));
        bypass.record_unordered(2 * SECOND, calls(0, 0, JUDGED_CALLS, 16_000));
        assert!(bypass.is_ordered());
    }

    #[test]
    fn a_storage_that_must_be_ordered_is() {
        let mut bypass = bypassed();
        bypass.keep_ordering(SECOND);
        assert!(bypass.is_ordered());
    }

    #[test]
    fn a_wrong_bypass_is_tried_less_often() {
        let mut bypass = Bypass::default();
        let mut now_us = 0;
        let mut tries = 0;
        while now_us < 1_000 * SECOND {
            bypass.record_ordered(now_us, 4 * KIB, 90, true);
            if !bypass.is_ordered() {
                tries += 1;
                bypass.record_unordered(now_us, calls(0, 0, 20, 16_000));
                assert!(bypass.is_ordered());
            }
            now_us += 10_000;
        }
        assert!((10..30).contains(&tries), "{tries}");
    }
}
