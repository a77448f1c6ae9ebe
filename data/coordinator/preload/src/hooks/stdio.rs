//! Streams of the C library (`FILE`). The C library fills and flushes their buffers by internal
//! calls that cannot be intercepted. So the hooks of its functions check whether the buffer will
//! have to be filled or flushed, and wait for the turn first.
//!
//! `fscanf`, `fprintf` and the like take variable arguments that only C can pass on: their reads
//! and writes are not ordered. Nor are wide-character streams, whose buffers are not accessible.

use rustix::fd::BorrowedFd;

use libc::{FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};

use crate::closing::turn_to_close;
use crate::descriptors::{self, StorageKind, WritePath};
use crate::next_symbol::{hook, preserving_errno};
use crate::reads::turn_to_read_at;
use crate::turn::CallTurn;
use crate::writes::turn_to_write_at;

/// Size of the first read of a stream without a buffer.
const BUFFER_BYTES: usize = 4096;

/// Beginning of a stream of the GNU C library, from its public header `bits/types/struct_FILE.h`.
#[repr(C)]
struct Stream {
    flags: c_int,
    next: *const u8,
    end: *const u8,
    beginning: *const u8,
    write_beginning: *const u8,
    write_next: *const u8,
    write_end: *const u8,
    buffer: *const u8,
    buffer_end: *const u8,
}

