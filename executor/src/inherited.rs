//! What a process of eyas has from its caller: open files, and the limit of open files. A process of a cluster lives
//! longer than its caller, and must not keep a lock or a pipe of the caller. Tasks get the limit of the caller:
//! programs that close all possible descriptors, or use `select(2)`, cannot live with a limit of a million.

use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit, setrlimit};

/// The first descriptor that is not a standard stream.
pub(crate) const FIRST_OTHER: u32 = 3;

/// The limit of open files before this process raised it.
static OPEN_FILES: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard limit: connections of peers stay open, and the usual limit of 1,024
/// descriptors is too low for them. Tasks of this process get the limit as it was.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let amount = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
    // If the limit was raised before, the first one counts.
    let _ = OPEN_FILES.set(libc::rlimit { rlim_cur: amount(limit.current), rlim_max: amount(limit.maximum) });
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("cannot raise the limit of open files: {e}");
    }
}

/// The limit of open files for tasks, if it is another one than that of this process.
pub(crate) fn open_files() -> Option<libc::rlimit> {
    OPEN_FILES.get().copied()
}

/// Closes all descriptors above the standard streams, which the caller has left open. A process of a cluster calls this
/// before it opens anything.
pub fn close_inherited() {
    // SAFETY: the system call takes three numbers. No part of this program owns a descriptor yet.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER, u32::MAX, 0) };
}
