//! Whether it pays to order the requests to a storage.
//!
//! Order spares what requests cost beyond their bytes: the seeks of a disk, the round trips and slots of a busy server.
//! Flash and memory ask for nothing of the kind, and there waiting for a turn only costs. Which is which cannot be
//! seen from outside, and an NFS server may be either; so it is measured, always by the storage's last answers:
//!
//! - While requests are ordered, by how long small ones take that had their turn alone. When most are done in less time than
//!   a seek or a busy server would need, the storage is left to its programs. Large ones tell as much only if they
//!   come faster than from any disk.
//! - While they are not, by how long programs wait for single calls. If half of these take long, or most of the time is waited for
//!   some that do, requests are ordered again, and stay so for a while: each time for longer.

/// A small request that is done in this time is cheap. To ask for a turn takes some fifty microseconds, which are not to be more
/// than three parts in a hundred.
const CHEAP_US: u64 = 1_700;
/// A small request has no more bytes.
const SMALL_BYTES: u64 = 128 << 10;
/// A larger one is cheap if it has so many bytes in each microsecond; else it tells nothing.
const CHEAP_BYTES_PER_US: u64 = 2_000;
/// Requests that are judged by,
const JUDGED: u32 = 16;
/// and how many of them are cheap where order is given up: now and then one waits for a processor.
const CHEAP: u32 = 12;
/// So many calls that went without order are judged together,
const JUDGED_CALLS: u64 = 16;
/// or so many that took long.
const JUDGED_SLOW: u64 = 8;
/// If slow calls take so much of the time, it does not matter how many quick ones there are.
const SLOW_SHARE: (u64, u64) = (9, 10);
/// What was seen counts for half as much after so many calls.
const FADING_CALLS: u64 = 64;
/// Where order was given up in vain, it is kept for so long: twice as long each time, up to the second.
const HOLD_US: core::ops::Range<u64> = 1_000_000..64_000_000;
/// After so long without order, that was not in vain.
const WELL_US: u64 = 60_000_000;

/// What was seen of calls that went without order and had to wait for the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Calls.
    pub calls: u64,
    /// How long they took, all together.
    pub us: u64,
    /// Those of them that took long.
    pub slow_calls: u64,
    /// How long these took.
    pub slow_us: u64,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Worth {
    state: State,
    hold_us: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Ordered {
        /// Whether each of the last requests was cheap: a bit for each.
        last: u32,
        seen: u32,
        until_us: u64,
    },
    Unordered {
        since_us: u64,
        seen: Waited,
    },
}

impl Default for Worth {
    fn default() -> Self {
        Worth { state: State::ordered(0), hold_us: HOLD_US.start }
    }
}

impl State {
    fn ordered(until_us: u64) -> State {
        State::Ordered { last: 0, seen: 0, until_us }
    }
}

impl Worth {
    /// Whether requests are to be ordered.
    pub fn is_ordered(&self) -> bool {
        matches!(self.state, State::Ordered { .. })
    }

    /// A request that went alone in its turn has taken so long, in microseconds; whether it began elsewhere than where the one
    /// before had ended.
    pub fn took(&mut self, now_us: u64, bytes: u64, us: u64, has_jumped: bool) {
        let State::Ordered { last, seen, until_us } = &mut self.state else { return };
        let is_small = bytes <= SMALL_BYTES;
        let is_cheap = if is_small { us < CHEAP_US } else { us < bytes / CHEAP_BYTES_PER_US };
        if if is_small { !has_jumped } else { !is_cheap } {
            return;
        }
        *last = *last << 1 & ((1 << JUDGED) - 1) | u32::from(is_cheap);
        *seen = (*seen + 1).min(JUDGED);
        if *seen == JUDGED && last.count_ones() >= CHEAP && now_us >= *until_us {
            self.state = State::Unordered { since_us: now_us, seen: Waited::default() };
        }
    }

    /// Order cannot be given up, whatever is gained by it.
    pub fn keep(&mut self, now_us: u64) {
        self.state = State::ordered(now_us.saturating_add(self.hold_us));
    }

