//! Writing, and having what was written brought to the storage.

use libc::{c_int, c_uint, c_void, iovec, off_t, off64_t, size_t, ssize_t};

use super::read::bytes_of;
use crate::next::hook;
use crate::turn::{Turn, is_shared};
use crate::writes::{has_written, has_written_at, to_bring, to_write, to_write_at};

hook! { write as next(descriptor: c_int, from: *const c_void, count: size_t) -> ssize_t {
    let turn = to_write(descriptor, count);
    let bytes = next(descriptor, from, count);
    has_written(descriptor, bytes);
    turn.end(bytes);
    bytes
} }

hook! { writev as next(descriptor: c_int, from: *const iovec, count: c_int) -> ssize_t {
    let turn = to_write(descriptor, bytes_of(descriptor, from, count));
    let bytes = next(descriptor, from, count);
    has_written(descriptor, bytes);
    turn.end(bytes);
    bytes
} }

macro_rules! writes_at {
    ($($name:ident($offset:ty);)*) => { $(
        hook! { $name as next(descriptor: c_int, from: *const c_void, count: size_t, offset: $offset) -> ssize_t {
            let turn = to_write_at(descriptor, offset, count);
            let bytes = next(descriptor, from, count, offset);
            has_written_at(descriptor, offset, bytes);
            turn.end(bytes);
            bytes
        } }
    )* };
}

macro_rules! writes_of_several_at {
    ($($name:ident($offset:ty $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! {
            $name as next(
                descriptor: c_int, from: *const iovec, count: c_int, offset: $offset $(, $arg: $type)*
            ) -> ssize_t {
                // The calls with flags write where the descriptor stands if the offset is -1.
                let turn = match offset {
                    -1 => to_write(descriptor, bytes_of(descriptor, from, count)),
                    _ => to_write_at(descriptor, offset, bytes_of(descriptor, from, count)),
                };
                let bytes = next(descriptor, from, count, offset $(, $arg)*);
                match offset {
                    -1 => has_written(descriptor, bytes),
                    _ => has_written_at(descriptor, offset, bytes),
                }
                turn.end(bytes);
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
            let turn = to_bring(descriptor);
            let answer = next(descriptor $(, $arg)*);
            turn.end(0);
            answer
        } }
    )* };
}

brings! {
    fsync(descriptor: c_int);
    fdatasync(descriptor: c_int);
    sync_file_range(descriptor: c_int, offset: off64_t, bytes: off64_t, flags: c_uint);
}

/// Waits for the turn to copy into a descriptor, unless there is one already to read from the other: who has two waits for
/// himself.
pub(super) unsafe fn to_copy_into(to: c_int, offset: *const off64_t, count: size_t, reading: Turn) -> Turn {
    if !is_shared(to) {
        return Turn::Unordered;
    }
    // SAFETY: null, or where the program has written an offset.
    match (reading, unsafe { offset.as_ref() }) {
        (Turn::Unordered, Some(offset)) => to_write_at(to, *offset, count),
        (Turn::Unordered, None) => to_write(to, count),
        _ => Turn::Unordered,
    }
}
