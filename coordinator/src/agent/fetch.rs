//! Reading a window of a file into the kernel's page cache, and saying on the board how far it is.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use eyas_board::{CachedFile, FilePiece, PAGE_BYTES, PIECE_BYTES, ring};

/// What is read by one call, and told at once;
const STEP_BYTES: u64 = 512 << 10;
/// by the first, which shows what it costs to come here.
const FIRST_BYTES: u64 = 64 << 10;

/// What came of a window.
pub(super) struct Fetched {
    /// Bytes that there were.
    pub bytes: u64,
    /// The first call's bytes, and how long it took, unless they were in memory.
    pub first: Option<(u64, Duration)>,
}

/// Reads it. What cannot be read, programs are to find out by themselves: it is given up.
pub(super) fn fetch(file: &File, window: &Range<u64>, line: &CachedFile) -> Fetched {
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
                tell(line, at, at + bytes as u64);
                at += bytes as u64;
            }
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!("cannot read ahead at {at}: {error}");
                break;
            }
        }
    }
    // Whoever reads after the end, or after damage, is not to wait for it.
    for number in at / PIECE_BYTES..window.end.div_ceil(PIECE_BYTES) {
        line.grow(number, FilePiece::PAGES);
    }
    ring(&line.progress);
    Fetched { bytes: at - window.start, first: first.filter(|_| !was_there) }
}

/// Says that everything up to `to` is in memory, of which `from` was known.
fn tell(line: &CachedFile, from: u64, to: u64) {
    for number in from / PIECE_BYTES..to.div_ceil(PIECE_BYTES) {
        let pages = (to - number * PIECE_BYTES).min(PIECE_BYTES) / PAGE_BYTES;
        line.grow(number, pages);
    }
    ring(&line.progress);
}
