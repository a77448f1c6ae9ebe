//! Writing and flushing.

use libc::{c_int, c_uint, c_void, iovec, off_t, off64_t, size_t, ssize_t};

use super::buffers::bytes_of;
use crate::next_symbol::hook;
use crate::turn::CallTurn;
use crate::waiting::is_shared;
use crate::writes::{after_write, after_write_at, turn_to_sync, turn_to_write, turn_to_write_at};

hook! { write as next(descriptor: c_int, from: *const c_void, count: size_t) -> ssize_t {
    let bytes = turn_to_write(descriptor, count).call(|| next(descriptor, from, count));
    after_write(descriptor, bytes);
    bytes
} }

hook! { writev as next(descriptor: c_int, from: *const iovec, count: c_int) -> ssize_t {
    let turn = turn_to_write(descriptor, bytes_of(descriptor, from, count));
    let bytes = turn.call(|| next(descriptor, from, count));
    after_write(descriptor, bytes);
    bytes
} }

macro_rules! writes_at {
    ($($name:ident($offset:ty);)*) => { $(
        hook! {
            $name as next(
                descriptor: c_int, from: *const c_void, count: size_t, offset: $offset
            ) -> ssize_t {
                let turn = turn_to_write_at(descriptor, offset, count);
                let bytes = turn.call(|| next(descriptor, from, count, offset));
                after_write_at(descriptor, offset, bytes);
                bytes
            }
        }
    )* };
}

macro_rules! writes_of_several_at {
    ($($name:ident($offset:ty $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! {
            $name as next(
                descriptor: c_int, from: *const iovec, count: c_int, offset: $offset
                $(, $arg: $type)*
            ) -> ssize_t {
                // With an offset of -1, the calls with flags write at the descriptor's position.
                let turn = match offset {
                    -1 => turn_to_write(descriptor, bytes_of(descriptor, from, count)),
                    _ => turn_to_write_at(descriptor, offset, bytes_of(descriptor, from, count)),
                };
                let bytes = turn.call(|| next(descriptor, from, count, offset $(, $arg)*));
                match offset {
                    -1 => after_write(descriptor, bytes),
                    _ => after_write_at(descriptor, offset, bytes),
                }
                bytes
            }
        }
    )* };
}

writes_at! {
    pwrite(off_t);
    pwrite64(off64_t);
}

writes_of_several_at! {
    pwritev(off_t);
    pwritev64(off64_t);
    pwritev2(off_t, flags: c_int);
    pwritev64v2(off64_t, flags: c_int);
}

macro_rules! brings {
    ($($name:ident(descriptor: c_int $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! { $name as next(descriptor: c_int $(, $arg: $type)*) -> c_int {
            turn_to_sync(descriptor).call_for(0, || next(descriptor $(, $arg)*))
        } }
    )* };
}

brings! {
    fsync(descriptor: c_int);
    fdatasync(descriptor: c_int);
    syncfs(descriptor: c_int);
    sync_file_range(descriptor: c_int, offset: off64_t, bytes: off64_t, flags: c_uint);
}

/// The turn to copy into a descriptor, unless the call has one for reading from the other: a call
/// with two turns could wait for itself.
pub(super) unsafe fn turn_to_copy_into(
    to: c_int,
    offset: *const off64_t,
    count: size_t,
    is_turn_to_read: bool,
) -> CallTurn {
    if is_turn_to_read || !is_shared(to) {
        return CallTurn::Unordered;
    }
    // SAFETY: null, or a valid offset of the program.
    match unsafe { offset.as_ref() } {
        Some(offset) => turn_to_write_at(to, *offset, count),
        None => turn_to_write(to, count),
    }
}
