//! Reads that need not ask, because the kernel has their bytes in its page cache.
//!
//! The kernel itself reads ahead for a sequential reader, a little at a time. A program that
//! follows this read-ahead would never ask, and would read unordered. So cached bytes count only if
//! a good part of what follows is cached too, or if the program has jumped to where it reads.
//!
//! A lookup costs a fraction of a microsecond, which is much for a program that reads from memory
//! all the time. So after many hits in a row most lookups are skipped, but never for a descriptor
//! that had a miss.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::descriptors::Descriptor;
use crate::next_symbol::preserving_errno;

/// For a program that has not jumped, whole blocks of this size must be cached.
const AHEAD_BYTES: u64 = 1 << 20;
/// A read within this many bytes of the previous one, or this many times its own length, is no
/// jump: several processes may be reading the file together.
const NEAR_BYTES: u64 = 1 << 20;
const NEAR_LENGTHS: u64 = 64;
/// After this many hits in a row, lookups are skipped:
const SURE: u32 = 64;
/// for this many calls,
const SPARED_CALLS: u32 = 256;
/// as long as they read no more than this together.
const SPARED_BYTES: u64 = 4 << 20;

/// Hits in a row.
static FOUND: AtomicU32 = AtomicU32::new(0);
/// Calls and bytes for which lookups are still skipped.
static CALLS: AtomicU32 = AtomicU32::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// The kernel has no `cachestat(2)`.
static CACHESTAT_MISSING: AtomicBool = AtomicBool::new(false);

/// Result of a lookup.
pub(crate) enum CacheLookup {
    /// All of this range is cached, with the bytes to be read.
    Surroundings(Range<u64>),
    /// The bytes to be read are cached; nothing is known about others.
    OnlyThese,
    /// Some bytes are missing, or unknown.
    Missing,
}

/// Whether a read of `length` bytes by this descriptor skips the lookup.
#[inline]
pub(crate) fn skips_lookup(known: &Descriptor, offset: Option<u64>, length: u64) -> bool {
    let (calls, bytes) = (CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    if calls == 0 || bytes < length || known.has_missed() {
        return false;
    }
    // Concurrent threads may count this twice or not at all; it only makes lookups rarer.
    CALLS.store(calls - 1, Ordering::Relaxed);
    BYTES.store(bytes - length, Ordering::Relaxed);
    if let Some(offset) = offset {
        known.set_last_end(offset.saturating_add(length));
    }
    true
}

/// A call did not have to ask.
pub(crate) fn record_hit() {
    let record_hit = FOUND.load(Ordering::Relaxed);
    if record_hit < SURE {
        return FOUND.store(record_hit + 1, Ordering::Relaxed);
    }
    BYTES.store(SPARED_BYTES, Ordering::Relaxed);
    CALLS.store(SPARED_CALLS, Ordering::Relaxed);
}

/// A call has to ask or to wait.
pub(crate) fn record_miss(known: &Descriptor) {
    known.set_missed();
    FOUND.store(0, Ordering::Relaxed);
    CALLS.store(0, Ordering::Relaxed);
}

/// Looks up bytes that are about to be read by a descriptor whose previous read ended at `last`.
pub(crate) fn look_up(
    known: &Descriptor,
    file: BorrowedFd<'_>,
    bytes: &Range<u64>,
    file_bytes: u64,
    last_end: u64,
) -> CacheLookup {
    let around = bytes.start / AHEAD_BYTES * AHEAD_BYTES
        ..bytes.end.next_multiple_of(AHEAD_BYTES).min(file_bytes);
    if is_cached(known, file, &around) {
        // At the end of a file there is nothing to wait for.
        let end = if around.end == file_bytes { u64::MAX } else { around.end };
        return CacheLookup::Surroundings(around.start..end);
    }
    let near = NEAR_BYTES.max((bytes.end - bytes.start).saturating_mul(NEAR_LENGTHS));
    let has_jumped = last_end.abs_diff(bytes.start) > near;
    if has_jumped && is_cached(known, file, bytes) {
        CacheLookup::OnlyThese
    } else {
        CacheLookup::Missing
    }
}

/// Whether the kernel reports these bytes as cached.
pub(crate) fn is_cached(known: &Descriptor, file: BorrowedFd<'_>, bytes: &Range<u64>) -> bool {
    if CACHESTAT_MISSING.load(Ordering::Relaxed) || known.cachestat_denied() {
        return false;
    }
    preserving_errno(|| eyas_board::is_cached(file, bytes)).unwrap_or_else(|error| {
        match error {
            Errno::NOSYS => CACHESTAT_MISSING.store(true, Ordering::Relaxed),
            _ => known.deny_cachestat(),
        }
        false
    })
}
