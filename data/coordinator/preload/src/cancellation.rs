//! Ends turns of calls that do not return. A thread may be cancelled during a call or while it
//! waits, or leave by a jump out of a signal handler. Its turn must end all the same: otherwise
//! others would wait until the program ends. So the C library knows the call before the call asks
//! for its turn, and until the turn has ended.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use crate::turn::{CallTurn, HeldTurn, OpenTurn};

/// Cleanup handler that the C library calls when a thread is cancelled: `_pthread_cleanup_buffer`
/// of `pthread.h`.
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

unsafe extern "C" fn end(open: *mut c_void) {
    // SAFETY: the turn lies in the frame of `within`, which exists as long as this can be called.
    unsafe { &*open.cast::<OpenTurn>() }.end();
}

impl CallTurn {
    /// Waits for the turn, makes a call in it, and ends it. Returns the result of the call: the
    /// number of bytes, or a failure.
    #[inline]
    pub(crate) fn call(self, call: impl FnOnce() -> isize) -> isize {
        self.call_knowing(|_| call())
    }

    /// The same for a call that knows whether others wait for its end.
    #[inline]
    pub(crate) fn call_knowing(self, call: impl FnOnce(bool) -> isize) -> isize {
        self.within(|turn| turn.copied().unwrap_or_else(|| call(turn.is_ordered())), |bytes| *bytes)
    }

    /// The same for a call whose result is not a number of bytes.
    #[inline]
    pub(crate) fn call_for<A>(self, bytes: usize, call: impl FnOnce() -> A) -> A {
        self.within(|_| call(), |_| bytes as isize)
    }

    #[inline]
    fn within<A>(self, call: impl FnOnce(&HeldTurn) -> A, bytes_of: impl FnOnce(&A) -> isize) -> A {
        let wanted = match self {
            CallTurn::Unordered => return call(&HeldTurn::Unordered),
            CallTurn::Timed(timed) => {
                let turn = HeldTurn::Timed(timed);
                let answer = call(&turn);
                turn.end(bytes_of(&answer));
                return answer;
            }
            CallTurn::Wanted(wanted) => wanted,
        };
        let open = OpenTurn::none();
        let mut cleanup = MaybeUninit::uninit();
        // SAFETY: the C library uses both until the second call, or until this frame is left in
        // another way.
        unsafe {
            _pthread_cleanup_push(&raw mut cleanup, end, (&raw const open).cast_mut().cast());
            let turn = wanted.wait(&open);
            let answer = call(&turn);
            turn.end(bytes_of(&answer));
            _pthread_cleanup_pop(&raw mut cleanup, 0);
            answer
        }
    }
}
