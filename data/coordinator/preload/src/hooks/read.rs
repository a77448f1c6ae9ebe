//! Reading and seeking.

use libc::{c_int, c_void, iovec, off_t, off64_t, size_t, ssize_t};

use super::buffers::bytes_of;
use crate::next_symbol::hook;
use crate::reads::{after_read, after_seek, turn_to_read, turn_to_read_at};

/// The memory of a call that checks the size of the program's memory: no room, if the check fails.
fn checked(count: size_t, room: Option<size_t>) -> size_t {
    if room.is_some_and(|room| count > room) { 0 } else { count }
}

macro_rules! reads {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => { $(
        hook! {
            $name as next(
                descriptor: c_int, into: *mut c_void, count: size_t $(, $arg: $type)*
            ) -> ssize_t {
                let room = checked(count, None::<size_t>$(.or(Some($arg)))*);
                let turn = turn_to_read(descriptor, count).into_memory(into, room);
                let bytes = turn.call(|| next(descriptor, into, count $(, $arg)*));
                after_read(descriptor, bytes);
                bytes
            }
        }
    )* };
}

macro_rules! reads_at {
    ($($name:ident($offset:ty $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! {
            $name as next(
                descriptor: c_int, into: *mut c_void, count: size_t, offset: $offset
                $(, $arg: $type)*
            ) -> ssize_t {
                let room = checked(count, None::<size_t>$(.or(Some($arg)))*);
                let turn = turn_to_read_at(descriptor, offset, count).into_memory(into, room);
                turn.call(|| next(descriptor, into, count, offset $(, $arg)*))
            }
        }
    )* };
}

macro_rules! reads_of_several_at {
    ($($name:ident($offset:ty $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! {
            $name as next(
                descriptor: c_int, into: *const iovec, count: c_int, offset: $offset
                $(, $arg: $type)*
            ) -> ssize_t {
                // With an offset of -1, the calls with flags read at the descriptor's position.
                let turn = match offset {
                    -1 => turn_to_read(descriptor, bytes_of(descriptor, into, count)),
                    _ => turn_to_read_at(descriptor, offset, bytes_of(descriptor, into, count)),
                };
                let bytes = turn.call(|| next(descriptor, into, count, offset $(, $arg)*));
                if offset == -1 {
                    after_read(descriptor, bytes);
                }
                bytes
            }
        }
    )* };
}

reads! {
    read();
    __read_chk(room: size_t);
}

reads_at! {
    pread(off_t);
    pread64(off64_t);
    __pread_chk(off_t, room: size_t);
    __pread64_chk(off64_t, room: size_t);
}

reads_of_several_at! {
    preadv(off_t);
    preadv64(off64_t);
    preadv2(off_t, flags: c_int);
    preadv64v2(off64_t, flags: c_int);
}

hook! { readv as next(descriptor: c_int, into: *const iovec, count: c_int) -> ssize_t {
    let turn = turn_to_read(descriptor, bytes_of(descriptor, into, count));
    let bytes = turn.call(|| next(descriptor, into, count));
    after_read(descriptor, bytes);
    bytes
} }

macro_rules! moves {
    ($($name:ident($offset:ty);)*) => { $(
        hook! { $name as next(descriptor: c_int, offset: $offset, whence: c_int) -> $offset {
            let position = next(descriptor, offset, whence);
            after_seek(descriptor, position);
            position
        } }
    )* };
}

moves! {
    lseek(off_t);
    lseek64(off64_t);
}
