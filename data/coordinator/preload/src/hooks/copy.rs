//! Copying between descriptors within the kernel. Such a call may copy less than asked for, and
//! does so here: at most as much as one turn covers.

use core::ptr;

use libc::{c_int, c_uint, off_t, off64_t, size_t, ssize_t};

use super::write::turn_to_copy_into;
use crate::next_symbol::hook;
use crate::reads::{after_read, turn_to_read, turn_to_read_at};
use crate::turn::CallTurn;
use crate::waiting::is_shared;
use crate::writes::after_write;

/// Largest amount copied in one call.
const MAX_BYTES: usize = 4 << 20;

/// Amount that is copied in one call.
fn part(from: c_int, to: c_int, count: size_t) -> size_t {
    if is_shared(from) || is_shared(to) { count.min(MAX_BYTES) } else { count }
}

/// The turn to read where the call reads. Its duration depends on where it writes, too, so it is
/// not measured.
unsafe fn turn_to_copy(from: c_int, offset: *const off64_t, count: size_t) -> CallTurn {
    if !is_shared(from) {
        return CallTurn::Unordered;
    }
    // SAFETY: null, or a valid offset of the program.
    match unsafe { offset.as_ref() } {
        Some(offset) => turn_to_read_at(from, *offset, count),
        None => turn_to_read(from, count),
    }
    .untimed()
}

macro_rules! sends {
    ($($name:ident($offset:ty);)*) => { $(
        hook! {
            $name as next(
                to: c_int, from: c_int, offset: *mut $offset, count: size_t
            ) -> ssize_t {
                let count = part(from, to, count);
                let turn = turn_to_copy(from, offset, count);
                let copy = || next(to, from, offset, count);
                let bytes = turn.call_knowing(|is_turn| {
                    turn_to_copy_into(to, ptr::null(), count, is_turn).call(copy)
                });
                if offset.is_null() {
                    after_read(from, bytes);
                }
                after_write(to, bytes);
                bytes
            }
        }
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
                from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t,
                count: size_t, flags: c_uint
            ) -> ssize_t {
                let count = part(from, to, count);
                let turn = turn_to_copy(from, from_offset, count);
                let copy = || next(from, from_offset, to, to_offset, count, flags);
                let bytes = turn.call_knowing(|is_turn| {
                    turn_to_copy_into(to, to_offset, count, is_turn).call(copy)
                });
                if from_offset.is_null() {
                    after_read(from, bytes);
                }
                if to_offset.is_null() {
                    after_write(to, bytes);
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
