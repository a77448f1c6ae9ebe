//! Signals: a connection that ends while it is written to must not end the program by SIGPIPE, and handlers of the
//! program must not run in threads of this library.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use libc::{SIG_BLOCK, SIG_SETMASK, SIGPIPE, sigset_t, timespec};

/// Runs `body` with SIGPIPE held back in this thread. If one came, it is taken away, unless one was waiting before.
pub(crate) fn without_pipe_signal<T>(body: impl FnOnce() -> T) -> T {
    /// Restores the mask, also after a panic.
    struct Restore(Option<sigset_t>);
    impl Drop for Restore {
        fn drop(&mut self) {
            if let Some(mask) = self.0.take() {
                let none = timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: all three arguments are valid for the calls; a null pointer means no result is wanted.
                unsafe {
                    libc::sigtimedwait(&set_of_pipe(), null_mut(), &none);
                    libc::pthread_sigmask(SIG_SETMASK, &mask, null_mut());
                }
            }
        }
    }
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: both sets are valid, and the call initializes `before`.
    let before = unsafe {
        libc::pthread_sigmask(SIG_BLOCK, &set_of_pipe(), before.as_mut_ptr());
        before.assume_init()
    };
    // SAFETY: the set was initialized above.
    let was_blocked = unsafe { libc::sigismember(&before, SIGPIPE) } == 1;
    let _restore = Restore((!was_blocked).then_some(before));
    body()
}

/// Blocks all signals in a thread of this library, so that the system delivers them to threads of the program.
pub(crate) fn block_all() {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the first call initializes the set, and the second one reads it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(SIG_BLOCK, all.as_ptr(), null_mut());
    }
}

fn set_of_pipe() -> sigset_t {
    let mut set = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the first call initializes the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGPIPE);
        set.assume_init()
    }
}
