//! Whether it pays to order the requests to a storage.
//!
//! Order spares what requests cost beyond their bytes: the seeks of a disk, the round trips and slots of a busy server.
//! Flash and memory ask for nothing of the kind, and there waiting for a turn only costs. Which is which cannot be
//! seen from outside, and an NFS server may be either; so it is measured, always by the storage's last answers:
//!
//! - While requests are ordered, by how long those take that had their turn alone. When most are done in less time than a seek or a
//!   busy server would need, the storage is left to its programs.
//! - While they are not, by how long programs wait for their calls altogether. When that is more than they would wait for a storage that serves
//!   each of them at a moderate rate, requests are ordered again, and stay so for a while: each time for longer.

/// A request that is done in this time has cost nothing that could be spared, however large it was.
const CHEAP_US: u64 = 500;
/// One that takes longer tells that it was dear if it has no more bytes than this; else it may be its bytes.
const SMALL_BYTES: u64 = 128 << 10;
/// Requests that are judged by,
const JUDGED: u32 = 16;
/// and how many of them are cheap where order is given up: now and then one waits for a processor.
const CHEAP: u32 = 12;
/// Without order, each process is to have at least so many bytes in a microsecond of waiting,
const FAIR_BYTES_PER_US: u64 = 25;
/// and so long for a call besides.
const CALL_US: u64 = 100;
/// It is judged when programs have waited for so long in all.
const EVIDENCE_US: u64 = 200_000;
/// Where order was given up in vain, it is kept for so long: twice as long each time, up to the second.
const HOLD_US: core::ops::Range<u64> = 1_000_000..64_000_000;

/// What programs have done with a storage whose requests are not ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unordered {
    /// Calls.
    pub calls: u64,
    /// What they have read and written.
    pub bytes: u64,
    /// How long they took, all together.
    pub us: u64,
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
    Unordered(Unordered),
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
            self.state = State::Unordered(Unordered::default());
        }
    }

    /// Programs have done this since it was last told.
    pub fn went_on(&mut self, now_us: u64, more: Unordered) {
        let State::Unordered(all) = &mut self.state else { return };
        all.calls = all.calls.saturating_add(more.calls);
        all.bytes = all.bytes.saturating_add(more.bytes);
        all.us = all.us.saturating_add(more.us);
        if all.us < EVIDENCE_US {
            return;
        }
        let fair_us = (all.bytes / FAIR_BYTES_PER_US).saturating_add(all.calls.saturating_mul(CALL_US));
        if all.us > fair_us {
            self.state = State::ordered(now_us.saturating_add(self.hold_us));
            self.hold_us = (self.hold_us * 2).min(HOLD_US.end);
        } else {
            *all = Unordered::default();
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
        // Eight processes, each of which waits for flash all the time.
        let second = Unordered { calls: 80_000, bytes: 80_000 * 4 * KIB, us: 8 * SECOND };
        (0..100).for_each(|second_number| worth.went_on(second_number * SECOND, second));
        assert!(!worth.is_ordered());
    }

    #[test]
    fn a_disk_that_seeks_is_ordered() {
        let mut worth = Worth::default();
        seen(&mut worth, 0, 1_000, 4 * KIB, 8_000);
        assert!(worth.is_ordered());
        seen(&mut worth, 0, JUDGED, 512 * KIB, 3_500);
        assert!(worth.is_ordered(), "these say nothing");
        seen(&mut worth, 0, CHEAP - 1, 4 * KIB, 30);
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
    fn it_is_ordered_again_when_programs_wait() {
        // What a second of eight processes is like that read a disk without order: 64 ms for 128 KiB of each.
        for (call, name) in [(4 * KIB, "small calls"), (64 * KIB, "larger ones"), (MIB, "large ones")] {
            let mut worth = Worth::default();
            seen(&mut worth, 0, JUDGED, 4 * KIB, 90);
            let bytes = 8 * 16 * 128 * KIB;
            worth.went_on(SECOND, Unordered { calls: bytes / call, bytes, us: 8 * SECOND });
            assert!(worth.is_ordered(), "{name}");
        }
    }

    #[test]
    fn who_hardly_waits_needs_no_order() {
        let mut worth = Worth::default();
        seen(&mut worth, 0, JUDGED, 4 * KIB, 90);
        (0..3).for_each(|second| worth.went_on(second * SECOND, Unordered { calls: 10, bytes: 40 * KIB, us: 60_000 }));
        assert!(!worth.is_ordered());
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
                worth.went_on(now_us, Unordered { calls: 100, bytes: 400 * KIB, us: SECOND });
                assert!(worth.is_ordered());
            }
            now_us += 10_000;
        }
        assert!((10..30).contains(&tries), "{tries}");
    }
}
