//! Closing descriptors.

use libc::{DIR, FILE, c_int, c_uint};

use crate::closing::turn_to_close;
use crate::hooks::stdio::{number_of, turn_to_flush};
use crate::next_symbol::hook;

/// Descriptors above this are closed without looking at them.
const MAX_CHECKED: c_uint = 1 << 16;

fn turns_to_close_all(first: c_uint, last: c_uint) {
    for descriptor in first..=last.min(MAX_CHECKED) {
        // No turn of one of them is held for all.
        turn_to_close(descriptor as c_int).call_for(0, || ());
    }
}

hook! { close as next(descriptor: c_int) -> c_int {
    turn_to_close(descriptor).call_for(0, || next(descriptor))
} }

hook! { close_range as next(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // With the flag, they are only closed at the next `exec`.
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        turns_to_close_all(first, last);
    }
    next(first, last, flags)
} }

hook! { closefrom as next(first: c_int) -> () {
    turns_to_close_all(first.max(0) as c_uint, c_uint::MAX);
    next(first)
} }

hook! { fclose as next(file: *mut FILE) -> c_int {
    // At most one of the two is a turn: bytes that pass through need no flush.
    let (flushing, bytes) = turn_to_flush(file);
    flushing.call_for(bytes, || turn_to_close(number_of(file)).call_for(0, || next(file)))
} }

hook! { closedir as next(folder: *mut DIR) -> c_int {
    if !folder.is_null() {
        turn_to_close(libc::dirfd(folder)).call_for(0, || ());
    }
    next(folder)
} }
