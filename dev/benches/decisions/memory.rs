//! Counts the bytes that are allocated, so that a structure's size is the difference of two counts.
//!
//! Counts what was asked for; the allocator's own header and rounding (8 to 16 bytes an allocation)
//! come on top.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, and a count.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn count(bytes: isize) {
    // Not `fetch_add`: one thread allocates while it is measured, and a locked instruction would be
    // measured too.
    LIVE_BYTES.store(LIVE_BYTES.load(Relaxed) + bytes, Relaxed);
}

// SAFETY: every call goes to `System` unchanged, whose contract is this one's; the count touches no
// memory of theirs. Only a global allocator can see what a crate without features for it allocates,
// and its trait is unsafe.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: see the `impl`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: see the `impl`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: see the `impl`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes allocated and not freed.
pub fn live_bytes() -> isize {
    LIVE_BYTES.load(Relaxed)
}
