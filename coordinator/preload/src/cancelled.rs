//! Calls in turns. A thread may be cancelled in the middle of one, or leave it, or the wait for it, by a jump out of a signal's
//! handler: its turn ends all the same, or else nobody would go on until the whole program has ended.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use crate::turn::Turn;

/// What the C library remembers of a function that is to be called when a thread is cancelled: a `_pthread_cleanup_buffer` of
/// its header `pthread.h`.
#[repr(C)]
struct Cleanup {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
    before: c_int,
    previous: *mut Cleanup,
}

unsafe extern "C" {
    fn _pthread_cleanup_push(
        cleanup: *mut MaybeUninit<Cleanup>,
        routine: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(cleanup: *mut MaybeUninit<Cleanup>, is_to_be_called: c_int);
}

unsafe extern "C" fn end(turn: *mut c_void) {
    // SAFETY: it lies in `hold`, whose frame is there for as long as this can be called.
    unsafe { *turn.cast::<Turn>() }.end(0);
}

impl Turn {
    /// Makes a call in this turn, and ends it; what the call has answered: how many bytes it has moved, or that it has failed.
    #[inline]
    pub(crate) fn call(self, call: impl FnOnce() -> isize) -> isize {
        let moved = self.hold(call);
        self.end(moved);
        moved
    }

    /// The same for a call that says something else, and moves so many bytes.
    #[inline]
    pub(crate) fn call_for<A>(self, bytes: usize, call: impl FnOnce() -> A) -> A {
        let answer = self.hold(call);
        self.end(bytes as isize);
        answer
    }

    /// Ends it if what is done meanwhile is left in some other way than by its end.
    #[inline]
    pub(crate) fn hold<A>(mut self, call: impl FnOnce() -> A) -> A {
        if matches!(self, Turn::Unordered) {
            return call();
        }
        let mut cleanup = MaybeUninit::uninit();
        // SAFETY: the C library looks at both until the second call, or until this frame is left in some other way.
        unsafe {
            _pthread_cleanup_push(&raw mut cleanup, end, (&raw mut self).cast());
            let answer = call();
            _pthread_cleanup_pop(&raw mut cleanup, 0);
            answer
        }
    }
}
