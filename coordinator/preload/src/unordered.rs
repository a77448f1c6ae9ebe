//! Calls to storages whose requests are not ordered: some that read are timed, so that the agent sees if that changes.

use core::sync::atomic::{AtomicU32, Ordering};

use eyas_board::Board;

use crate::agent::now_us;
use crate::descriptors::Descriptor;
use crate::turn::Turn;

/// Of so many calls one is timed: looking at the clock takes as long as a short call.
const TIMED: u32 = 16;

static CALLS: AtomicU32 = AtomicU32::new(0);

/// A call that is timed.
#[derive(Clone, Copy)]
pub(crate) struct Timed {
    board: &'static Board,
    place: usize,
    length: u64,
    began_us: u64,
}

impl Timed {
    /// It begins at that time.
    pub(crate) fn begin(board: &'static Board, place: usize, length: u64, began_us: u64) -> Timed {
        Timed { board, place, length, began_us }
    }

    /// It has moved so many bytes; 0 if that is not known.
    pub(crate) fn end(self, bytes: u64) {
        let bytes = if bytes > 0 { bytes } else { self.length };
        self.board.unordered[self.place].took(bytes, now_us() - self.began_us);
    }
}

/// The turn of a call that is to move so many bytes, if nobody asks at the descriptor's storage.
#[inline]
pub(crate) fn go(board: &'static Board, known: &Descriptor, length: u64) -> Option<Turn> {
    let place = known.unordered(board.beat())?;
    // Threads that count at the same time may lose some.
    let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
    CALLS.store(calls, Ordering::Relaxed);
    if !calls.is_multiple_of(TIMED) {
        return Some(Turn::Unordered);
    }
    // An agent that has gone says nothing any more: another may be there.
    let now_us = now_us();
    board.is_alive(now_us / 1_000).then(|| Turn::Timed(Timed::begin(board, place, length, now_us)))
}
