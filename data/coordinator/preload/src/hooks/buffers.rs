//! Sizes of calls with several buffers.

use libc::{c_int, iovec};

use crate::waiting::is_shared;

/// The kernel accepts no more buffers in one call.
const MAX_BUFFERS: usize = 1024;

/// Total length of the buffers, for shared storage only: if a program passes an invalid address
/// elsewhere, the kernel must report it.
pub(super) unsafe fn bytes_of(descriptor: c_int, buffers: *const iovec, count: c_int) -> usize {
    match usize::try_from(count) {
        Ok(count) if is_shared(descriptor) && !buffers.is_null() => {
            // SAFETY: the program says that this many buffers are there.
            let lengths =
                (0..count.min(MAX_BUFFERS)).map(|place| unsafe { (*buffers.add(place)).iov_len });
            lengths.fold(0, usize::saturating_add)
        }
        _ => 0,
    }
}
