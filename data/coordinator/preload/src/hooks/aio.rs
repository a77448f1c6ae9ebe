//! Asynchronous calls of the C library (aio(7)). A thread of the C library executes them later.

use libc::{c_int, off64_t, size_t};

use crate::next_symbol::hook;
use crate::reads::announce_read;
use crate::waiting::is_shared;
use crate::writes::after_write_at;

/// A thread of the C library will write these bytes. The caller must not wait for that thread's
/// turn; the next sync or close flushes the bytes.
pub(super) fn record_async_write(descriptor: c_int, offset: off64_t, bytes: size_t) {
    if is_shared(descriptor) {
        after_write_at(descriptor, offset, bytes as isize);
    }
}

macro_rules! writes_by_itself {
    ($($name:ident($control:ty);)*) => { $(
        hook! { $name as next(what: *mut $control) -> c_int {
            if let Some(what) = what.as_ref() {
                record_async_write(what.aio_fildes, what.aio_offset, what.aio_nbytes);
            }
            next(what)
        } }
    )* };
}

writes_by_itself! {
    aio_write(libc::aiocb);
    aio_write64(libc::aiocb);
}

macro_rules! reads_later {
    ($($name:ident($control:ty);)*) => { $(
        hook! { $name as next(what: *mut $control) -> c_int {
            if let Some(what) = what.as_ref() {
                announce_read(what.aio_fildes, what.aio_offset, what.aio_nbytes);
            }
            next(what)
        } }
    )* };
}

// The control blocks are the same where an offset has 64 bits.
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
                            announce_read(what.aio_fildes, what.aio_offset, what.aio_nbytes);
                        }
                        Some(what) if what.aio_lio_opcode == libc::LIO_WRITE => {
                            record_async_write(what.aio_fildes, what.aio_offset, what.aio_nbytes);
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
