//! What the environment says to this library, as it was when the program began: programs change theirs, and write over it.
//!
//! The constructors of other libraries may read files before this library's own has been called. So whoever comes first looks.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Where the agent's socket is.
pub(crate) static SOCKET: Variable = Variable::of(c"EYAS_IO_AGENT");
/// The number of the class that the program's requests are of.
pub(crate) static CLASS: Variable = Variable::of(c"EYAS_IO_CLASS");
/// That the program asks for every turn.
pub(crate) static ALWAYS: Variable = Variable::of(c"EYAS_IO_ALWAYS");
/// Paths that are ordered, with a colon between them.
pub(crate) static PATHS: Variable = Variable::of(c"EYAS_IO_PATHS");

/// What the environment has under one name.
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
        // SAFETY: a string of C, which stays as it is.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    }

    #[cold]
    fn look(&self) {
        // SAFETY: the program has not begun, and changes nothing yet; what is copied is a string of C.
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
