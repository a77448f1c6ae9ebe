//! Why a call of the C library has failed.

use rustix::io::Errno;

/// The error of this thread's last call that has failed.
pub(crate) fn last_error() -> Errno {
    // SAFETY: this thread's `errno`.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
