//! The functions that are intercepted: the next ones of the same name in the search order of the
//! program's libraries (`RTLD_NEXT`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::loaded;

/// The next function of a name.
pub(crate) struct NextSymbol {
    name: &'static CStr,
    hash: u32,
    found: AtomicPtr<c_void>,
}

impl NextSymbol {
    pub(crate) const fn of(name: &'static CStr) -> NextSymbol {
        let hash = loaded::hash_of(name);
        NextSymbol { name, hash, found: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Address of the function, which is looked up at its first use.
    pub(crate) fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() { found } else { self.find() }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let found = loaded::find(self.name, self.hash).unwrap_or_else(|| {
            // SAFETY: the name is a C string.
            unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }
        });
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Result of a function that failed; `errno` says why.
pub(crate) trait FailureValue {
    const FAILED: Self;
}

macro_rules! answers {
    ($($type:ty = $failed:expr;)*) => { $(
        impl FailureValue for $type {
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

/// Fails a call to a function that this library has and the C library lacks.
#[cold]
pub(crate) fn missing<A: FailureValue>() -> A {
    // SAFETY: this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    A::FAILED
}

/// Runs C library code without a visible change of `errno`.
pub(crate) fn preserving_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: this thread's `errno`.
    let before = unsafe { *libc::__errno_location() };
    let done = work();
    // SAFETY: the same.
    unsafe { *libc::__errno_location() = before };
    done
}

/// Defines a function that intercepts the C library's of the same name. The body calls the latter
/// by the name after `as`.
macro_rules! hook {
    ($name:ident as $next:ident ($($arg:ident: $type:ty),* $(,)?) -> $answer:ty $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $answer {
            const BYTES: &[u8] = concat!(stringify!($name), "\0").as_bytes();
            const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(BYTES) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            static NEXT: $crate::next_symbol::NextSymbol =
                $crate::next_symbol::NextSymbol::of(NAME);
            let next = NEXT.get();
            if next.is_null() {
                return $crate::next_symbol::missing();
            }
            // SAFETY: the function of that name has this signature, up to how C passes arguments.
            let $next: unsafe extern "C" fn($($type),*) -> $answer =
                unsafe { core::mem::transmute(next) };
            // SAFETY: the caller's promises hold for the intercepted function, which gets the same
            // arguments.
            unsafe { $body }
        }
    };
}

pub(crate) use hook;
