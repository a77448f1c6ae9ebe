//! Storages where order would gain nothing: programs go ahead there, and now and then one tells how long a call has taken.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Board;

/// Storages that a node's programs can be left alone with.
pub const UNORDERED: usize = 32;

/// What is in memory is there in this time, in microseconds, and at so many bytes in each: such calls tell nothing of a storage.
const MEMORY_US: u64 = 20;
const MEMORY_BYTES_PER_US: u64 = 2_000;
/// A call that takes longer than this has waited for others, or for a seek,
const SLOW_US: u64 = 4_000;
/// unless it had so many bytes in each microsecond that it took longer.
const FAIR_BYTES_PER_US: u64 = 25;

/// One of them.
#[repr(C, align(64))]
pub struct Unordered {
    /// By which it is known; 0 while the place is nobody's.
    device: AtomicU64,
    calls: AtomicU64,
    us: AtomicU64,
    slow_calls: AtomicU64,
    slow_us: AtomicU64,
}

impl Board {
    /// The place of a storage whose requests are not ordered.
    pub fn unordered(&self, device: u64) -> Option<usize> {
        self.place_of(device).filter(|_| device != 0)
    }

    fn place_of(&self, device: u64) -> Option<usize> {
        self.unordered.iter().position(|storage| storage.device.load(Ordering::Relaxed) == device)
    }

    /// Leaves a storage to its programs; where that is said, unless there is no place for it. Of the agent.
    pub fn leave_alone(&self, device: u64) -> Option<usize> {
        let place = self.place_of(0)?;
        self.unordered[place].take();
        self.unordered[place].device.store(device, Ordering::Relaxed);
        Some(place)
    }
}

impl Unordered {
    /// A call that was to read has moved so many bytes, and taken so long, in microseconds.
    pub fn took(&self, bytes: u64, us: u64) {
        if us < MEMORY_US + bytes / MEMORY_BYTES_PER_US {
            return;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.us.fetch_add(us, Ordering::Relaxed);
        if us > SLOW_US + bytes / FAIR_BYTES_PER_US {
            self.slow_calls.fetch_add(1, Ordering::Relaxed);
            self.slow_us.fetch_add(us, Ordering::Relaxed);
        }
    }

    /// What was seen of calls that had to wait for the storage, since this was last asked: how many, how long they took, how many
    /// took long, and how long these took. Of the agent.
    pub fn take(&self) -> [u64; 4] {
        [&self.calls, &self.us, &self.slow_calls, &self.slow_us].map(|sum| sum.swap(0, Ordering::Relaxed))
    }

    /// Its requests are ordered again. Of the agent.
    pub fn order(&self) {
        self.device.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::anonymous;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_storage_is_left_alone_and_ordered_again() {
        let board = anonymous();
        assert_eq!(board.unordered(7), None);
        let place = board.leave_alone(7).unwrap();
        assert_eq!(board.unordered(7), Some(place));
        board.unordered[place].order();
        assert_eq!(board.unordered(7), None);
        assert_eq!(board.unordered(0), None, "nobody's place is not of a storage");
    }

    #[test]
    fn calls_tell_of_the_storage_that_they_wait_for() {
        let board = anonymous();
        let storage = &board.unordered[board.leave_alone(7).unwrap()];
        let told = |calls: [(u64, u64); 2]| {
            calls.into_iter().for_each(|(bytes, us)| storage.took(bytes, us));
            storage.take()
        };
        let [memory, flash, busy_disk] =
            [[(4096, 2), (MIB, 300)], [(4096, 90), (MIB, 3_000)], [(4096, 8_000), (MIB, 370_000)]];
        assert_eq!(told(memory), [0; 4]);
        assert_eq!(told(flash), [2, 3_090, 0, 0]);
        assert_eq!(told(busy_disk), [2, 378_000, 2, 378_000]);
        assert_eq!(storage.take(), [0; 4]);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let board = anonymous();
        assert!((1..=UNORDERED as u64).all(|device| board.leave_alone(device).is_some()));
        assert_eq!(board.leave_alone(99), None);
    }
}
