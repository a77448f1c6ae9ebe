//! Waiting for a word of shared memory to change, and waking who does.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use rustix::thread::futex;

/// Waits until `word` is another than `seen`, somebody rings, a signal comes, or the time is over. Who wants to know which,
/// looks.
pub fn wait(word: &AtomicU32, seen: u32, at_most: Duration) {
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // It failed, was woken or not: the caller looks.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

/// Counts `word` up, and wakes all who wait for it.
pub fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    wake(word);
}

/// Wakes all who wait for `word`.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
