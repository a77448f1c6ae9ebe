//! Calls after which a descriptor is another file's. What they open is looked at when it is read.

use libc::{c_char, c_int, mode_t};

use crate::descriptors::came;
use crate::next::hook;
use crate::turn::{Turn, to_close};

macro_rules! opens {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => { $(
        hook! { $name as next($($arg: $type),*) -> c_int { came(next($($arg),*)) } }
    )* };
}

// The mode is one of the arguments that need not be there. C passes it where it would be without them, and what is found
// there if it was left out is not looked at.
opens! {
    open(path: *const c_char, flags: c_int, mode: mode_t);
    open64(path: *const c_char, flags: c_int, mode: mode_t);
    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    creat(path: *const c_char, mode: mode_t);
    creat64(path: *const c_char, mode: mode_t);
    __open_2(path: *const c_char, flags: c_int);
    __open64_2(path: *const c_char, flags: c_int);
    __openat_2(folder: c_int, path: *const c_char, flags: c_int);
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int);
    dup(descriptor: c_int);
}

hook! { dup2 as next(from: c_int, to: c_int) -> c_int {
    let turn = if from != to { to_close(to) } else { Turn::Unordered };
    turn.call_for(0, || next(from, to))
} }

hook! { dup3 as next(from: c_int, to: c_int, flags: c_int) -> c_int {
    to_close(to).call_for(0, || next(from, to, flags))
} }

macro_rules! controls {
    ($($name:ident;)*) => { $(
        // The argument may be a number, a pointer or not there: whatever it is, it is handed on.
        hook! { $name as next(descriptor: c_int, command: c_int, argument: usize) -> c_int {
            let answer = next(descriptor, command, argument);
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => came(answer),
                // Whether it goes past the page cache may be another matter now.
                libc::F_SETFL => {
                    came(descriptor);
                    answer
                }
                _ => answer,
            }
        } }
    )* };
}

controls! {
    fcntl;
    fcntl64;
}
