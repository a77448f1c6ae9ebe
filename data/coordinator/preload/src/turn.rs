//! A turn: permission for one call to read or write shared storage.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use eyas_board::{Board, CallKind};

use crate::agent::now_us;
use crate::parts::Room;
use crate::timed_call::TimedCall;

/// Whether a call proceeds at once or waits for its turn.
#[must_use = "the call waits when this is used"]
pub(crate) enum CallTurn {
    /// The call proceeds, and the agent is not told about its end.
    Unordered,
    /// The same, at a bypassed storage; the duration of the call is recorded.
    Timed(TimedCall),
    /// The call waits for its turn.
    Wanted(WantedTurn),
}

impl CallTurn {
    /// The same turn for a call whose duration does not say how fast the storage reads.
    pub(crate) fn untimed(self) -> CallTurn {
        match self {
            CallTurn::Unordered | CallTurn::Timed(_) => CallTurn::Unordered,
            CallTurn::Wanted(wanted) => CallTurn::Wanted(wanted.untimed()),
        }
    }

    /// The same turn for a read into this memory.
    #[inline]
    pub(crate) fn into_memory(mut self, memory: *mut c_void, length: usize) -> CallTurn {
        if let CallTurn::Wanted(WantedTurn {
            work: WantedWork::Call { kind: CallKind::Read, offset, room, .. },
            ..
        }) = &mut self
        {
            *room = Some(Room { memory, length, is_at_position: offset.is_none() });
        }
        self
    }
}

/// A turn that a call waits for.
pub(crate) struct WantedTurn {
    pub number: c_int,
    pub work: WantedWork,
    /// Whether the duration of the call says how fast the storage is.
    pub is_timed: bool,
}

/// What is done in a turn.
pub(crate) enum WantedWork {
    /// Read, or write past the page cache, at an offset or at the descriptor's position. A read may
    /// take its bytes from the board if there is a room for them.
    Call { kind: CallKind, offset: Option<u64>, length: u64, room: Option<Room> },
    /// Flush these bytes from the page cache to the storage, and close the descriptor if `closes`
    /// is set.
    Sync { bytes: Range<u64>, closes: bool },
}

impl WantedTurn {
    /// The turn to read at an offset or at the descriptor's position, or to write there past the
    /// page cache.
    #[inline]
    pub(crate) fn to_call(
        kind: CallKind,
        number: c_int,
        offset: Option<u64>,
        length: u64,
    ) -> CallTurn {
        let work = WantedWork::Call { kind, offset, length, room: None };
        CallTurn::Wanted(WantedTurn { number, work, is_timed: true })
    }

    /// The turn to flush these bytes from the page cache to the storage.
    pub(crate) fn to_sync(number: c_int, bytes: Range<u64>) -> CallTurn {
        CallTurn::Wanted(WantedTurn {
            number,
            work: WantedWork::Sync { bytes, closes: false },
            is_timed: false,
        })
    }

    /// The same turn for a call that closes the descriptor.
    pub(crate) fn and_close(mut self) -> WantedTurn {
        if let WantedWork::Sync { closes, .. } = &mut self.work {
            *closes = true;
        }
        self
    }

    /// The same turn for a call whose duration does not say how fast the storage reads.
    pub(crate) fn untimed(self) -> WantedTurn {
        WantedTurn { is_timed: false, ..self }
    }
}

/// The permission. The agent may be waiting for the end of the call.
#[derive(Clone, Copy)]
#[must_use = "others wait for its end"]
pub(crate) enum HeldTurn {
    /// The call proceeds, and the agent is not told about its end.
    Unordered,
    /// The same, at a bypassed storage; the duration of the call is recorded.
    Timed(TimedCall),
    /// The turn is for this call alone. `began_us` is set if the duration says how fast the storage
    /// is.
    Once { board: &'static Board, seat: usize, turn: u32, began_us: Option<u64> },
    /// The descriptor keeps the turn for the calls that follow.
    Kept { board: &'static Board, seat: usize, turn: u32 },
    /// The call has its result, this many bytes, and is not made.
    Copied(usize),
}

impl HeldTurn {
    /// The result of a call that is not made.
    pub(crate) fn copied(&self) -> Option<isize> {
        match self {
            HeldTurn::Copied(bytes) => Some(*bytes as isize),
            _ => None,
        }
    }

    /// Whether other calls wait for the end of this one.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self, HeldTurn::Once { .. } | HeldTurn::Kept { .. })
    }

    /// Ends the turn with the result of the call: the number of bytes, or a failure.
    #[inline]
    pub(crate) fn end(self, bytes: isize) {
        match self {
            HeldTurn::Unordered | HeldTurn::Copied(_) => {}
            HeldTurn::Timed(call) => call.end(u64::try_from(bytes).unwrap_or(0)),
            HeldTurn::Once { board, seat, turn, began_us } => {
                board.finish(seat, turn, began_us.map_or(0, |began_us| now_us() - began_us));
            }
            HeldTurn::Kept { board, seat, turn } => {
                board.exit(seat, turn, u64::try_from(bytes).unwrap_or(0))
            }
        }
    }

    /// The same turn for a call whose duration does not say how fast the storage reads.
    pub(crate) fn untimed(self) -> HeldTurn {
        match self {
            HeldTurn::Timed(_) => HeldTurn::Unordered,
            HeldTurn::Once { board, seat, turn, .. } => {
                HeldTurn::Once { board, seat, turn, began_us: None }
            }
            HeldTurn::Unordered | HeldTurn::Kept { .. } | HeldTurn::Copied(_) => self,
        }
    }
}

/// The turn that a call asks for or has, for the case that the call does not return. It is set
/// before the agent can see the request, so that a signal handler may jump out of the call at any
/// instruction. To end a turn that is over already does nothing.
pub(crate) struct OpenTurn {
    board: Cell<Option<&'static Board>>,
    /// 0, or one of the marks with the seat and the number of the turn.
    word: AtomicU64,
}

/// Marks of a turn that is for one call alone, and of one that the descriptor keeps.
const ONCE: u64 = 1 << 63;
const KEPT: u64 = 1 << 62;

impl OpenTurn {
    pub(crate) fn none() -> OpenTurn {
        OpenTurn { board: Cell::new(None), word: AtomicU64::new(0) }
    }

    /// The call is about to ask for this turn.
    pub(crate) fn set_once(&self, board: &'static Board, seat: usize, turn: u32) {
        self.set(board, ONCE, seat, turn);
    }

    /// The call is about to begin in this turn, which the descriptor keeps.
    pub(crate) fn set_kept(&self, board: &'static Board, seat: usize, turn: u32) {
        self.set(board, KEPT, seat, turn);
    }

    fn set(&self, board: &'static Board, mark: u64, seat: usize, turn: u32) {
        self.clear();
        self.board.set(Some(board));
        self.word.store(mark | (seat as u64) << 32 | u64::from(turn), Ordering::Release);
    }

    /// The call has no turn.
    pub(crate) fn clear(&self) {
        self.word.store(0, Ordering::Release);
    }

    /// Ends the turn of a call that does not return.
    pub(crate) fn end(&self) {
        let word = self.word.load(Ordering::Acquire);
        let (Some(board), Some(_)) = (self.board.get(), word.checked_sub(1)) else { return };
        let (seat, turn) = ((word & !(ONCE | KEPT)) >> 32, word as u32);
        match word & ONCE {
            0 => board.exit(seat as usize, turn, 0),
            _ => board.finish(seat as usize, turn, 0),
        }
    }
}
