//! Decides what is read ahead of one file: where the programs of a node, taken together, read it
//! sequentially.
//!
//! Each of several processes that share a file may read with gaps, and all of them together without
//! any (io-coordination §2). So reads are matched to streams of the file, not to processes: a read
//! close to the end of a stream continues the stream, whichever process makes it. Windows double in
//! size. A stream that reaches the beginning of another absorbs it; processes that start in any
//! order make several streams first. One window is read ahead, and more only where the storage
//! serves several at a time. A read that belongs to no stream is not read ahead, so random
//! readers pay nothing.
//!
//! This module is pure: it is told about reads, and returns windows.

use std::collections::VecDeque;
use std::ops::Range;

/// Windows begin and end at multiples of this, except at the end of the file.
pub(super) const UNIT_BYTES: u64 = eyas_board::PIECE_BYTES;
/// Largest window.
pub(super) const MAX_WINDOW_BYTES: u64 = 8 << 20;
/// Streams of a file; of more, the one that was continued longest ago is forgotten.
const MAX_STREAMS: usize = 32;
/// Single reads that are remembered until another read shows that they begin a stream.
const MAX_ALONE: usize = 16;
/// A stream remembers this much of what it has read ahead. A program that comes later, or again,
/// begins another stream.
const MEMORY_BYTES: u64 = 64 << 20;
/// A read is close to another one if at most this many of its own lengths lie between them.
const CLOSE_LENGTHS: u64 = 16;

/// What to do about a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StreamPlan {
    /// The read belongs to no stream.
    Alone,
    /// The read is covered by a stream, for which these windows are to be read in this order.
    Stream(Vec<Range<u64>>),
}

/// Streams of one file.
#[derive(Default)]
pub(super) struct Streams {
    /// The most recently continued one comes last.
    streams: VecDeque<Stream>,
    alone: VecDeque<Range<u64>>,
}

struct Stream {
    /// Beginning of what was read ahead, as far as it is remembered.
    start: u64,
    /// End of what was read ahead.
    end: u64,
    /// Beginnings of windows that no program has entered.
    ahead: VecDeque<u64>,
    /// Size of the next window.
    window: u64,
}

impl Streams {
    /// A program is about to read these bytes of a file with `file_bytes` bytes.
    pub(super) fn read(&mut self, bytes: Range<u64>, file_bytes: u64) -> StreamPlan {
        if bytes.end - bytes.start > MAX_WINDOW_BYTES {
            // The read itself is large enough.
            return StreamPlan::Alone;
        }
        if let Some(place) =
            self.streams.iter().position(|stream| stream.has(&bytes) || stream.is_before(&bytes))
        {
            let mut stream = self.streams.remove(place).expect("it was found there");
            let mut windows = Vec::new();
            while stream.end < bytes.end {
                windows.extend(self.advance(&mut stream, file_bytes));
            }
            self.streams.push_back(stream);
            return StreamPlan::Stream(windows);
        }
        let close =
            self.alone.iter().position(|other| is_close(other, &bytes) || is_close(&bytes, other));
        let Some(place) = close else {
            self.alone.push_back(bytes);
            if self.alone.len() > MAX_ALONE {
                self.alone.pop_front();
            }
            return StreamPlan::Alone;
        };
        let other = self.alone.remove(place).expect("it was found there");
        let start = other.start.min(bytes.start) / UNIT_BYTES * UNIT_BYTES;
        self.streams.push_back(Stream {
            start,
            end: start,
            ahead: VecDeque::new(),
            window: UNIT_BYTES,
        });
        if self.streams.len() > MAX_STREAMS {
            self.streams.pop_front();
        }
        self.read(bytes, file_bytes)
    }

    /// A program has entered the window at this offset. Returns the windows to be read so that
    /// `ahead` of them lie ahead.
    pub(super) fn entered(
        &mut self,
        offset: u64,
        file_bytes: u64,
        ahead: usize,
    ) -> Vec<Range<u64>> {
        let Some(place) = self.streams.iter().position(|stream| stream.ahead.contains(&offset))
        else {
            return Vec::new();
        };
        let mut stream = self.streams.remove(place).expect("it was found there");
        stream.ahead.retain(|start| *start > offset);
        self.top_up(stream, file_bytes, ahead)
    }

    /// The window at this offset is about to be read. Returns the windows to be read so that
    /// `ahead` of them lie ahead.
    pub(super) fn begun(&mut self, offset: u64, file_bytes: u64, ahead: usize) -> Vec<Range<u64>> {
        let Some(place) =
            self.streams.iter().position(|stream| (stream.start..stream.end).contains(&offset))
        else {
            return Vec::new();
        };
        let stream = self.streams.remove(place).expect("it was found there");
        self.top_up(stream, file_bytes, ahead)
    }

