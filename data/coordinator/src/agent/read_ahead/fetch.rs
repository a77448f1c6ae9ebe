//! Reads a window of a file into the kernel's page cache, and reports progress on the board.

use std::fs::File;
use std::num::NonZero;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use eyas_board::{CachedFile, FilePiece, PAGE_BYTES, PIECE_BYTES, ring};
use rustix::fs::{Advice, fadvise};

/// Bytes of one read call; progress is reported after each.
const STEP_BYTES: u64 = 512 << 10;
/// Bytes of the turn that the kernel is asked for in advance. FUSE drops advice while it has some
/// ten requests under way.
const AHEAD_BYTES: u64 = 1 << 20;
/// The kernel heeds an advice for at most as many bytes as its own read-ahead has: by default, this
/// many.
const ADVICE_BYTES: u64 = 128 << 10;
/// Bytes of the first call, whose duration shows the cost of a seek.
const FIRST_BYTES: u64 = 64 << 10;

/// Result of reading a window.
pub(crate) struct WindowRead {
    /// Bytes that could be read.
    pub bytes: u64,
    /// Bytes and duration of the first call, unless its bytes were in memory.
    pub first: Option<(u64, Duration)>,
}

/// A file whose windows are to be read. The kernel reads nothing that is not asked for: what
/// follows a window may be another node's turn, and to read it here costs the storage a seek.
pub(crate) fn without_kernel_read_ahead(file: File) -> File {
    // Where the file system has no such advice, some bytes are read twice.
    let _ = fadvise(&file, 0, None, Advice::Random);
    file
}

/// Reads a window. Errors are left for the programs to find. The windows that follow it in the same
/// turn end at `turn_end`. `is_timed`: whether the duration of the first call is wanted.
pub(crate) fn fetch(
    file: &File,
    window: &Range<u64>,
    turn_end: u64,
    entry: &CachedFile,
    is_timed: bool,
) -> WindowRead {
    let mut room = vec![0; STEP_BYTES as usize];
    let (mut at, mut first) = (window.start, None);
    let beginning = at..window.end.min(at + FIRST_BYTES);
    let was_there = eyas_board::is_cached(file.as_fd(), &beginning).unwrap_or(false);
    let began = Instant::now();
    let mut asked_for = at;
    while at < window.end {
        let is_first = is_timed && first.is_none();
        if !is_first {
            let ahead = turn_end.min(at + AHEAD_BYTES);
            ask_for(file, asked_for.max(at)..ahead);
            asked_for = ahead.max(asked_for);
        }
        let step = (window.end - at).min(if is_first { FIRST_BYTES } else { STEP_BYTES });
        match file.read_at(&mut room[..step as usize], at) {
            Ok(bytes @ 1..) => {
                first.get_or_insert_with(|| (bytes as u64, began.elapsed()));
                tell(entry, at, at + bytes as u64);
                at += bytes as u64;
            }
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!("cannot read ahead at offset {at}: {error}");
                break;
            }
        }
    }
    // Programs must not wait for bytes after the end of the file or after an error.
    for number in at / PIECE_BYTES..window.end.div_ceil(PIECE_BYTES) {
        entry.grow(number, FilePiece::PAGES);
    }
    ring(&entry.progress);
    WindowRead { bytes: at - window.start, first: first.filter(|_| is_timed && !was_there) }
}

/// Lets the kernel begin to read all of these bytes, in the order of their offsets.
fn ask_for(file: &File, bytes: Range<u64>) {
    let Range { start, end } = bytes;
    for at in (start..end).step_by(ADVICE_BYTES as usize) {
        let length = NonZero::new(ADVICE_BYTES.min(end - at));
        let _ = fadvise(file, at, length, Advice::WillNeed);
    }
}

/// Reports that the bytes from `from` to `to` are in memory, too.
fn tell(entry: &CachedFile, from: u64, to: u64) {
    for number in from / PIECE_BYTES..to.div_ceil(PIECE_BYTES) {
        let pages = (to - number * PIECE_BYTES).min(PIECE_BYTES) / PAGE_BYTES;
        entry.grow(number, pages);
    }
    ring(&entry.progress);
}
