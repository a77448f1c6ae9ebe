//! Waiting for a word of shared memory to change (futex(2)).

use core::time::Duration;

#[cfg(not(loom))]
use rustix::thread::futex;

use crate::words::{AtomicU32, Ordering};

/// Waits until `word` differs from `seen`, the waiter is woken, a signal arrives, or the time is
/// over. The caller checks which.
#[cfg(not(loom))]
pub fn wait(word: &AtomicU32, seen: u32, at_most: Duration) {
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // The result does not matter: the caller checks the word.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&timeout));
}

/// In a model, every wait may end at once: another thread goes on.
#[cfg(loom)]
pub fn wait(_word: &AtomicU32, _seen: u32, _at_most: Duration) {
    loom::thread::yield_now();
}

/// Increments `word` and wakes all that wait for it.
pub fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    wake(word);
}

/// Wakes all that wait for `word`.
#[cfg(not(loom))]
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(loom)]
pub(crate) fn wake(_word: &AtomicU32) {}
