//! A turn: permission for one call to read or write shared storage.

use eyas_board::Board;

use crate::agent::now_us;
use crate::bypass::{Bypassed, TimedCall};

/// Permission for one call. The agent may be waiting for the end of the call.
#[derive(Clone, Copy)]
#[must_use = "others wait for its end"]
pub(crate) enum CallTurn {
    /// The call proceeds, and the agent is not told about its end.
    Unordered,
    /// The same, at a bypassed storage; the duration of the call is recorded.
    Timed(TimedCall),
    /// The turn is for this call alone. `began_us` is set if the duration says how fast the storage is.
    Once { board: &'static Board, seat: usize, turn: u32, began_us: Option<u64> },
    /// The descriptor keeps the turn for the calls that follow.
    Kept { board: &'static Board, seat: usize, turn: u32 },
}

impl CallTurn {
    /// Ends the turn with the result of the call: the number of bytes, or a failure.
    #[inline]
    pub(crate) fn end(self, bytes: isize) {
        match self {
            CallTurn::Unordered => {}
            CallTurn::Timed(call) => call.end(u64::try_from(bytes).unwrap_or(0)),
            CallTurn::Once { board, seat, turn, began_us } => {
                board.finish(seat, turn, began_us.map_or(0, |began_us| now_us() - began_us));
            }
            CallTurn::Kept { board, seat, turn } => board.exit(seat, turn, u64::try_from(bytes).unwrap_or(0)),
        }
    }

    /// The same turn for a call whose duration does not say how fast the storage reads.
    pub(crate) fn untimed(self) -> CallTurn {
        match self {
            CallTurn::Timed(_) => CallTurn::Unordered,
            CallTurn::Once { board, seat, turn, .. } => CallTurn::Once { board, seat, turn, began_us: None },
            CallTurn::Unordered | CallTurn::Kept { .. } => self,
        }
    }
}

impl From<Bypassed> for CallTurn {
    #[inline]
    fn from(call: Bypassed) -> CallTurn {
        match call {
            Bypassed::Untimed => CallTurn::Unordered,
            Bypassed::Timed(call) => CallTurn::Timed(call),
        }
    }
}
