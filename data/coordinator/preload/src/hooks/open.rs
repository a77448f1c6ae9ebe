//! Calls after which a descriptor refers to another file. The file is looked at when it is read.

use libc::{c_char, c_int, mode_t};

use crate::closing::turn_to_close;
use crate::descriptors::opened;
use crate::next_symbol::hook;
use crate::turn::CallTurn;

macro_rules! opens {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => { $(
        hook! { $name as next($($arg: $type),*) -> c_int { opened(next($($arg),*)) } }
    )* };
}

// The mode is an optional argument. C passes it in the same place as a fixed one; if it is missing,
// the kernel ignores what is found there.
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
    let turn = if from != to { turn_to_close(to) } else { CallTurn::Unordered };
    turn.call_for(0, || next(from, to))
} }

hook! { dup3 as next(from: c_int, to: c_int, flags: c_int) -> c_int {
    turn_to_close(to).call_for(0, || next(from, to, flags))
} }

macro_rules! controls {
    ($($name:ident;)*) => { $(
        // The argument may be a number, a pointer or missing; it is passed on unchanged.
        hook! { $name as next(descriptor: c_int, command: c_int, argument: usize) -> c_int {
            let answer = next(descriptor, command, argument);
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => opened(answer),
                // The new flags may change whether the descriptor bypasses the page cache.
                libc::F_SETFL => {
                    opened(descriptor);
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
