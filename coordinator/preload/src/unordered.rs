//! Calls to storages whose requests are not ordered: they are watched, so that the agent sees if that changes.
//!
//! They are counted here, and timed by a clock that costs next to nothing, since it ticks some hundred times in a second: a short call
//! seldom meets a tick, and then seems so much longer; the sum is right. What comes together is told to the agent when a call has taken
//! a tick, or a descriptor is looked at anew.

use core::sync::atomic::{AtomicU64, Ordering};

use eyas_board::{Board, Done, UNORDERED};
use rustix::time::{ClockId, clock_gettime};

/// What this process has done at each storage's place on the board, and not told.
static UNTOLD: [Untold; UNORDERED] =
    [const { Untold { calls: AtomicU64::new(0), bytes: AtomicU64::new(0) } }; UNORDERED];

struct Untold {
    calls: AtomicU64,
    bytes: AtomicU64,
}

/// A call that is watched.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    board: &'static Board,
    place: usize,
    length: u64,
    began_ms: u64,
}

impl Watched {
    /// It begins, and is to move so many bytes.
    #[inline]
    pub(crate) fn begin(board: &'static Board, place: usize, length: u64) -> Watched {
        Watched { board, place: place % UNORDERED, length, began_ms: coarse_ms() }
    }

    /// It has moved so many bytes, if that is known.
    #[inline]
    pub(crate) fn end(self, bytes: u64) {
        let bytes = if bytes > 0 { bytes } else { self.length };
        let ms = coarse_ms().saturating_sub(self.began_ms);
        let Untold { calls, bytes: all } = &UNTOLD[self.place];
        // Threads that do this at the same time may lose some.
        calls.store(calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        all.store(all.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
        if ms > 0 {
            crate::memory::missed();
            tell(self.board, self.place, ms);
        }
    }
}

/// Tells the agent what has been done at a storage, and how long has been waited for it besides what was told.
#[cold]
pub(crate) fn tell(board: &Board, place: usize, ms: u64) {
    let Untold { calls, bytes } = &UNTOLD[place];
    let [calls, bytes] = [calls, bytes].map(|sum| sum.swap(0, Ordering::Relaxed));
    board.unordered[place].add(Done { calls, bytes, ms });
}

fn coarse_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}