    /// More was seen of calls to the storage, which is not ordered.
    pub fn waited(&mut self, now_us: u64, more: Waited) {
        let State::Unordered { since_us, seen } = &mut self.state else { return };
        seen.calls = seen.calls.saturating_add(more.calls);
        seen.us = seen.us.saturating_add(more.us);
        seen.slow_calls = seen.slow_calls.saturating_add(more.slow_calls);
        seen.slow_us = seen.slow_us.saturating_add(more.slow_us);
        let most_are_slow = seen.calls >= JUDGED_CALLS && seen.slow_calls >= seen.calls / 2;
        let (part, of) = SLOW_SHARE;
        let most_time_is = seen.slow_calls >= JUDGED_SLOW && seen.slow_us / part >= seen.us / of;
        if most_are_slow || most_time_is {
            let went_well = now_us.saturating_sub(*since_us) >= WELL_US;
            let hold_us = if went_well { HOLD_US.start } else { self.hold_us };
            self.state = State::ordered(now_us.saturating_add(hold_us));
            self.hold_us = (hold_us * 2).min(HOLD_US.end);
        }
        while let State::Unordered { seen, .. } = &mut self.state
            && seen.calls >= FADING_CALLS
        {
            let Waited { calls, us, slow_calls, slow_us } = *seen;
            *seen = Waited { calls: calls / 2, us: us / 2, slow_calls: slow_calls / 2, slow_us: slow_us / 2 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000;

    /// A storage that is not ordered.
    fn left_alone() -> Worth {
        let mut worth = Worth::default();
        seen(&mut worth, JUDGED, 4 * KIB, 90);
        assert!(!worth.is_ordered());
        worth
    }

    /// So many requests were seen to be so large, to take so long, and to begin elsewhere.
    fn seen(worth: &mut Worth, count: u32, bytes: u64, us: u64) {
        (0..count).for_each(|_| worth.took(0, bytes, us, true));
    }

    /// Quick and slow calls, and what each takes.
    fn calls(quick: u64, quick_us: u64, slow: u64, slow_us: u64) -> Waited {
        let us = quick * quick_us + slow * slow_us;
        Waited { calls: quick + slow, us, slow_calls: slow, slow_us: slow * slow_us }
    }

    #[test]
    fn flash_is_not_ordered() {
        let mut worth = Worth::default();
        seen(&mut worth, JUDGED - 1, 4 * KIB, 90);
        assert!(worth.is_ordered(), "that is too few");
        worth.took(0, 4 * KIB, 90, true);
        assert!(!worth.is_ordered());
        // One call in twenty waits for a processor.
        (0..100).for_each(|second| worth.waited(second * SECOND, calls(190, 100, 10, 5_000)));
        assert!(!worth.is_ordered());
    }

    #[test]
    fn a_disk_that_seeks_is_ordered() {
        let mut worth = Worth::default();
        seen(&mut worth, 1_000, 4 * KIB, 8_000);
        assert!(worth.is_ordered());
        seen(&mut worth, 1_000, MIB / 2, 700);
        assert!(worth.is_ordered(), "these only say that it streams well");
        (0..1_000).for_each(|_| worth.took(0, 64 * KIB, 400, false));
        assert!(worth.is_ordered(), "nor do those that go on");
        seen(&mut worth, CHEAP - 1, 4 * KIB, 300);
        assert!(worth.is_ordered(), "some were in its memory");
    }

    #[test]
    fn a_process_that_waits_for_a_processor_changes_nothing() {
        let mut worth = Worth::default();
        for number in 0..JUDGED {
            worth.took(0, 4 * KIB, if number % 4 == 0 { 5_000 } else { 90 }, true);
        }
        assert!(!worth.is_ordered());
    }

    #[test]
    fn large_requests_that_come_as_if_from_memory_show_it_too() {
        let mut worth = Worth::default();
        seen(&mut worth, JUDGED, MIB / 2, 150);
        assert!(!worth.is_ordered());
    }

    #[test]
    fn it_is_ordered_again_when_half_of_the_calls_take_long() {
        let mut worth = left_alone();
        worth.waited(SECOND, calls(8, 100, 7, 16_000));
        assert!(!worth.is_ordered(), "that is too few");
        worth.waited(SECOND, calls(0, 0, 1, 16_000));
        assert!(worth.is_ordered());
    }

    #[test]
    fn it_is_ordered_again_when_most_of_the_time_is_waited_for_few() {
        // Many find what they want in the server's memory; eight wait for its disk.
        let mut worth = left_alone();
        (0..4).for_each(|second| worth.waited(second * SECOND, calls(120, 200, 8, 60_000)));
        assert!(worth.is_ordered());
    }

    #[test]
    fn what_comes_now_counts() {
        let mut worth = left_alone();
        worth.waited(SECOND, calls(1_000_000, 100, 0, 0));
        worth.waited(2 * SECOND, calls(0, 0, JUDGED_CALLS, 16_000));
        assert!(worth.is_ordered());
    }

    #[test]
    fn what_has_to_be_ordered_is() {
        let mut worth = left_alone();
        worth.keep(SECOND);
        assert!(worth.is_ordered());
    }

    #[test]
    fn what_was_in_vain_is_tried_less_often() {
        let mut worth = Worth::default();
        let mut now_us = 0;
        let mut tries = 0;
        while now_us < 1_000 * SECOND {
            worth.took(now_us, 4 * KIB, 90, true);
            if !worth.is_ordered() {
                tries += 1;
                worth.waited(now_us, calls(0, 0, 20, 16_000));
                assert!(worth.is_ordered());
            }
            now_us += 10_000;
        }
        assert!((10..30).contains(&tries), "{tries}");
    }
}
