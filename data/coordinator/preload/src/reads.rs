//! Turns for reads, and for calls that announce or map what will be read.

use core::ffi::c_int;

use eyas_board::CallKind;

use crate::descriptors::{self, Descriptor, StorageKind};
use crate::page_cache;
use crate::turn::{CallTurn, WantedTurn};
use crate::waiting::{at_once, heartbeat};

/// Larger mappings are not read ahead.
const MAX_MAPPED_BYTES: u64 = 16 << 20;

/// The turn to read at an offset.
#[inline]
pub(crate) fn turn_to_read_at(descriptor: c_int, offset: i64, length: usize) -> CallTurn {
    match (descriptors::get(descriptor), u64::try_from(offset)) {
        (Some(known), Ok(offset)) => read(descriptor, known, Some(offset), length as u64),
        _ => CallTurn::Unordered,
    }
}

/// The turn to read at the descriptor's position. Call [`after_read`] afterwards.
#[inline]
pub(crate) fn turn_to_read(descriptor: c_int, length: usize) -> CallTurn {
    match descriptors::get(descriptor) {
        Some(known) => read(descriptor, known, None, length as u64),
        None => CallTurn::Unordered,
    }
}

#[inline]
fn read(number: c_int, known: &Descriptor, at: Option<u64>, length: u64) -> CallTurn {
    if known.storage() == StorageKind::NotShared {
        return CallTurn::Unordered;
    }
    if let Some(turn) = at_once(known, length) {
        return turn;
    }
    let offset = at.or_else(|| known.position());
    match offset {
        Some(offset) if known.may_read(heartbeat(), offset, length) => CallTurn::Unordered,
        _ if page_cache::skips_lookup(known, offset, length) => CallTurn::Unordered,
        _ => WantedTurn::to_call(CallKind::Read, number, at, length),
    }
}

/// A read at the descriptor's position has returned `bytes`.
#[inline]
pub(crate) fn after_read(descriptor: c_int, bytes: isize) {
    if let Some(known) = descriptors::get(descriptor) {
        known.advance(bytes);
    }
}

/// The descriptor's position has changed.
#[inline]
pub(crate) fn after_seek(descriptor: c_int, position: i64) {
    if let (Some(known), Ok(position)) = (descriptors::get(descriptor), u64::try_from(position)) {
        known.set_position(position);
    }
}

/// The turn to map bytes: the call waits until they are in memory, unless they are too many.
pub(crate) fn turn_to_map(descriptor: c_int, offset: i64, length: usize) -> CallTurn {
    match length as u64 {
        0..=MAX_MAPPED_BYTES => turn_to_read_at(descriptor, offset, length).untimed(),
        _ => CallTurn::Unordered,
    }
}

/// Announces that these bytes will be read soon, without waiting.
pub(crate) fn announce_read(descriptor: c_int, offset: i64, length: usize) {
    if let (Some(known), Ok(offset)) = (descriptors::get(descriptor), u64::try_from(offset))
        && known.storage() != StorageKind::NotShared
        && at_once(known, 0).is_none()
        && !known.may_read(heartbeat(), offset, length as u64)
    {
        let turn = WantedTurn::to_call(CallKind::Hint, descriptor, Some(offset), length as u64);
        turn.untimed().call_for(0, || ());
    }
}
