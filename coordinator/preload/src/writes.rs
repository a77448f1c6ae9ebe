//! Waiting for one's turn to write.
//!
//! What gathers in the page cache is written at once: what waits is the call that brings it to the storage. Where each
//! write is a request to the storage (past the page cache, or on file systems that have none for writes), each waits, in
//! order of offsets among all who write there; a stream of them in turns that it keeps.

use core::ffi::c_int;

use eyas_board::Kind;

use crate::agent::known_board;
use crate::descriptors::{self, Descriptor, Of, Writes};
use crate::turn::{Turn, at_once, wait, wait_to_bring};

/// Waits for the turn to write so many bytes at an offset. To be followed by [`has_written_at`].
#[inline]
pub(crate) fn to_write_at(descriptor: c_int, offset: i64, length: usize) -> Turn {
    match (descriptors::get(descriptor), u64::try_from(offset)) {
        (Some(known), Ok(offset)) => write(descriptor, known, Some(offset), length),
        _ => Turn::Unordered,
    }
}

/// Waits for the turn to write so many bytes where the descriptor stands. To be followed by [`has_written`].
#[inline]
pub(crate) fn to_write(descriptor: c_int, length: usize) -> Turn {
    match descriptors::get(descriptor) {
        Some(known) => write(descriptor, known, None, length),
        None => Turn::Unordered,
    }
}

#[inline]
fn write(number: c_int, known: &Descriptor, at: Option<u64>, length: usize) -> Turn {
    if known.of() == Of::Elsewhere {
        return Turn::Unordered;
    }
    if let Some(turn) = at_once(known, length as u64) {
        return turn.untimed();
    }
    let offset = at.or_else(|| known.position());
    match (known.of(), known.writes(), offset) {
        (Of::Unknown, ..) | (_, _, None) => wait(Kind::Write, number, known, at, length as u64),
        (_, Writes::PassThrough, Some(offset)) => {
            let board = known_board();
            let entered = board.and_then(|board| Some((board, known.kept().enter(board, offset, length as u64)?)));
            match entered {
                Some((board, (seat, turn))) => Turn::Kept(board, seat, turn),
                None => wait(Kind::Write, number, known, at, length as u64),
            }
        }
        _ => Turn::Unordered,
    }
}

/// A write at an offset has answered this.
#[inline]
pub(crate) fn has_written_at(descriptor: c_int, offset: i64, bytes: isize) {
    if let (Some(known), Ok(offset), Ok(bytes @ 1..)) =
        (ordered(descriptor), u64::try_from(offset), u64::try_from(bytes))
        && known.writes() != Writes::PassThrough
    {
        known.gather(offset..offset + bytes);
    }
}

/// A write where the descriptor stands has answered this.
#[inline]
pub(crate) fn has_written(descriptor: c_int, bytes: isize) {
    if let Some(known) = ordered(descriptor)
        && let Some(position) = known.position()
    {
        has_written_at(descriptor, position as i64, bytes);
        known.advance(bytes);
    }
}

/// Waits for the turn to bring to the storage what the descriptor has gathered.
#[inline]
pub(crate) fn to_bring(descriptor: c_int) -> Turn {
    let gathered = ordered(descriptor).and_then(|known| Some((known, known.take_gathered()?)));
    gathered.map_or(Turn::Unordered, |(known, bytes)| wait_to_bring(descriptor, known, bytes))
}

/// What is known of a descriptor of shared storage.
#[inline]
fn ordered(descriptor: c_int) -> Option<&'static Descriptor> {
    descriptors::get(descriptor).filter(|known| matches!(known.of(), Of::Shared | Of::Direct))
}
