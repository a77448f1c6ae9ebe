//! Queries of the kernel's page cache: which bytes of a file are in memory.

use core::mem::MaybeUninit;
use core::ops::Range;

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io;

use crate::last_error::last_error;

/// Number of the system call, which no library has yet. It is the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// Argument and result of `cachestat(2)`, from the kernel's `linux/mman.h`.
#[repr(C)]
struct PageRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
struct PageCounts {
    cached_pages: u64,
    dirty_pages: u64,
    written_pages: u64,
    evicted_pages: u64,
    lately_evicted_pages: u64,
}

/// Whether the kernel has all of these bytes in its page cache, or is reading them.
///
/// # Errors
/// `ENOSYS` before Linux 6.5; `EPERM` for a file that the caller neither owns nor may write.
pub fn is_cached(file: BorrowedFd<'_>, bytes: &Range<u64>) -> io::Result<bool> {
    let asked = PageRange { offset: bytes.start, length: bytes.end - bytes.start };
    let mut told = MaybeUninit::<PageCounts>::uninit();
    // SAFETY: the kernel reads `asked`, and writes `told` if it succeeds.
    let failed = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const asked, told.as_mut_ptr(), 0)
    };
    if failed != 0 {
        return Err(last_error());
    }
    // SAFETY: the first call has succeeded, and the second always does.
    let (told, page_bytes) =
        unsafe { (told.assume_init(), libc::sysconf(libc::_SC_PAGESIZE) as u64) };
    Ok(told.cached_pages >= bytes.end.div_ceil(page_bytes) - bytes.start / page_bytes)
}
