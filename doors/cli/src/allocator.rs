//! Settings of the C library's allocator. By default, an allocation of 128 KiB or more is mapped
//! each by itself, until a larger one was freed, and freed memory goes back to the system soon. The
//! next message of a megabyte then costs a page fault for each of its pages, which is more than the
//! copy of its bytes.

#![allow(unsafe_code)]

/// Free memory that each arena of the allocator keeps.
const KEPT_BYTES: i32 = 16 << 20;
/// Allocations of this size and more are mapped each by itself, and go back to the system when they
/// are freed. The buffers of chunks of the default size, 4 to 5 MiB, are smaller.
const MAPPED_FROM_BYTES: i32 = 8 << 20;

/// Applies the settings. Other C libraries have other allocators, and none of these settings.
pub(crate) fn keep_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers, and changes nothing but settings of the allocator.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
    }
}
