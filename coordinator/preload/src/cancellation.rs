//! Ends turns of calls that do not return. A thread may be cancelled during a call or while it waits, or leave by a
//! jump out of a signal handler. Its turn must end all the same: otherwise others would wait until the program ends.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use crate::turn::CallTurn;

/// Cleanup handler that the C library calls when a thread is cancelled: `_pthread_cleanup_buffer` of `pthread.h`.
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
    // SAFETY: the turn lies in the frame of `hold`, which exists as long as this can be called.
    unsafe { *turn.cast::<CallTurn>() }.untimed().end(0);
}

impl CallTurn {
    /// Makes a call in this turn and ends the turn. Returns the result of the call: the number of bytes, or a failure.
    #[inline]
    pub(crate) fn call(self, call: impl FnOnce() -> isize) -> isize {
        let moved = self.hold(call);
        self.end(moved);
        moved
    }

    /// The same for a call whose result is not a number of bytes.
    #[inline]
    pub(crate) fn call_for<A>(self, bytes: usize, call: impl FnOnce() -> A) -> A {
        let answer = self.hold(call);
        self.end(bytes as isize);
        answer
    }

    /// Ends the turn if `call` does not return normally.
    #[inline]
    pub(crate) fn hold<A>(mut self, call: impl FnOnce() -> A) -> A {
        if matches!(self, CallTurn::Unordered) {
            return call();
        }
        let mut cleanup = MaybeUninit::uninit();
        // SAFETY: the C library uses both until the second call, or until this frame is left in another way.
        unsafe {
            _pthread_cleanup_push(&raw mut cleanup, end, (&raw mut self).cast());
            let answer = call();
            _pthread_cleanup_pop(&raw mut cleanup, 0);
            answer
        }
    }
}
