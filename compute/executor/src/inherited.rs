//! What a process of eyas has from its caller: open files, and the limit of open files. A process
//! of a cluster lives longer than its caller, and must not keep a lock or a pipe of the caller.
//! Tasks get the limit of the caller.

use eyas_session::descriptor_limit_of_caller;
pub use eyas_session::raise_descriptor_limit;

/// The first descriptor that is not a standard stream.
pub(crate) const FIRST_OTHER: u32 = 3;

/// The limit of open files for tasks, if it is another one than that of this process.
pub(crate) fn open_files() -> Option<libc::rlimit> {
    let amount = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    descriptor_limit_of_caller().map(|limit| libc::rlimit {
        rlim_cur: amount(limit.current),
        rlim_max: amount(limit.maximum),
    })
}

/// Closes all descriptors above the standard streams, which the caller has left open. A process of
/// a cluster calls this before it opens anything.
pub fn close_inherited() {
    // SAFETY: the system call takes three numbers. No part of this program owns a descriptor yet.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER, u32::MAX, 0) };
}
