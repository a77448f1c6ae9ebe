//! What the kernel has of a file in its page cache: who reads that need not ask.
//!
//! The kernel reads ahead by itself for who reads in order, a little at a time; who followed it would never come to ask, and
//! read as if nothing were ordered. So it counts only if all is there for a good way ahead, or if the program has jumped to
//! where it reads.
//!
//! To look costs a fraction of a microsecond, which is much for who reads from memory all the time. Who has found everything
//! there for a while therefore looks less often, but at no descriptor by which something was missed.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::os::fd::BorrowedFd;

use crate::descriptors::Descriptor;
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
const SPARED_BYTES: u64 = 4 << 20;

/// Looks in a row that found everything.
static FOUND: AtomicU32 = AtomicU32::new(0);
/// Of the looks that are left out, those to come.
static CALLS: AtomicU32 = AtomicU32::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// The kernel does not tell.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// What a look has found.
pub(crate) enum Look {
    /// All of this, and all that was to be read of it: nobody has to ask.
    All(Range<u64>),
    /// What was to be read; more than that is not sure.
    Just,
    /// Something is missing, or not known.
    Missing,
}

/// Whether a call that is to read so many bytes by a descriptor, perhaps at this offset, goes ahead without a look.
#[inline]
pub(crate) fn is_spared(known: &Descriptor, offset: Option<u64>, length: u64) -> bool {
    let (calls, bytes) = (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    if calls == 0 || bytes < length || known.has_missed() {
        return false;
    }
    // Threads may count this twice, or once for two: it is no more than a way to look less often.
    CALLS.store(calls - 1, Ordering::Relaxed);
    BYTES.store(bytes - length, Ordering::Relaxed);
    if let Some(offset) = offset {
        known.set_last(offset.saturating_add(length));
    }
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

/// A call by this descriptor has to ask, or to wait.
pub(crate) fn missed(known: &Descriptor) {
    known.miss();
    FOUND.store(0, Ordering::Relaxed);
    CALLS.store(0, Ordering::Relaxed);
}

/// Looks for these bytes of a file of so many, which are to be read by a descriptor that last read up to `last`.
pub(crate) fn look(known: &Descriptor, file: BorrowedFd<'_>, bytes: &Range<u64>, file_bytes: u64, last: u64) -> Look {
    let around = bytes.start / AHEAD_BYTES * AHEAD_BYTES..bytes.end.next_multiple_of(AHEAD_BYTES).min(file_bytes);
    if is_cached(known, file, &around) {
        // Nor is there anything to wait for at the end of a file.
        let end = if around.end == file_bytes { u64::MAX } else { around.end };
        return Look::All(around.start..end);
    }
    let near = NEAR_BYTES.max((bytes.end - bytes.start).saturating_mul(NEAR_LENGTHS));
    let has_jumped = last.abs_diff(bytes.start) > near;
    if has_jumped && is_cached(known, file, bytes) { Look::Just } else { Look::Missing }
}

/// Whether the kernel says that it has these bytes.
pub(crate) fn is_cached(known: &Descriptor, file: BorrowedFd<'_>, bytes: &Range<u64>) -> bool {
    if IS_SILENT.load(Ordering::Relaxed) || known.is_untold() {
        return false;
    }
    with_errno_kept(|| eyas_board::is_cached(file, bytes)).unwrap_or_else(|error| {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => IS_SILENT.store(true, Ordering::Relaxed),
            _ => known.set_untold(),
        }
        false
    })
}
