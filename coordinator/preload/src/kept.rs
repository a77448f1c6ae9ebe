//! Turns that a descriptor keeps over several calls, so that a stream that passes by the page cache asks once for some MiB.
//!
//! The first call of a stream asks for itself alone. One that goes on where the last ended asks for more than it needs, and what
//! follows goes ahead in the same turn, until its bytes are done or the agent has taken it back because nothing came for a
//! while. How much is asked for grows with what was used of it. Threads that share a descriptor may mix this up; what they lose
//! is order.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use eyas_board::Board;

/// What a stream asks for first, and at most: a seek of a disk costs little beside so much.
const FIRST_BYTES: u64 = 1 << 20;
const MOST_BYTES: u64 = 8 << 20;
/// The turn that a descriptor keeps, and how its stream goes on.
pub(crate) struct Kept {
    /// 0, or 1 and more than that: seat in the upper half, number of the turn in the lower.
    turn: AtomicU64,
    /// What the turn is good for.
    start: AtomicU64,
    end: AtomicU64,
    /// 0, or 1 and where the last call ended.
    next: AtomicU64,
    /// What was asked for last.
    window: AtomicU64,
}

impl Kept {
    /// All zeros: the memory of all descriptors costs nothing until they are used.
    pub(crate) const fn none() -> Kept {
        Kept {
            turn: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            next: AtomicU64::new(0),
            window: AtomicU64::new(0),
        }
    }

    /// There is none, and no stream.
    pub(crate) fn forget(&self) {
        self.turn.store(0, Ordering::Relaxed);
        self.next.store(0, Ordering::Relaxed);
        self.window.store(0, Ordering::Relaxed);
    }

    fn turn(&self) -> Option<(usize, u32)> {
        let word = self.turn.load(Ordering::Relaxed).checked_sub(1)?;
        Some(((word >> 32) as usize, word as u32))
    }

    /// Begins a call in the turn that is kept, if it is good for these bytes; its seat and number.
    #[inline]
    pub(crate) fn enter(&self, board: &Board, offset: u64, length: u64) -> Option<(usize, u32)> {
        let (seat, turn) = self.turn()?;
        let end = offset.checked_add(length)?;
        let is_good = offset >= self.start.load(Ordering::Relaxed) && end <= self.end.load(Ordering::Relaxed);
        (is_good && board.enter(seat, turn)).then(|| {
            self.next.store(end.saturating_add(1), Ordering::Relaxed);
            (seat, turn)
        })
    }

    /// How much a call that is to have these bytes asks for; whether it keeps the turn.
    pub(crate) fn plan(&self, bytes: &Range<u64>) -> (u64, bool) {
        let goes_on = self.next.swap(bytes.end.saturating_add(1), Ordering::Relaxed) == bytes.start + 1;
        let window = match self.window.load(Ordering::Relaxed) {
            _ if !goes_on => 0,
            0 => FIRST_BYTES,
            before => {
                // Of a turn that was taken back early, so much was used.
                let used = bytes.start.saturating_sub(self.start.load(Ordering::Relaxed)).min(before);
                (used * 2).clamp(1, MOST_BYTES)
            }
        };
        self.window.store(window, Ordering::Relaxed);
        self.start.store(bytes.start, Ordering::Relaxed);
        let length = bytes.end - bytes.start;
        (window.max(length), window > length)
    }

    /// A turn that is good for these bytes has come.
    pub(crate) fn keep(&self, seat: usize, turn: u32, bytes: Range<u64>) {
        self.start.store(bytes.start, Ordering::Relaxed);
        self.end.store(bytes.end, Ordering::Relaxed);
        self.turn.store(((seat as u64) << 32 | u64::from(turn)) + 1, Ordering::Relaxed);
    }

    /// It is not needed any more.
    pub(crate) fn give_up(&self, board: &Board) {
        if let Some((seat, turn)) = self.turn() {
            self.turn.store(0, Ordering::Relaxed);
            board.give_up(seat, turn);
        }
    }
}
