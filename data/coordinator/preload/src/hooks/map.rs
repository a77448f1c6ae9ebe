//! Mapping files. Small mappings are read into memory first; pages of larger ones are read by the
//! kernel when they are touched.

use libc::{c_int, c_void, off_t, off64_t, size_t};

use crate::next_symbol::hook;
use crate::reads::turn_to_map;

macro_rules! maps {
    ($($name:ident($offset:ty);)*) => { $(
        hook! {
            $name as next(
                place: *mut c_void, length: size_t, protection: c_int, flags: c_int,
                descriptor: c_int, offset: $offset
            ) -> *mut c_void {
                let turn = turn_to_map(descriptor, offset, length);
                turn.call_for(0, || next(place, length, protection, flags, descriptor, offset))
            }
        }
    )* };
}

maps! {
    mmap(off_t);
    mmap64(off64_t);
}