unsafe extern "C" {
    fn flockfile(file: *mut FILE);
    fn funlockfile(file: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
}

/// Descriptor of a stream, or -1; `errno` is left alone.
pub(super) fn number_of(file: *mut FILE) -> c_int {
    if file.is_null() {
        return -1;
    }
    // SAFETY: a stream of the program.
    preserving_errno(|| unsafe { libc::fileno(file) })
}

/// Unread bytes in a stream's buffer, and the size of the buffer.
unsafe fn look(file: *mut FILE) -> (*const u8, usize, usize) {
    let stream = file.cast::<Stream>();
    // SAFETY: a stream of the program. If another thread uses it meanwhile, the values may be
    // wrong, which costs order only.
    let Stream { next, end, buffer, buffer_end, .. } = unsafe { stream.read_volatile() };
    let bytes = |from: *const u8, to: *const u8| (to as usize).saturating_sub(from as usize);
    (next, bytes(next, end), bytes(buffer, buffer_end).max(BUFFER_BYTES))
}

/// The turn to read the bytes that a read of `wanted` lacks in the buffer.
unsafe fn turn_to_take(file: *mut FILE, wanted: usize) -> CallTurn {
    // SAFETY: as the caller says.
    let (_, left, buffer_bytes) = unsafe { look(file) };
    if wanted <= left {
        CallTurn::Unordered
    } else {
        turn_to_fill(file, (wanted - left).max(buffer_bytes))
    }
}

/// The turn to read if a line of at most `most` bytes is not in the buffer.
unsafe fn turn_to_take_line(file: *mut FILE, delimiter: c_int, most: usize) -> CallTurn {
    // SAFETY: as the caller says.
    let missing_bytes = unsafe {
        flockfile(file);
        let missing_bytes = missing_line(file, delimiter, most);
        funlockfile(file);
        missing_bytes
    };
    missing_bytes.map_or(CallTurn::Unordered, |bytes| turn_to_fill(file, bytes))
}

/// The same for a stream that the caller has locked.
unsafe fn turn_to_take_line_unlocked(file: *mut FILE, delimiter: c_int, most: usize) -> CallTurn {
    // SAFETY: as the caller says.
    unsafe { missing_line(file, delimiter, most) }
        .map_or(CallTurn::Unordered, |bytes| turn_to_fill(file, bytes))
}

/// Bytes to be read for a line; `None` if the line is in the buffer.
unsafe fn missing_line(file: *mut FILE, delimiter: c_int, most: usize) -> Option<usize> {
    // SAFETY: a stream of the program.
    let (next, left, buffer_bytes) = unsafe { look(file) };
    // SAFETY: `left` bytes are there.
    let is_there = || left > 0 && !unsafe { libc::memchr(next.cast(), delimiter, left) }.is_null();
    (left < most && !is_there()).then_some(buffer_bytes)
}

#[cold]
fn turn_to_fill(file: *mut FILE, bytes: usize) -> CallTurn {
    let number = number_of(file);
    let Some(known) =
        descriptors::get(number).filter(|known| known.storage() != StorageKind::NotShared)
    else {
        return CallTurn::Unordered;
    };
    // SAFETY: a descriptor that is not open fails the call.
    match rustix::fs::tell(unsafe { BorrowedFd::borrow_raw(number) }) {
        Ok(position) => turn_to_read_at(number, position as i64, bytes),
        Err(_) => {
            // A pipe or a terminal.
            known.mark_not_shared();
            CallTurn::Unordered
        }
    }
}

/// The turn to flush a stream's buffer, if `bytes` more do not fit. Returns the number of flushed
/// bytes as well.
unsafe fn turn_to_put(file: *mut FILE, bytes: usize) -> (CallTurn, usize) {
    // SAFETY: as in `look`.
    let Stream { write_beginning, write_next, buffer_end, .. } =
        unsafe { file.cast::<Stream>().read_volatile() };
    let room = (buffer_end as usize).saturating_sub(write_next as usize);
    if bytes < room {
        return (CallTurn::Unordered, 0);
    }
    let all = bytes.saturating_add((write_next as usize).saturating_sub(write_beginning as usize));
    (turn_to_empty(file, all), all)
}

#[cold]
fn turn_to_empty(file: *mut FILE, bytes: usize) -> CallTurn {
    let number = number_of(file);
    let Some(known) =
        descriptors::get(number).filter(|known| known.storage() != StorageKind::NotShared)
    else {
        return CallTurn::Unordered;
    };
    if known.storage() != StorageKind::Unknown && known.writes() != WritePath::PassThrough {
        known.extend_dirty(bytes as u64);
        return CallTurn::Unordered;
    }
    // SAFETY: a descriptor that is not open fails the call.
    match rustix::fs::tell(unsafe { BorrowedFd::borrow_raw(number) }) {
        Ok(position) => turn_to_write_at(number, position as i64, bytes),
        Err(_) => {
            known.mark_not_shared();
            CallTurn::Unordered
        }
    }
}

macro_rules! puts {
    ($(
        $name:ident($($arg:ident: $type:ty),*; $file:ident $(, $rest:ident: $rest_type:ty)*)
            -> $answer:ty, $bytes:expr;
    )*) => { $(
        hook! {
            $name as next(
                $($arg: $type,)* $file: *mut FILE $(, $rest: $rest_type)*
            ) -> $answer {
                let (turn, bytes) = turn_to_put($file, $bytes);
                turn.call_for(bytes, || next($($arg,)* $file $(, $rest)*))
            }
        }
    )* };
}

puts! {
    fwrite(from: *const c_void, size: size_t, count: size_t; file) -> size_t,
        size.saturating_mul(count);
    fwrite_unlocked(from: *const c_void, size: size_t, count: size_t; file) -> size_t,
        size.saturating_mul(count);
    fputs(from: *const c_char; file) -> c_int, libc::strlen(from);
    fputs_unlocked(from: *const c_char; file) -> c_int, libc::strlen(from);
    fputc(byte: c_int; file) -> c_int, 1;
    putc(byte: c_int; file) -> c_int, 1;
    fputc_unlocked(byte: c_int; file) -> c_int, 1;
    putc_unlocked(byte: c_int; file) -> c_int, 1;
    _IO_putc(byte: c_int; file) -> c_int, 1;
    __overflow(;file, byte: c_int) -> c_int, 1;
}

macro_rules! puts_to_standard {
    ($($name:ident($arg:ident: $type:ty), $bytes:expr;)*) => { $(
        hook! { $name as next($arg: $type) -> c_int {
            let (turn, bytes) = turn_to_put((&raw const stdout).read(), $bytes);
            turn.call_for(bytes, || next($arg))
        } }
    )* };
}

puts_to_standard! {
    puts(from: *const c_char), libc::strlen(from) + 1;
    putchar(byte: c_int), 1;
    putchar_unlocked(byte: c_int), 1;
}

/// The turn to flush a stream's buffer, unless it is empty.
pub(super) unsafe fn turn_to_flush(file: *mut FILE) -> (CallTurn, usize) {
    if file.is_null() {
        return (CallTurn::Unordered, 0);
    }
    // SAFETY: as in `look`.
    let Stream { write_beginning, write_next, .. } =
        unsafe { file.cast::<Stream>().read_volatile() };
    match (write_next as usize).saturating_sub(write_beginning as usize) {
        0 => (CallTurn::Unordered, 0),
        bytes => (turn_to_empty(file, bytes), bytes),
    }
}

macro_rules! flushes {
    ($($name:ident;)*) => { $(
        hook! { $name as next(file: *mut FILE) -> c_int {
            let (turn, bytes) = turn_to_flush(file);
            turn.call_for(bytes, || next(file))
        } }
    )* };
}

flushes! {
    fflush;
    fflush_unlocked;
}

macro_rules! takes {
    ($($name:ident($($arg:ident: $type:ty),*; $file:ident) -> $answer:ty, $wanted:expr;)*) => { $(
        hook! { $name as next($($arg: $type,)* $file: *mut FILE) -> $answer {
            turn_to_take($file, $wanted).call_for(0, || next($($arg,)* $file))
        } }
    )* };
}

takes! {
    fread(into: *mut c_void, size: size_t, count: size_t; file) -> size_t,
        size.saturating_mul(count);
    fread_unlocked(into: *mut c_void, size: size_t, count: size_t; file) -> size_t,
        size.saturating_mul(count);
    __fread_chk(into: *mut c_void, room: size_t, size: size_t, count: size_t; file) -> size_t,
        size.saturating_mul(count);
    __fread_unlocked_chk(into: *mut c_void, room: size_t, size: size_t, count: size_t; file)
        -> size_t, size.saturating_mul(count);
    fgetc(;file) -> c_int, 1;
    getc(;file) -> c_int, 1;
    fgetc_unlocked(;file) -> c_int, 1;
    getc_unlocked(;file) -> c_int, 1;
    _IO_getc(;file) -> c_int, 1;
    __uflow(;file) -> c_int, 1;
    __underflow(;file) -> c_int, 1;
}

macro_rules! takes_from_standard {
    ($($name:ident;)*) => { $(
        hook! { $name as next() -> c_int {
            turn_to_take((&raw const stdin).read(), 1).call_for(0, || next())
        } }
    )* };
}

takes_from_standard! {
    getchar;
    getchar_unlocked;
}

macro_rules! takes_lines {
    ($waits:ident: $(
        $name:ident($($arg:ident: $type:ty),*; $file:ident) -> $answer:ty,
            $delimiter:expr, $most:expr;
    )*) => { $(
        hook! { $name as next($($arg: $type,)* $file: *mut FILE) -> $answer {
            $waits($file, $delimiter, $most).call_for(0, || next($($arg,)* $file))
        } }
    )* };
}

const LINE_FEED: c_int = b'\n' as c_int;

/// Largest number of bytes that `fgets` reads.
fn without_end(room: c_int) -> usize {
    usize::try_from(room).unwrap_or(0).saturating_sub(1)
}

takes_lines! { turn_to_take_line_unlocked:
    fgets_unlocked(into: *mut c_char, room: c_int; file) -> *mut c_char,
        LINE_FEED, without_end(room);
    __fgets_unlocked_chk(into: *mut c_char, all: size_t, room: c_int; file) -> *mut c_char,
        LINE_FEED, without_end(room);
}

takes_lines! { turn_to_take_line:
    fgets(into: *mut c_char, room: c_int; file) -> *mut c_char, LINE_FEED, without_end(room);
    __fgets_chk(into: *mut c_char, all: size_t, room: c_int; file) -> *mut c_char,
        LINE_FEED, without_end(room);
    getline(into: *mut *mut c_char, room: *mut size_t; file) -> ssize_t, LINE_FEED, usize::MAX;
    getdelim(into: *mut *mut c_char, room: *mut size_t, delimiter: c_int; file) -> ssize_t,
        delimiter, usize::MAX;
    __getdelim(into: *mut *mut c_char, room: *mut size_t, delimiter: c_int; file) -> ssize_t,
        delimiter, usize::MAX;
}

macro_rules! opens {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => { $(
        hook! { $name as next($($arg: $type),*) -> *mut FILE {
            let file = next($($arg),*);
            descriptors::opened(number_of(file));
            file
        } }
    )* };
}

opens! {
    fopen(path: *const c_char, mode: *const c_char);
    fopen64(path: *const c_char, mode: *const c_char);
}

macro_rules! opens_again {
    ($($name:ident;)*) => { $(
        hook! {
            $name as next(
                path: *const c_char, mode: *const c_char, file: *mut FILE
            ) -> *mut FILE {
                let turn = turn_to_close(number_of(file));
                let file = turn.call_for(0, || next(path, mode, file));
                descriptors::opened(number_of(file));
                file
            }
        }
    )* };
}

opens_again! {
    freopen;
    freopen64;
}

const _: () = assert!(size_of::<off_t>() == 8, "offsets have 64 bits");
