//! A call whose duration tells how fast its storage is.

use eyas_board::Board;

use crate::agent::now_us;

/// A call whose duration is recorded.
#[derive(Clone, Copy)]
pub(crate) struct TimedCall {
    board: &'static Board,
    index: usize,
    length: u64,
    began_us: u64,
}

impl TimedCall {
    /// A call that begins at this time.
    pub(crate) fn begin(
        board: &'static Board,
        index: usize,
        length: u64,
        began_us: u64,
    ) -> TimedCall {
        TimedCall { board, index, length, began_us }
    }

    /// Records the end; `bytes` is 0 if unknown.
    pub(crate) fn end(self, bytes: u64) {
        let bytes = if bytes > 0 { bytes } else { self.length };
        self.board.bypassed[self.index].record(bytes, now_us() - self.began_us);
    }
}
