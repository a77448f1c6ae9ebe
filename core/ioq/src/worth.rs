//! Whether it pays to order the requests to a storage.
//!
//! Order spares what requests cost beyond their bytes: the seeks of a disk, the round trips and slots of a busy server.
//! Flash and memory ask for nothing of the kind, and there waiting for a turn only costs. Which is which cannot be
//! seen from outside, and an NFS server may be either; so it is measured, always by the storage's last answers:
//!
//! - While requests are ordered, by how long those take that had their turn alone. When most are done in less time than a seek or a
//!   busy server would need, the storage is left to its programs.
//! - While they are not, by how many of the calls take long for which programs wait. If it is half of them, requests are ordered again, and
//!   stay so for a while: each time for longer.

/// A request that is done in this time is cheap, however large it was. To ask for a turn takes some fifty microseconds, which are
/// not to be more than three parts in a hundred.
const CHEAP_US: u64 = 1_700;
/// One that takes longer tells that it was dear if it has no more bytes than this; else it may be its bytes.
const SMALL_BYTES: u64 = 128 << 10;
/// Requests that are judged by,
const JUDGED: u32 = 16;
/// and how many of them are cheap where order is given up: now and then one waits for a processor.
const CHEAP: u32 = 12;
/// So many calls that went without order are judged together.
const JUDGED_CALLS: u32 = 16;
/// Where order was given up in vain, it is kept for so long: twice as long each time, up to the second.
const HOLD_US: core::ops::Range<u64> = 1_000_000..64_000_000;

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
        calls: u32,
        slow: u32,
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

    /// A request that went alone in its turn, and did not go on where the one before ended, has taken so long, in microseconds.
    pub fn took(&mut self, now_us: u64, bytes: u64, us: u64) {
        let State::Ordered { last, seen, until_us } = &mut self.state else { return };
        let is_cheap = us < CHEAP_US;
        if !is_cheap && bytes > SMALL_BYTES {
            return;
        }
        *last = *last << 1 & ((1 << JUDGED) - 1) | u32::from(is_cheap);
        *seen = (*seen + 1).min(JUDGED);
        if *seen == JUDGED && last.count_ones() >= CHEAP && now_us >= *until_us {
            self.state = State::Unordered { calls: 0, slow: 0 };
        }
    }

    /// So many more calls have waited for the storage, which is not ordered, and so many of them long.
    pub fn went_on(&mut self, now_us: u64, more_calls: u32, more_slow: u32) {
        let State::Unordered { calls, slow } = &mut self.state else { return };
        *calls = calls.saturating_add(more_calls);
        *slow = slow.saturating_add(more_slow);
        if *calls < JUDGED_CALLS {
            return;
        }
        if *slow >= *calls / 2 {
            self.state = State::ordered(now_us.saturating_add(self.hold_us));
            self.hold_us = (self.hold_us * 2).min(HOLD_US.end);
        } else {
            (*calls, *slow) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000;

    /// A storage of which so many requests were seen to be so large, and to take so long.
    fn seen(worth: &mut Worth, now_us: u64, count: u32, bytes: u64, us: u64) {
        (0..count).for_each(|_| worth.took(now_us, bytes, us));
    }

    #[test]
    fn flash_is_not_ordered() {
        let mut worth = Worth::default();
        seen(&mut worth, 0, JUDGED - 1, 4 * KIB, 90);
        assert!(worth.is_ordered(), "that is too few");
        worth.took(0, 4 * KIB, 90);
        assert!(!worth.is_ordered());
        (0..100).for_each(|second| worth.went_on(second * SECOND, 5_000, 20));
        assert!(!worth.is_ordered());
    }

    #[test]
    fn a_disk_that_seeks_is_ordered() {
        let mut worth = Worth::default();
        seen(&mut worth, 0, 1_000, 4 * KIB, 8_000);
        assert!(worth.is_ordered());
        seen(&mut worth, 0, 1_000, 512 * KIB, 3_500);
        assert!(worth.is_ordered(), "these say nothing");
        seen(&mut worth, 0, CHEAP - 1, 4 * KIB, 300);
        assert!(worth.is_ordered(), "some were in its memory");
    }

    #[test]
    fn a_process_that_waits_for_a_processor_changes_nothing() {
        let mut worth = Worth::default();
        for number in 0..JUDGED {
            worth.took(0, 4 * KIB, if number % 4 == 0 { 5_000 } else { 90 });
        }
        assert!(!worth.is_ordered());
    }

    #[test]
    fn large_requests_that_are_done_at_once_show_it_too() {
        let mut worth = Worth::default();
        seen(&mut worth, 0, JUDGED, MIB / 2, 150);
        assert!(!worth.is_ordered());
    }

    #[test]
    fn it_is_ordered_again_when_calls_take_long() {
        let mut worth = Worth::default();
        seen(&mut worth, 0, JUDGED, 4 * KIB, 90);
        worth.went_on(SECOND, JUDGED_CALLS - 1, JUDGED_CALLS - 1);
        assert!(!worth.is_ordered(), "that is too few");
        worth.went_on(SECOND, 1, 1);
        assert!(worth.is_ordered());
    }

    #[test]
    fn what_comes_now_counts() {
        let mut worth = Worth::default();
        seen(&mut worth, 0, JUDGED, 4 * KIB, 90);
        worth.went_on(SECOND, 1_000_000, 0);
        worth.went_on(2 * SECOND, JUDGED_CALLS, JUDGED_CALLS);
        assert!(worth.is_ordered());
    }

    #[test]
    fn what_was_in_vain_is_tried_less_often() {
        let mut worth = Worth::default();
        let mut now_us = 0;
        let mut tries = 0;
        while now_us < 1_000 * SECOND {
            worth.took(now_us, 4 * KIB, 90);
            if !worth.is_ordered() {
                tries += 1;
                worth.went_on(now_us, 20, 20);
                assert!(worth.is_ordered());
            }
            now_us += 10_000;
        }
        assert!((10..30).contains(&tries), "{tries}");
    }
}
