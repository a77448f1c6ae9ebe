//! Signals: a connection that ends while it is written to must not end the program by SIGPIPE, and
//! handlers of the program must not run in threads of this library.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use libc::{SIG_BLOCK, SIG_SETMASK, SIGPIPE, sigset_t, timespec};

/// Runs `body` with SIGPIPE held back in this thread. If the signal came, it is taken away, unless
/// it was pending before.
pub(crate) fn without_pipe_signal<T>(body: impl FnOnce() -> T) -> T {
    /// Restores the mask, also after a panic.
    struct Restore {
        mask: sigset_t,
        was_pending: bool,
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            let none = timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: all arguments are valid for the calls; a null pointer means no result is
            // wanted.
            unsafe {
                if !self.was_pending {
                    libc::sigtimedwait(&set_of_pipe(), null_mut(), &none);
                }
                libc::pthread_sigmask(SIG_SETMASK, &self.mask, null_mut());
            }
        }
    }
    let (mut before, mut pending) =
        (MaybeUninit::<sigset_t>::uninit(), MaybeUninit::<sigset_t>::uninit());
    // SAFETY: all sets are valid, and the calls initialize `before` and `pending`.
    let _restore = unsafe {
        libc::pthread_sigmask(SIG_BLOCK, &set_of_pipe(), before.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        Restore {
            mask: before.assume_init(),
            was_pending: libc::sigismember(pending.as_ptr(), SIGPIPE) == 1,
        }
    };
    body()
}

/// Blocks all signals in a thread of this library, so that the system delivers them to threads of
/// the program.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pending() -> bool {
        let mut pending = MaybeUninit::<sigset_t>::uninit();
        // SAFETY: the first call initializes the set.
        unsafe {
            libc::sigpending(pending.as_mut_ptr());
            libc::sigismember(pending.as_ptr(), SIGPIPE) == 1
        }
    }

    fn raise() {
        // SAFETY: the signal is blocked in this thread whenever this is called.
        unsafe { libc::pthread_kill(libc::pthread_self(), SIGPIPE) };
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no calls for masks of signals")]
    fn a_signal_of_the_library_is_taken_away_and_that_of_the_program_is_not() {
        without_pipe_signal(raise);
        assert!(!is_pending());
        // The program blocks it.
        // SAFETY: the set is valid.
        unsafe { libc::pthread_sigmask(SIG_BLOCK, &set_of_pipe(), null_mut()) };
        without_pipe_signal(raise);
        assert!(!is_pending());
        raise();
        without_pipe_signal(raise);
        assert!(is_pending());
    }
}
