//! The functions that ours stand before: the next of the same name in the order in which the program's libraries are searched.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn of(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Where it is. It is looked for when the library is loaded, since that may allocate; or here, if the program's own
    /// constructors come first.
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() { found } else { self.find() }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name is a string of C.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }

    /// Looks for it ahead of its first call.
    pub(crate) fn prepare(&self) {
        self.find();
    }
}

/// What a function answers that cannot do anything; `errno` says why.
pub(crate) trait Answer {
    const FAILED: Self;
}

macro_rules! answers {
    ($($type:ty = $failed:expr;)*) => { $(
        impl Answer for $type {
            const FAILED: Self = $failed;
        }
    )* };
}

answers! {
    c_int = -1;
    i64 = -1;
    isize = -1;
    usize = 0;
    () = ();
    *mut libc::FILE = ptr::null_mut();
    *mut c_char = ptr::null_mut();
    *mut c_void = libc::MAP_FAILED;
}

/// What the program finds there when the C library has no function of a name, and it has found this library's.
#[cold]
pub(crate) fn missing<A: Answer>() -> A {
    // SAFETY: this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    A::FAILED
}

/// Does something by the C library that the program is not to see fail.
pub(crate) fn with_errno_kept<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: this thread's `errno`.
    let before = unsafe { *libc::__errno_location() };
    let done = work();
    // SAFETY: the same.
    unsafe { *libc::__errno_location() = before };
    done
}

/// Defines a function that stands before the C library's of the same name, which the body knows by the name after `as`.
macro_rules! hook {
    ($name:ident as $next:ident ($($arg:ident: $type:ty),* $(,)?) -> $answer:ty $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $answer {
            const NAME: &core::ffi::CStr =
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                };
            static NEXT: $crate::next::Next = $crate::next::Next::of(NAME);
            extern "C" fn prepare() {
                NEXT.prepare();
            }
            #[used]
            #[unsafe(link_section = ".init_array")]
            static AT_LOAD: extern "C" fn() = prepare;
            let next = NEXT.get();
            if next.is_null() {
                return $crate::next::missing();
            }
            // SAFETY: the function of that name has this signature, up to how C passes arguments.
            let $next: unsafe extern "C" fn($($type),*) -> $answer = unsafe { core::mem::transmute(next) };
            // SAFETY: what the caller promised holds for the function that is called with the same arguments.
            unsafe { $body }
        }
    };
}

pub(crate) use hook;
