//! Storages where order would gain nothing: programs go ahead there, and say how long they wait all the same.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Board;

/// Storages that a node's programs can be left alone with.
pub const UNORDERED: usize = 32;

/// One of them.
#[repr(C, align(64))]
pub struct Unordered {
    /// By which it is known; 0 while the place is nobody's.
    device: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
    ms: AtomicU64,
}

/// What programs have done there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Calls.
    pub calls: u64,
    /// What they have read and written.
    pub bytes: u64,
    /// How long they took, all together.
    pub ms: u64,
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
    /// Something has been done there.
    pub fn add(&self, done: Done) {
        self.calls.fetch_add(done.calls, Ordering::Relaxed);
        self.bytes.fetch_add(done.bytes, Ordering::Relaxed);
        self.ms.fetch_add(done.ms, Ordering::Relaxed);
    }

    /// What has been done since this was last asked. Of the agent.
    pub fn take(&self) -> Done {
        let [calls, bytes, ms] = [&self.calls, &self.bytes, &self.ms].map(|sum| sum.swap(0, Ordering::Relaxed));
        Done { calls, bytes, ms }
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

    #[test]
    fn a_storage_is_left_alone_and_ordered_again() {
        let board = anonymous();
        assert_eq!(board.unordered(7), None);
        let place = board.leave_alone(7).unwrap();
        assert_eq!(board.unordered(7), Some(place));
        let done = Done { calls: 2, bytes: 100, ms: 5 };
        board.unordered[place].add(done);
        board.unordered[place].add(done);
        assert_eq!(board.unordered[place].take(), Done { calls: 4, bytes: 200, ms: 10 });
        assert_eq!(board.unordered[place].take(), Done::default());
        board.unordered[place].order();
        assert_eq!(board.unordered(7), None);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let board = anonymous();
        assert!((1..=UNORDERED as u64).all(|device| board.leave_alone(device).is_some()));
        assert_eq!(board.leave_alone(99), None);
    }
}
