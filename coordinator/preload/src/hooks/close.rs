//! Closing.

use libc::{DIR, FILE, c_int, c_uint};

use crate::hooks::stdio::{number_of, to_flush};
use crate::next::hook;
use crate::turn::to_close;

/// More descriptors than this are closed at once without a look at each.
const MOST_LOOKED_AT: c_uint = 1 << 16;

fn to_close_all(first: c_uint, last: c_uint) {
    for descriptor in first..=last.min(MOST_LOOKED_AT) {
        // Not even the turn of one of them is held for all.
        to_close(descriptor as c_int).end(0);
    }
}

hook! { close as next(descriptor: c_int) -> c_int {
    to_close(descriptor).call_for(0, || next(descriptor))
} }

hook! { close_range as next(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // With the flag, they are closed at the next `exec` only.
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        to_close_all(first, last);
    }
    next(first, last, flags)
} }

hook! { closefrom as next(first: c_int) -> () {
    to_close_all(first.max(0) as c_uint, c_uint::MAX);
    next(first)
} }

hook! { fclose as next(file: *mut FILE) -> c_int {
    // Of the two, one at most is a turn: what passes through need not be brought.
    let (flushing, bytes) = to_flush(file);
    let closing = to_close(number_of(file));
    closing.call_for(0, || flushing.call_for(bytes, || next(file)))
} }

hook! { closedir as next(folder: *mut DIR) -> c_int {
    if !folder.is_null() {
        to_close(libc::dirfd(folder)).end(0);
    }
    next(folder)
} }
