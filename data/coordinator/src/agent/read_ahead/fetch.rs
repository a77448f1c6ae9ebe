//! Reads a window of a file into the kernel's page cache, and reports progress on the board.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use eyas_board::{CachedFile, FilePiece, PAGE_BYTES, PIECE_BYTES, ring};

/// Bytes of one read call; progress is reported after each.
const STEP_BYTES: u64 = 512 << 10;
/// Bytes of the first call, whose duration shows the cost of a seek.
const FIRST_BYTES: u64 = 64 << 10;

/// Result of reading a window.
pub(in crate::agent) struct WindowRead {
    /// Bytes that could be read.
    pub bytes: u64,
    /// Bytes and duration of the first call, unless its bytes were in memory.
    pub first: Option<(u64, Duration)>,
}

/// Reads a window. Errors are left for the programs to find.
pub(in crate::agent) fn fetch(file: &File, window: &Range<u64>, entry: &CachedFile) -> WindowRead {
    let mut room = vec![0; STEP_BYTES as usize];
    let (mut at, mut first) = (window.start, None);
    let beginning = at..window.end.min(at + FIRST_BYTES);
    let was_there = eyas_board::is_cached(file.as_fd(), &beginning).unwrap_or(false);
    let began = Instant::now();
    while at < window.end {
        let step = (window.end - at).min(if first.is_none() { FIRST_BYTES } else { STEP_BYTES });
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
    WindowRead { bytes: at - window.start, first: first.filter(|_| !was_there) }
}

/// Reports that the bytes from `from` to `to` are in memory, too.
fn tell(entry: &CachedFile, from: u64, to: u64) {
    for number in from / PIECE_BYTES..to.div_ceil(PIECE_BYTES) {
        let pages = (to - number * PIECE_BYTES).min(PIECE_BYTES) / PAGE_BYTES;
        entry.grow(number, pages);
    }
    ring(&entry.progress);
}
