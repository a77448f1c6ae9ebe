//! Writing, and having what was written brought to the storage.

use libc::{c_int, c_uint, c_void, iovec, off_t, off64_t, size_t, ssize_t};

use super::read::bytes_of;
use crate::next::hook;
use crate::turn::{Turn, is_shared};
use crate::writes::{has_written, has_written_at, to_bring, to_write, to_write_at};

hook! { write as next(descriptor: c_int, from: *const c_void, count: size_t) -> ssize_t {
    let bytes = to_write(descriptor, count).call(|| next(descriptor, from, count));
    has_written(descriptor, bytes);
    bytes
} }

hook! { writev as next(descriptor: c_int, from: *const iovec, count: c_int) -> ssize_t {
    let turn = to_write(descriptor, bytes_of(descriptor, from, count));
    let bytes = turn.call(|| next(descriptor, from, count));
    has_written(descriptor, bytes);
    bytes
} }

macro_rules! writes_at {
    ($($name:ident($offset:ty);)*) => { $(
        hook! { $name as next(descriptor: c_int, from: *const c_void, count: size_t, offset: $offset) -> ssize_t {
            let bytes = to_write_at(descriptor, offset, count).call(|| next(descriptor, from, count, offset));
            has_written_at(descriptor, offset, bytes);
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
                let bytes = turn.call(|| next(descriptor, from, count, offset $(, $arg)*));
                match offset {
                    -1 => has_written(descriptor, bytes),
                    _ => has_written_at(descriptor, offset, bytes),
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

/// The C library will write so many bytes there, from a thread of its own. Nobody is to wait here for that thread's turn; it is
/// whoever syncs or closes the file that brings them to the storage.
pub(super) fn writes_later(descriptor: c_int, offset: off64_t, bytes: size_t) {
    if is_shared(descriptor) {
        has_written_at(descriptor, offset, bytes as isize);
    }
}

macro_rules! writes_by_itself {
    ($($name:ident($control:ty);)*) => { $(
        hook! { $name as next(what: *mut $control) -> c_int {
            if let Some(what) = what.as_ref() {
                writes_later(what.aio_fildes, what.aio_offset, what.aio_nbytes);
            }
            next(what)
        } }
    )* };
}

writes_by_itself! {
    aio_write(libc::aiocb);
    aio_write64(libc::aiocb);
}

macro_rules! brings {
    ($($name:ident(descriptor: c_int $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! { $name as next(descriptor: c_int $(, $arg: $type)*) -> c_int {
            to_bring(descriptor).call_for(0, || next(descriptor $(, $arg)*))
        } }
    )* };
}

brings! {
    fsync(descriptor: c_int);
    fdatasync(descriptor: c_int);
    syncfs(descriptor: c_int);
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