    /// Beginnings of windows that no program has entered.
    pub(super) fn ahead(&self) -> impl Iterator<Item = u64> + '_ {
        self.streams.iter().flat_map(|stream| stream.ahead.iter().copied())
    }

    /// Advances a stream that was removed from the others, and puts it back.
    fn top_up(&mut self, mut stream: Stream, file_bytes: u64, ahead: usize) -> Vec<Range<u64>> {
        let mut windows = Vec::new();
        while stream.ahead.len() < ahead && stream.end < file_bytes {
            windows.extend(self.advance(&mut stream, file_bytes));
        }
        self.streams.push_back(stream);
        windows
    }

    /// Next window of a stream that was removed from the others. `None`: it has absorbed the stream
    /// that begins at its end.
    fn advance(&mut self, stream: &mut Stream, file_bytes: u64) -> Option<Range<u64>> {
        let reach = stream.end..stream.end + stream.window;
        let others = self.streams.iter().enumerate().map(|(place, other)| (other.start, place));
        match others.filter(|(start, _)| reach.contains(start)).min() {
            Some((start, place)) if start == stream.end => {
                stream.take_in(&self.streams.remove(place).expect("it was found there"));
                None
            }
            Some((start, _)) => Some(stream.advance(start, file_bytes)),
            None => Some(stream.advance(reach.end, file_bytes)),
        }
    }
}

impl Stream {
    fn has(&self, bytes: &Range<u64>) -> bool {
        self.start <= bytes.start && bytes.end <= self.end
    }

    /// Whether the read continues the stream.
    fn is_before(&self, bytes: &Range<u64>) -> bool {
        self.start <= bytes.start && is_close(&(self.start..self.end), bytes)
    }

    /// Absorbs a stream that begins where this one ends.
    fn take_in(&mut self, other: &Stream) {
        self.end = other.end;
        self.ahead.extend(&other.ahead);
        self.window = self.window.max(other.window);
    }

    /// Next window, up to `end` or the end of the file.
    fn advance(&mut self, end: u64, file_bytes: u64) -> Range<u64> {
        let start = self.end;
        self.ahead.push_back(start);
        self.end = end;
        self.window = (self.window * 2).min(MAX_WINDOW_BYTES);
        self.start = self.start.max(self.end.saturating_sub(MEMORY_BYTES));
        start..self.end.min(file_bytes)
    }
}

