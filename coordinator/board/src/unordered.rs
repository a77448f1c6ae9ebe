//! Storages where order would gain nothing: programs go ahead there, and now and then one tells how long a call has taken.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
    calls: AtomicU32,
    slow: AtomicU32,
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
    /// A call has moved so many bytes, and taken so long, in microseconds; whether it had to wait for the storage.
    pub fn took(&self, bytes: u64, us: u64) -> bool {
        if us < MEMORY_US + bytes / MEMORY_BYTES_PER_US {
            return false;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.slow.fetch_add((us > SLOW_US + bytes / FAIR_BYTES_PER_US).into(), Ordering::Relaxed);
        true
    }

    /// Calls that had to wait for the storage since this was last asked, and how many of them took long. Of the agent.
    pub fn take(&self) -> (u32, u32) {
        (self.calls.swap(0, Ordering::Relaxed), self.slow.swap(0, Ordering::Relaxed))
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
        assert!(!storage.took(4096, 2) && !storage.took(MIB, 300), "from memory");
        assert_eq!(storage.take(), (0, 0));
        assert!(storage.took(4096, 90) && storage.took(MIB, 3_000), "flash");
        assert_eq!(storage.take(), (2, 0));
        assert!(storage.took(4096, 8_000) && storage.took(MIB, 370_000), "a disk that others use, too");
        assert_eq!(storage.take(), (2, 2));
        assert_eq!(storage.take(), (0, 0));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let board = anonymous();
        assert!((1..=UNORDERED as u64).all(|device| board.leave_alone(device).is_some()));
        assert_eq!(board.leave_alone(99), None);
    }
}
