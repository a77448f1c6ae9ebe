//! Environment variables of this library, as they were when the program began: programs change and
//! overwrite their environment.
//!
//! Constructors of other libraries may read files before this library's own constructor has run, so
//! the first use looks a variable up.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Path of the agent's socket.
pub(crate) static SOCKET: Variable = Variable::of(c"EYAS_IO_AGENT");
/// Number of the program's job class.
pub(crate) static CLASS: Variable = Variable::of(c"EYAS_IO_CLASS_NUMBER");
/// Set if the program asks for every turn.
pub(crate) static ALWAYS: Variable = Variable::of(c"EYAS_IO_ALWAYS");
/// Ordered paths, separated by colons.
pub(crate) static PATHS: Variable = Variable::of(c"EYAS_IO_PATHS");

/// Value of one variable.
pub(crate) struct Variable {
    name: &'static CStr,
    value: AtomicPtr<c_char>,
    is_known: AtomicBool,
}

impl Variable {
    const fn of(name: &'static CStr) -> Variable {
        Variable { name, value: AtomicPtr::new(ptr::null_mut()), is_known: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self) -> Option<&'static CStr> {
        if !self.is_known.load(Ordering::Acquire) {
            self.look();
        }
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: a C string that never changes.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    }

    #[cold]
    fn look(&self) {
        // SAFETY: the program has not begun to change its environment; a C string is copied.
        let copy = unsafe {
            let value = libc::getenv(self.name.as_ptr());
            if value.is_null() { value } else { libc::strdup(value) }
        };
        self.value.store(copy, Ordering::Relaxed);
        self.is_known.store(true, Ordering::Release);
    }
}

extern "C" fn look_at_all() {
    for variable in [&SOCKET, &CLASS, &ALWAYS, &PATHS] {
        variable.get();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = look_at_all;
