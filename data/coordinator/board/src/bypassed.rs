//! Bypassed storages: ordering gains nothing there, so programs proceed without asking and report
//! the durations of some calls.

use crate::Board;
#[cfg(loom)]
pub use crate::sizes::MAX_BYPASSED;
use crate::words::{AtomicU64, Ordering};

/// Storages of a node that can be bypassed at a time.
#[cfg(not(loom))]
pub const MAX_BYPASSED: usize = 32;

/// Upper limit for a call that finds its bytes in memory: a constant, and a bandwidth. Such calls
/// tell nothing about the storage.
const MEMORY_US: u64 = 20;
const MEMORY_BYTES_PER_US: u64 = 2_000;
/// A call that takes longer than this is slow: it has waited for others or for a seek,
const SLOW_US: u64 = 4_000;
/// unless its bytes explain the duration at this bandwidth.
const FAIR_BYTES_PER_US: u64 = 25;

/// A bypassed storage, and durations of calls to it.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct BypassedStorage {
    /// Device of the storage; 0 while the entry is free.
    device: AtomicU64,
    calls: AtomicU64,
    total_us: AtomicU64,
    slow_calls: AtomicU64,
    slow_us: AtomicU64,
}

/// Calls to a bypassed storage and their durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// Number of calls.
    pub calls: u64,
    /// Duration of all calls together.
    pub total_us: u64,
    /// Number of slow calls among them.
    pub slow_calls: u64,
    /// Duration of the slow calls together.
    pub slow_us: u64,
}

impl Board {
    /// Index of a storage, if it is bypassed.
    pub fn bypass_index(&self, device: u64) -> Option<usize> {
        self.index_of(device).filter(|_| device != 0)
    }

    fn index_of(&self, device: u64) -> Option<usize> {
        self.bypassed.iter().position(|storage| storage.device.load(Ordering::Relaxed) == device)
    }

    /// Bypasses a storage. Returns its index, or `None` if all entries are taken. For the agent.
    pub fn bypass(&self, device: u64) -> Option<usize> {
        let index = self.index_of(0)?;
        self.bypassed[index].take_times();
        self.bypassed[index].device.store(device, Ordering::Relaxed);
        Some(index)
    }
}

impl BypassedStorage {
    /// Records a call that has moved `bytes` and taken `us` microseconds.
    pub fn record(&self, bytes: u64, us: u64) {
        if us < MEMORY_US + bytes / MEMORY_BYTES_PER_US {
            return;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.total_us.fetch_add(us, Ordering::Relaxed);
        if us > SLOW_US + bytes / FAIR_BYTES_PER_US {
            self.slow_calls.fetch_add(1, Ordering::Relaxed);
            self.slow_us.fetch_add(us, Ordering::Relaxed);
        }
    }

    /// Calls since the last time that had to wait for the storage. For the agent.
    pub fn take_times(&self) -> CallTimes {
        let take = |sum: &AtomicU64| sum.swap(0, Ordering::Relaxed);
        CallTimes {
            calls: take(&self.calls),
            total_us: take(&self.total_us),
            slow_calls: take(&self.slow_calls),
            slow_us: take(&self.slow_us),
        }
    }

    /// Orders the storage's requests again. For the agent.
    pub fn release(&self) {
        self.device.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::anonymous;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_storage_is_bypassed_and_ordered_again() {
        let board = anonymous();
        assert_eq!(board.bypass_index(7), None);
        let index = board.bypass(7).unwrap();
        assert_eq!(board.bypass_index(7), Some(index));
        board.bypassed[index].release();
        assert_eq!(board.bypass_index(7), None);
        assert_eq!(board.bypass_index(0), None, "0 is no device");
    }

    #[test]
    fn calls_tell_of_the_storage_that_they_wait_for() {
        let board = anonymous();
        let storage = &board.bypassed[board.bypass(7).unwrap()];
        let told = |calls: [(u64, u64); 2]| {
            calls.into_iter().for_each(|(bytes, us)| storage.record(bytes, us));
            storage.take_times()
        };
        let [memory, flash, busy_disk] =
            [[(4096, 2), (MIB, 300)], [(4096, 90), (MIB, 3_000)], [(4096, 8_000), (MIB, 370_000)]];
        assert_eq!(told(memory), CallTimes::default());
        assert_eq!(told(flash), CallTimes { calls: 2, total_us: 3_090, slow_calls: 0, slow_us: 0 });
        let slow = CallTimes { calls: 2, total_us: 378_000, slow_calls: 2, slow_us: 378_000 };
        assert_eq!(told(busy_disk), slow);
        assert_eq!(storage.take_times(), CallTimes::default());
    }

    #[test]
    fn the_number_of_bypassed_storages_is_bounded() {
        let board = anonymous();
        assert!((1..=MAX_BYPASSED as u64).all(|device| board.bypass(device).is_some()));
        assert_eq!(board.bypass(99), None);
    }
}
