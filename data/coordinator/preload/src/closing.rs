//! Turns for closing a descriptor.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use eyas_board::{CallKind, SeatRequest};

use crate::agent::{board, is_forked, known_board, must_order, now_ms, process};
use crate::descriptors::{self, Descriptor, StorageKind, WritePath};
use crate::turn::{CallTurn, WantedTurn};
use crate::waiting::STEP;

/// The turn to close a descriptor, for a close that writes. The agent, which may have the file open
/// too, closes it first: some file systems cannot remove a file that is open anywhere.
#[inline]
pub(crate) fn turn_to_close(descriptor: c_int) -> CallTurn {
    let Some(known) =
        descriptors::get(descriptor).filter(|known| known.storage() != StorageKind::Unknown)
    else {
        return CallTurn::Unordered;
    };
    if known.storage() == StorageKind::NotShared {
        descriptors::opened(descriptor);
        return CallTurn::Unordered;
    }
    if is_forked() {
        // After `fork` the state may be the parent's; after `vfork` it is shared with it. This
        // process has learned nothing itself.
        known.revoke_permits();
        return CallTurn::Unordered;
    }
    match finish(descriptor, known) {
        CallTurn::Wanted(wanted) => CallTurn::Wanted(wanted.and_close()),
        turn => {
            descriptors::opened(descriptor);
            turn
        }
    }
}

#[cold]
fn finish(number: c_int, known: &Descriptor) -> CallTurn {
    if let Some(board) = known_board() {
        known.kept_turn().give_up(board);
    }
    if let Some(index) = known.file_index() {
        release_file(known, index);
    }
    match known.take_dirty() {
        Some(bytes) if known.writes() == WritePath::BufferedUntilClose => {
            WantedTurn::to_sync(number, bytes)
        }
        _ => CallTurn::Unordered,
    }
}

#[cold]
fn release_file(known: &Descriptor, index: usize) {
    let Some(board) = board() else { return };
    let file = &board.files[index];
    let (device, inode) = known.file();
    let is_of_file = file.is_of(device, inode);
    let one_less = |users: u32| users.checked_sub(1);
    if !is_of_file
        || file.users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less) != Ok(1)
    {
        return;
    }
    let ask = SeatRequest {
        process: process(),
        kind: CallKind::Close,
        device,
        inode,
        offset: 0,
        length: 0,
        file_bytes: 0,
        class: 0,
        is_kept: false,
        must_order: must_order(),
        takes_bytes: false,
    };
    if let Some((seat, turn)) = board.ask(ask) {
        board.await_answer(seat, turn, STEP, || board.is_open(now_ms()));
    }
}
