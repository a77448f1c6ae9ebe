//! Calls to bypassed storages: they proceed without asking, and some reads are timed, so that the
//! agent notices a storage that becomes slow.

use core::sync::atomic::{AtomicU32, Ordering};

use eyas_board::Board;

use crate::agent::now_us;
use crate::descriptors::Descriptor;
use crate::timed_call::TimedCall;
use crate::turn::CallTurn;

/// One call in this many is timed, because reading the clock takes as long as a short call.
const TIMED_CALL_RATIO: u32 = 16;

static CALLS: AtomicU32 = AtomicU32::new(0);

/// Lets a call of `length` bytes proceed if the descriptor's storage is known to be bypassed.
#[inline]
pub(crate) fn proceed(board: &'static Board, known: &Descriptor, length: u64) -> Option<CallTurn> {
    let index = known.bypassed(board.heartbeat_ms())?;
    // Threads that count at the same time may lose some.
    let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
    CALLS.store(calls, Ordering::Relaxed);
    if !calls.is_multiple_of(TIMED_CALL_RATIO) {
        return Some(CallTurn::Unordered);
    }
    // The agent may have ended, and another may have started.
    let now_us = now_us();
    board
        .is_alive(now_us / 1_000)
        .then(|| CallTurn::Timed(TimedCall::begin(board, index, length, now_us)))
}
