//! Reading, and moving to where to read.

use libc::{c_int, c_void, iovec, off_t, off64_t, size_t, ssize_t};

use super::write::writes_later;
use crate::next::hook;
use crate::turn::{has_moved, has_read, is_shared, to_read, to_read_at, to_read_later};

/// More buffers than this no call takes.
const MOST_BUFFERS: usize = 1024;

/// Bytes that a call with several buffers is to move. They are looked at for shared storage alone: where a program points
/// to what is not there, it is the kernel that is to say so.
pub(super) unsafe fn bytes_of(descriptor: c_int, buffers: *const iovec, count: c_int) -> usize {
    match usize::try_from(count) {
        Ok(count) if is_shared(descriptor) && !buffers.is_null() => {
            // SAFETY: the program has said that so many are there.
            let lengths = (0..count.min(MOST_BUFFERS)).map(|place| unsafe { (*buffers.add(place)).iov_len });
            lengths.fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}

macro_rules! reads {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => { $(
        hook! { $name as next(descriptor: c_int, into: *mut c_void, count: size_t $(, $arg: $type)*) -> ssize_t {
            let bytes = to_read(descriptor, count).call(|| next(descriptor, into, count $(, $arg)*));
            has_read(descriptor, bytes);
            bytes
        } }
    )* };
}

macro_rules! reads_at {
    ($($name:ident($offset:ty $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! {
            $name as next(descriptor: c_int, into: *mut c_void, count: size_t, offset: $offset $(, $arg: $type)*) -> ssize_t {
                to_read_at(descriptor, offset, count).call(|| next(descriptor, into, count, offset $(, $arg)*))
            }
        }
    )* };
}

macro_rules! reads_of_several_at {
    ($($name:ident($offset:ty $(, $arg:ident: $type:ty)*);)*) => { $(
        hook! {
            $name as next(
                descriptor: c_int, into: *const iovec, count: c_int, offset: $offset $(, $arg: $type)*
            ) -> ssize_t {
                // The calls with flags read where the descriptor stands if the offset is -1.
                let turn = match offset {
                    -1 => to_read(descriptor, bytes_of(descriptor, into, count)),
                    _ => to_read_at(descriptor, offset, bytes_of(descriptor, into, count)),
                };
                let bytes = turn.call(|| next(descriptor, into, count, offset $(, $arg)*));
                if offset == -1 {
                    has_read(descriptor, bytes);
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
    let turn = to_read(descriptor, bytes_of(descriptor, into, count));
    let bytes = turn.call(|| next(descriptor, into, count));
    has_read(descriptor, bytes);
    bytes
} }

macro_rules! moves {
    ($($name:ident($offset:ty);)*) => { $(
        hook! { $name as next(descriptor: c_int, offset: $offset, whence: c_int) -> $offset {
            let position = next(descriptor, offset, whence);
            has_moved(descriptor, position);
            position
        } }
    )* };
}

moves! {
    lseek(off_t);
    lseek64(off64_t);
}

macro_rules! reads_later {
    ($($name:ident($control:ty);)*) => { $(
        hook! { $name as next(what: *mut $control) -> c_int {
            if let Some(what) = what.as_ref() {
                to_read_later(what.aio_fildes, what.aio_offset, what.aio_nbytes);
            }
            next(what)
        } }
    )* };
}

// The control blocks differ in nothing where an offset has 64 bits.
reads_later! {
    aio_read(libc::aiocb);
    aio_read64(libc::aiocb);
}

macro_rules! lists {
    ($($name:ident;)*) => { $(
        hook! {
            $name as next(
                mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut libc::sigevent
            ) -> c_int {
                for place in 0..usize::try_from(count).unwrap_or(0) {
                    match (*list.add(place)).as_ref() {
                        Some(what) if what.aio_lio_opcode == libc::LIO_READ => {
                            to_read_later(what.aio_fildes, what.aio_offset, what.aio_nbytes);
                        }
                        Some(what) if what.aio_lio_opcode == libc::LIO_WRITE => {
                            writes_later(what.aio_fildes, what.aio_offset, what.aio_nbytes);
                        }
                        _ => {}
                    }
                }
                next(mode, list, count, event)
            }
        }
    )* };
}

lists! {
    lio_listio;
    lio_listio64;
}
