//! What models of the board share: an empty board, a request, and a turn that is given.

use std::time::Duration;

use eyas_board::{Board, CallKind, SeatAnswer, SeatRequest};

/// Time of a wait, which no model needs.
pub const STEP: Duration = Duration::ZERO;
/// An empty board, which threads share as long as they like.
pub fn board() -> &'static Board {
    Box::leak(Box::default())
}

/// A request.
pub fn ask() -> SeatRequest {
    SeatRequest {
        process: 3,
        kind: CallKind::Read,
        device: 1,
        inode: 2,
        offset: 3,
        length: 4,
        file_bytes: 7,
        class: 6,
        is_kept: false,
        must_order: true,
        takes_bytes: true,
    }
}

/// A turn that the agent has given: its seat and its number.
pub fn given(board: &Board, request: SeatRequest) -> (usize, u32) {
    let (index, turn) = board.ask(request).expect("a free seat");
    assert!(board.seats[index].reply(SeatAnswer::Go));
    (index, turn)
}
