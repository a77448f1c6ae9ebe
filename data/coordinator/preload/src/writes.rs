//! Turns for writes, and for calls that flush written bytes.
//!
//! Writes to the page cache proceed at once; the call that flushes them to the storage waits. Where
//! each write is a request to the storage (past the page cache, or on file systems that do not
//! cache writes), each waits, in the order of offsets among all writers; a stream of them uses kept
//! turns.

use core::ffi::c_int;

use eyas_board::CallKind;

use crate::descriptors::{self, Descriptor, StorageKind, WritePath};
use crate::turn::{CallTurn, WantedTurn};
use crate::waiting::at_once;

/// The turn to write at an offset. Call [`after_write_at`] afterwards.
#[inline]
pub(crate) fn turn_to_write_at(descriptor: c_int, offset: i64, length: usize) -> CallTurn {
    match (descriptors::get(descriptor), u64::try_from(offset)) {
        (Some(known), Ok(offset)) => write(descriptor, known, Some(offset), length),
        _ => CallTurn::Unordered,
    }
}

/// The turn to write at the descriptor's position. Call [`after_write`] afterwards.
#[inline]
pub(crate) fn turn_to_write(descriptor: c_int, length: usize) -> CallTurn {
    match descriptors::get(descriptor) {
        Some(known) => write(descriptor, known, None, length),
        None => CallTurn::Unordered,
    }
}

#[inline]
fn write(number: c_int, known: &Descriptor, at: Option<u64>, length: usize) -> CallTurn {
    if known.storage() == StorageKind::NotShared {
        return CallTurn::Unordered;
    }
    if let Some(turn) = at_once(known, length as u64) {
        return turn.untimed();
    }
    let offset = at.or_else(|| known.position());
    match (known.storage(), known.writes(), offset) {
        (StorageKind::Unknown, ..) | (_, _, None) | (_, WritePath::PassThrough, _) => {
            WantedTurn::to_call(CallKind::Write, number, at, length as u64)
        }
        _ => CallTurn::Unordered,
    }
}

/// A write at an offset has returned `bytes`.
#[inline]
pub(crate) fn after_write_at(descriptor: c_int, offset: i64, bytes: isize) {
    if let (Some(known), Ok(offset), Ok(bytes @ 1..)) =
        (ordered(descriptor), u64::try_from(offset), u64::try_from(bytes))
        && known.writes() != WritePath::PassThrough
    {
        known.add_dirty(offset..offset + bytes);
    }
}

/// A write at the descriptor's position has returned `bytes`.
#[inline]
pub(crate) fn after_write(descriptor: c_int, bytes: isize) {
    if let Some(known) = ordered(descriptor)
        && let Some(position) = known.position()
    {
        after_write_at(descriptor, position as i64, bytes);
        known.advance(bytes);
    }
}

/// The turn to flush the descriptor's written bytes to the storage.
#[inline]
pub(crate) fn turn_to_sync(descriptor: c_int) -> CallTurn {
    let dirty = ordered(descriptor).and_then(Descriptor::take_dirty);
    dirty.map_or(CallTurn::Unordered, |bytes| WantedTurn::to_sync(descriptor, bytes))
}

/// State of a descriptor of shared storage.
#[inline]
fn ordered(descriptor: c_int) -> Option<&'static Descriptor> {
    descriptors::get(descriptor)
        .filter(|known| matches!(known.storage(), StorageKind::Shared | StorageKind::Direct))
}
