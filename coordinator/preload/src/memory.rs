//! What the kernel has of a file in its page cache: who reads that need not ask.
//!
//! The kernel tells (`cachestat(2)`, since Linux 6.5). It reads ahead by itself for who reads in order, a little at a time; who
//! followed it would never come to ask, and read as if nothing were ordered. So it counts only if all is there for a good way ahead, or if the
//! program has jumped to where it reads.
//!
//! That costs a fraction of a microsecond, which is much for who reads from memory all the time. Who has found everything there
//! for a while therefore looks less often.

use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::next::with_errno_kept;

/// Wherever a program has not jumped, all of so many bytes is to be there, from one of their multiples to the next.
const AHEAD_BYTES: u64 = 1 << 20;
/// Who reads within so many bytes of where it read last, or so many times what it reads, has not jumped: it may be one of
/// several who read the file together.
const NEAR_BYTES: u64 = 1 << 20;
const NEAR_LENGTHS: u64 = 64;
/// After so many looks in a row that found everything, most are left out:
const SURE: u32 = 64;
/// so many,
const SPARED_CALLS: u32 = 256;
/// if they are to read no more than this together.
const SPARED_BYTES: u64 = 16 << 20;

/// Looks in a row that found everything.
static FOUND: AtomicU32 = AtomicU32::new(0);
/// Of the looks that are left out, those to come.
static CALLS: AtomicU32 = AtomicU32::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// The kernel does not tell.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Whether a call that is to read so many bytes goes ahead without a look.
#[inline]
pub(crate) fn is_spared(length: u64) -> bool {
    let (calls, bytes) = (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    if calls == 0 || bytes < length {
        return false;
    }
    // Threads may count this twice, or once for two: it is no more than a way to look less often.
    CALLS.store(calls - 1, Ordering::Relaxed);
    BYTES.store(bytes - length, Ordering::Relaxed);
    true
}

/// A call need not have asked.
pub(crate) fn found() {
    let found = FOUND.load(Ordering::Relaxed);
    if found < SURE {
        return FOUND.store(found + 1, Ordering::Relaxed);
    }
    BYTES.store(SPARED_BYTES, Ordering::Relaxed);
    CALLS.store(SPARED_CALLS, Ordering::Relaxed);
}

/// A call has to ask, or to wait.
pub(crate) fn missed() {
    FOUND.store(0, Ordering::Relaxed);
    CALLS.store(0, Ordering::Relaxed);
}

/// What is in memory around these bytes of a file of so many, if all of them are and that means something; `last` is where the
/// program read before.
pub(crate) fn look(file: BorrowedFd<'_>, bytes: &Range<u64>, file_bytes: u64, last: u64) -> Option<Range<u64>> {
    let around = bytes.start / AHEAD_BYTES * AHEAD_BYTES..bytes.end.next_multiple_of(AHEAD_BYTES).min(file_bytes);
    if is_cached(file, &around) {
        // Nor is there anything to wait for at the end of a file.
        let end = if around.end == file_bytes { u64::MAX } else { around.end };
        return Some(around.start..end);
    }
    let near = NEAR_BYTES.max((bytes.end - bytes.start).saturating_mul(NEAR_LENGTHS));
    let has_jumped = last.abs_diff(bytes.start) > near;
    (has_jumped && is_cached(file, bytes)).then(|| bytes.clone())
}

/// What `cachestat(2)` is asked for, and what it answers: `linux/mman.h`.
#[repr(C)]
struct Asked {
    offset: u64,
    length: u64,
}

#[repr(C)]
struct Told {
    cached_pages: u64,
    dirty_pages: u64,
    written_pages: u64,
    evicted_pages: u64,
    lately_evicted_pages: u64,
}

const SYS_CACHESTAT: libc::c_long = 451;

fn is_cached(file: BorrowedFd<'_>, bytes: &Range<u64>) -> bool {
    if IS_SILENT.load(Ordering::Relaxed) {
        return false;
    }
    let asked = Asked { offset: bytes.start, length: bytes.end - bytes.start };
    let mut told = MaybeUninit::<Told>::uninit();
    // SAFETY: the call reads `asked`, and writes `told` if it succeeds.
    let answer = with_errno_kept(|| {
        match unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const asked, told.as_mut_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error()),
        }
    });
    if let Err(error) = answer {
        // Of some files it does not tell everybody.
        IS_SILENT.fetch_or(error == Some(libc::ENOSYS), Ordering::Relaxed);
        return false;
    }
    // SAFETY: it has succeeded; and the other always does.
    let (told, page_bytes) = unsafe { (told.assume_init(), libc::sysconf(libc::_SC_PAGESIZE) as u64) };
    told.cached_pages >= bytes.end.div_ceil(page_bytes) - bytes.start / page_bytes
}