/// Whether `next` begins where `before` ends, or almost.
fn is_close(before: &Range<u64>, next: &Range<u64>) -> bool {
    let gap = (next.end - next.start) * CLOSE_LENGTHS;
    next.end > before.end && next.start <= before.end + gap
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const FILE: u64 = 1 << 30;

    /// A single window is to be read.
    fn one(window: Range<u64>) -> StreamPlan {
        StreamPlan::Stream(only(window))
    }

    fn only(window: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(window).collect()
    }

    #[test]
    fn the_first_read_is_alone_and_the_second_begins_a_stream() {
        let mut streams = Streams::default();
        assert_eq!(streams.read(0..4 * KIB, FILE), StreamPlan::Alone);
        assert_eq!(streams.read(4 * KIB..8 * KIB, FILE), one(0..MIB));
        assert_eq!(
            streams.read(8 * KIB..12 * KIB, FILE),
            StreamPlan::Stream(vec![]),
            "it is fetched already"
        );
    }

    #[test]
    fn processes_that_share_a_file_are_one_stream() {
        let mut streams = Streams::default();
        let block = |number: u64| number * 4 * KIB..(number + 1) * 4 * KIB;
        assert_eq!(streams.read(block(5), FILE), StreamPlan::Alone);
        assert_eq!(streams.read(block(0), FILE), one(0..MIB));
        for number in [7, 3, 1, 2, 4, 6, 13, 8] {
            assert_eq!(streams.read(block(number), FILE), StreamPlan::Stream(vec![]));
        }
    }

    #[test]
    fn windows_double_as_they_are_entered() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * KIB, FILE);
        let _ = streams.read(4 * KIB..8 * KIB, FILE);
        let mut entered = 0;
        let mut sizes = Vec::new();
        for _ in 0..6 {
            let [window] = &streams.entered(entered, FILE, 1)[..] else { panic!("one is fetched") };
            assert_eq!(streams.entered(entered, FILE, 1), [], "one ahead is enough");
            sizes.push((window.end - window.start) / MIB);
            entered = window.start;
        }
        assert_eq!(sizes, [2, 4, 8, 8, 8, 8]);
    }

    #[test]
    fn more_are_ahead_where_several_are_read_at_a_time() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * KIB, FILE);
        let _ = streams.read(4 * KIB..8 * KIB, FILE);
        assert_eq!(streams.begun(0, FILE, 1), [], "one is");
        assert_eq!(streams.begun(0, FILE, 3), [MIB..3 * MIB, 3 * MIB..7 * MIB]);
        assert_eq!(streams.entered(MIB, FILE, 3), [7 * MIB..15 * MIB, 15 * MIB..23 * MIB]);
        assert_eq!(streams.entered(3 * MIB, FILE, 1), [], "fewer are enough now");
        assert!(streams.ahead().eq([7 * MIB, 15 * MIB]));
        assert_eq!(streams.begun(900 * MIB, FILE, 3), [], "it is of no stream");
    }

    #[test]
    fn a_stream_ends_with_its_file() {
        let mut streams = Streams::default();
        let file = 2 * MIB + 5;
        let _ = streams.read(0..4 * KIB, file);
        assert_eq!(streams.read(4 * KIB..8 * KIB, file), one(0..MIB));
        assert_eq!(streams.entered(0, file, 1), only(MIB..file));
        assert_eq!(streams.entered(MIB, file, 1), []);
        assert_eq!(streams.read(2 * MIB..file, file), StreamPlan::Stream(vec![]));
    }

    #[test]
    fn reads_at_random_stay_alone() {
        let mut streams = Streams::default();
        for number in 0..1000_u64 {
            let start = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (FILE - MIB);
            assert_eq!(
                streams.read(start..start + 4 * KIB, FILE),
                StreamPlan::Alone,
                "read {number} at {start}"
            );
        }
    }

    #[test]
    fn parts_of_a_file_are_streams_of_their_own() {
        let mut streams = Streams::default();
        for part in 0..8 {
            let start = part * (FILE / 8);
            assert_eq!(streams.read(start..start + 64 * KIB, FILE), StreamPlan::Alone);
        }
        for part in 0..8 {
            let start = part * (FILE / 8);
            let second = start + 64 * KIB..start + 128 * KIB;
            assert_eq!(streams.read(second, FILE), one(start..start + MIB));
        }
    }

    #[test]
    fn a_stream_that_comes_to_another_is_one_with_it() {
        let mut streams = Streams::default();
        let block = |number: u64| number * 4 * MIB..(number + 1) * 4 * MIB;
        let windows = |borders: &[u64]| {
            StreamPlan::Stream(borders.windows(2).map(|at| at[0] * MIB..at[1] * MIB).collect())
        };
        assert_eq!(streams.read(block(3), FILE), StreamPlan::Alone);
        assert_eq!(streams.read(block(5), FILE), windows(&[12, 13, 15, 19, 27]));
        assert_eq!(streams.read(block(0), FILE), StreamPlan::Alone);
        assert_eq!(streams.read(block(1), FILE), windows(&[0, 1, 3, 7, 12]));
        assert_eq!(streams.entered(7 * MIB, FILE, 1), [], "what comes then is fetched");
        assert_eq!(streams.ahead().collect::<Vec<_>>(), [12, 13, 15, 19].map(|start| start * MIB));
        assert_eq!(streams.entered(19 * MIB, FILE, 1), only(27 * MIB..35 * MIB));
        assert_eq!(streams.read(block(2), FILE), StreamPlan::Stream(vec![]));
    }

    #[test]
    fn a_call_that_is_large_enough_is_alone() {
        let mut streams = Streams::default();
        let _ = streams.read(0..8 * KIB, FILE);
        assert_eq!(streams.read(8 * KIB..FILE, FILE), StreamPlan::Alone);
    }

    #[test]
    fn a_call_larger_than_a_window_is_fetched_in_several() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * MIB, FILE);
        let windows = vec![0..MIB, MIB..3 * MIB, 3 * MIB..7 * MIB, 7 * MIB..15 * MIB];
        assert_eq!(streams.read(4 * MIB..8 * MIB, FILE), StreamPlan::Stream(windows));
    }

    #[test]
    fn a_second_read_from_the_beginning_is_another_stream() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * KIB, FILE);
        let _ = streams.read(4 * KIB..8 * KIB, FILE);
        let mut entered = 0;
        while entered < 200 * MIB {
            entered = streams.entered(entered, FILE, 1)[0].start;
        }
        assert_eq!(streams.read(0..4 * KIB, FILE), StreamPlan::Alone);
        assert_eq!(streams.read(4 * KIB..8 * KIB, FILE), one(0..MIB));
    }
}
