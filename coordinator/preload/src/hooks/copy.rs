//! Copying from one descriptor to another within the kernel. Such a call may copy less than was asked for, and here it does:
//! at most what one turn is good for.

use core::ptr;

use libc::{c_int, c_uint, off_t, off64_t, size_t, ssize_t};

use super::write::to_copy_into;
use crate::next::hook;
use crate::turn::{Turn, has_read, is_shared, to_read, to_read_at};
use crate::writes::has_written;

/// Most that is copied in one call.
const MOST_BYTES: usize = 4 << 20;

/// What of so much is copied in one call.
fn part(from: c_int, to: c_int, count: size_t) -> size_t {
    if is_shared(from) || is_shared(to) { count.min(MOST_BYTES) } else { count }
}

/// Waits for the turn to read from where the call does. How long that takes depends on where it writes, too.
unsafe fn to_copy(from: c_int, offset: *const off64_t, count: size_t) -> Turn {
    if !is_shared(from) {
        return Turn::Unordered;
    }
    // SAFETY: null, or where the program has written an offset.
    match unsafe { offset.as_ref() } {
        Some(offset) => to_read_at(from, *offset, count),
        None => to_read(from, count),
    }
    .untimed()
}

macro_rules! sends {
    ($($name:ident($offset:ty);)*) => { $(
        hook! { $name as next(to: c_int, from: c_int, offset: *mut $offset, count: size_t) -> ssize_t {
            let count = part(from, to, count);
            let turn = to_copy(from, offset, count);
            let turn_to_write = to_copy_into(to, ptr::null(), count, turn);
            let bytes = turn.call(|| turn_to_write.call(|| next(to, from, offset, count)));
            if offset.is_null() {
                has_read(from, bytes);
            }
            has_written(to, bytes);
            bytes
        } }
    )* };
}

sends! {
    sendfile(off_t);
    sendfile64(off64_t);
}

macro_rules! copies {
    ($($name:ident;)*) => { $(
        hook! {
            $name as next(
                from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint
            ) -> ssize_t {
                let count = part(from, to, count);
                let turn = to_copy(from, from_offset, count);
                let turn_to_write = to_copy_into(to, to_offset, count, turn);
                let copy = || next(from, from_offset, to, to_offset, count, flags);
                let bytes = turn.call(|| turn_to_write.call(copy));
                if from_offset.is_null() {
                    has_read(from, bytes);
                }
                if to_offset.is_null() {
                    has_written(to, bytes);
                }
                bytes
            }
        }
    )* };
}

copies! {
    copy_file_range;
    splice;
}
