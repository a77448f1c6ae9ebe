//! Turns that a descriptor keeps over several calls, so that a stream that bypasses the page cache
//! asks once for some MiB.
//!
//! The first call of a stream asks for its own bytes. A call that continues the previous one asks
//! for more than it needs; the calls that follow proceed in the same turn, until its bytes are done
//! or the agent has taken it back because no call came for a while. The amount grows with what was
//! used of the previous turn. Threads that share a descriptor may confuse this; only order is lost.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use eyas_board::Board;

use crate::turn::OpenTurn;

/// First amount that a stream asks for. A seek costs little beside that.
const FIRST_BYTES: u64 = 1 << 20;
/// Largest amount that a stream asks for.
const MAX_BYTES: u64 = 8 << 20;
/// The turn that a descriptor keeps, and how its stream continues.
pub(crate) struct KeptTurn {
    /// 0, or 1 plus the seat in the upper half and the number of the turn in the lower.
    turn: AtomicU64,
    /// Range of bytes that the turn covers.
    start: AtomicU64,
    end: AtomicU64,
    /// 0, or 1 plus the end of the last call.
    next: AtomicU64,
    /// Amount that was asked for last.
    window: AtomicU64,
}

impl KeptTurn {
    /// All zeros, so that unused descriptors need no memory.
    pub(crate) const fn none() -> KeptTurn {
        KeptTurn {
            turn: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            next: AtomicU64::new(0),
            window: AtomicU64::new(0),
        }
    }

    /// Forgets the turn and the stream.
    pub(crate) fn forget(&self) {
        self.turn.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.window.store(0, Ordering::Relaxed);
    }

    fn turn(&self) -> Option<(usize, u32)> {
        let word = self.turn.load(Ordering::Relaxed).checked_sub(1)?;
        Some(((word >> 32) as usize, word as u32))
    }

    /// Begins a call in the kept turn, if the turn covers these bytes. Returns seat and number of
    /// the turn.
    #[inline]
    pub(crate) fn enter(
        &self,
        board: &'static Board,
        offset: u64,
        length: u64,
        open: &OpenTurn,
    ) -> Option<(usize, u32)> {
        let (seat, turn) = self.turn()?;
        let end = offset.checked_add(length)?;
        if offset < self.start.load(Ordering::Relaxed) || end > self.end.load(Ordering::Relaxed) {
            return None;
        }
        open.set_kept(board, seat, turn);
        if !board.enter(seat, turn) {
            open.clear();
            return None;
        }
        self.next.store(end.saturating_add(1), Ordering::Relaxed);
        Some((seat, turn))
    }

    /// Number of bytes that a call for `bytes` asks for, and whether it keeps the turn.
    pub(crate) fn plan(&self, bytes: &Range<u64>) -> (u64, bool) {
        let goes_on =
            self.next.swap(bytes.end.saturating_add(1), Ordering::Relaxed) == bytes.start + 1;
        let window = match self.window.load(Ordering::Relaxed) {
            _ if !goes_on => 0,
            0 => FIRST_BYTES,
            before => {
                // Bytes that were used of a turn which was taken back early.
                let used =
                    bytes.start.saturating_sub(self.start.load(Ordering::Relaxed)).min(before);
                (used * 2).clamp(1, MAX_BYTES)
            }
        };
        self.window.store(window, Ordering::Relaxed);
        self.start.store(bytes.start, Ordering::Relaxed);
        let length = bytes.end - bytes.start;
        (window.max(length), window > length)
    }

    /// A turn for these bytes was granted.
    pub(crate) fn keep(&self, seat: usize, turn: u32, bytes: Range<u64>) {
        self.start.store(bytes.start, Ordering::Relaxed);
        self.end.store(bytes.end, Ordering::Relaxed);
        self.turn.store(((seat as u64) << 32 | u64::from(turn)) + 1, Ordering::Relaxed);
    }

    /// Gives up the turn.
    pub(crate) fn give_up(&self, board: &Board) {
        if let Some((seat, turn)) = self.turn() {
            self.turn.store(0, Ordering::Relaxed);
            board.give_up(seat, turn);
        }
    }
}
