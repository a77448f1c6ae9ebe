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
//! Where several nodes share a file, the programs of one node may skip whole units, which other
//! nodes read. Such a stream is *sparse*: it is not read ahead, and its reads are ordered one by
//! one. Example: with blocks of 1 MiB and two programs on each of four nodes, a node needs two
//! units of eight. Units that the node itself has read from the storage do not count as skipped.
//!
//! This module is pure: it is told about reads, and returns windows.

use std::collections::{BTreeSet, VecDeque};
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
/// Whether a stream is sparse is judged by this many units of it.
const JUDGED_UNITS: u64 = 16;
/// They end this many units before the furthest one that was read: slower programs may still read
/// what comes later.
const LAG_UNITS: u64 = 16;
/// A stream becomes sparse if at most this many of the judged units were read, and is so until at
/// least `DENSE_UNITS` are.
const SPARSE_UNITS: usize = 12;
const DENSE_UNITS: usize = 14;

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
    /// Which units are read, if other nodes may read the rest.
    units: Option<StreamUnits>,
}

/// Which units of a stream the programs of the node read.
struct StreamUnits {
    /// The first unit.
    first: u64,
    /// Units that were read, from the judged ones on.
    read: BTreeSet<u64>,
    /// Units of windows that no program has entered.
    announced: BTreeSet<u64>,
    /// Units that this node has read from the storage. Programs may read them from the page cache
    /// without telling the agent.
    here: BTreeSet<u64>,
    is_sparse: bool,
}

impl Streams {
    /// A program is about to read these bytes of a file with `file_bytes` bytes. `is_shared`:
    /// whether programs of other nodes may read parts of the same stream.
    pub(super) fn read(
        &mut self,
        bytes: Range<u64>,
        file_bytes: u64,
        is_shared: bool,
    ) -> StreamPlan {
        if bytes.end - bytes.start > MAX_WINDOW_BYTES {
            // The read itself is large enough.
            return StreamPlan::Alone;
        }
        if let Some(place) =
            self.streams.iter().position(|stream| stream.has(&bytes) || stream.is_before(&bytes))
        {
            let mut stream = self.streams.remove(place).expect("it was found there");
            let mut windows = Vec::new();
            if stream.is_sparse_after(&bytes, is_shared) {
                stream.skip_to(bytes.end);
            }
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
            units: None,
        });
        if self.streams.len() > MAX_STREAMS {
            self.streams.pop_front();
        }
        self.read(bytes, file_bytes, is_shared)
    }

    /// A program has entered the window at this offset, or the unit there if the stream is shared.
    /// Returns the windows to be read so that `ahead` of them lie ahead.
    pub(super) fn entered(
        &mut self,
        offset: u64,
        file_bytes: u64,
        ahead: usize,
    ) -> Vec<Range<u64>> {
        let Some(place) = self.streams.iter().position(|stream| stream.is_announced(offset)) else {
            return Vec::new();
        };
        let mut stream = self.streams.remove(place).expect("it was found there");
        stream.ahead.retain(|start| *start > offset);
        if let Some(units) = &mut stream.units {
            units.record_read(&(offset..offset + 1));
        }
        self.top_up(stream, file_bytes, ahead)
    }

    /// This window is about to be read. Returns the windows to be read so that `ahead` of them lie
    /// ahead; none if `ahead` is 1.
    pub(super) fn begun(
        &mut self,
        window: &Range<u64>,
        file_bytes: u64,
        ahead: usize,
    ) -> Vec<Range<u64>> {
        let is_of = |stream: &Stream| (stream.start..stream.end).contains(&window.start);
        let Some(place) = self.streams.iter().position(is_of) else { return Vec::new() };
        if let Some(units) = &mut self.streams[place].units {
            units.here.extend(units_of(window));
        }
        if ahead == 1 {
            return Vec::new();
        }
        let stream = self.streams.remove(place).expect("it was found there");
        self.top_up(stream, file_bytes, ahead)
    }

    /// Beginnings of windows, and of units of shared streams, that no program has entered.
    pub(super) fn announced(&self) -> impl Iterator<Item = u64> + '_ {
        let units = self.streams.iter().flat_map(|stream| &stream.units);
        let windows = self.streams.iter().flat_map(|stream| stream.ahead.iter().copied());
        units.flat_map(StreamUnits::announced).chain(windows)
    }

    /// Advances a stream that was removed from the others, and puts it back.
    fn top_up(&mut self, mut stream: Stream, file_bytes: u64, ahead: usize) -> Vec<Range<u64>> {
        let mut windows = Vec::new();
        let is_sparse = stream.units.as_ref().is_some_and(|units| units.is_sparse);
        while !is_sparse && stream.ahead.len() < ahead && stream.end < file_bytes {
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
        if let (Some(units), Some(others)) = (&mut self.units, &other.units) {
            units.read.extend(&others.read);
            units.announced.extend(&others.announced);
            units.here.extend(&others.here);
        }
    }

    /// Next window, up to `end` or the end of the file.
    fn advance(&mut self, end: u64, file_bytes: u64) -> Range<u64> {
        let start = self.end;
        self.ahead.push_back(start);
        self.window = (self.window * 2).min(MAX_WINDOW_BYTES);
        self.extend(end);
        let window = start..self.end.min(file_bytes);
        if let Some(units) = &mut self.units {
            units.announced.extend(units_of(&window));
        }
        window
    }

    /// A sparse stream ends after this offset. Nothing is read ahead.
    fn skip_to(&mut self, offset: u64) {
        self.ahead.clear();
        self.extend(offset.next_multiple_of(UNIT_BYTES).max(self.end));
    }

    fn extend(&mut self, end: u64) {
        self.end = end;
        self.start = self.start.max(self.end.saturating_sub(MEMORY_BYTES));
    }

    /// Whether the agent waits to hear that a program enters a window or unit at this offset.
    fn is_announced(&self, offset: u64) -> bool {
        let is_unit = |units: &StreamUnits| units.announced.contains(&(offset / UNIT_BYTES));
        self.ahead.contains(&offset) || self.units.as_ref().is_some_and(is_unit)
    }

    /// Whether the stream is sparse now that these bytes are read.
    fn is_sparse_after(&mut self, bytes: &Range<u64>, is_shared: bool) -> bool {
        if !is_shared {
            self.units = None;
            return false;
        }
        let first = self.end.min(bytes.start) / UNIT_BYTES;
        let units = self.units.get_or_insert_with(|| StreamUnits {
            first,
            read: BTreeSet::new(),
            announced: BTreeSet::new(),
            here: BTreeSet::new(),
            is_sparse: false,
        });
        units.record_read(bytes);
        units.is_sparse
    }
}

impl StreamUnits {
    /// Beginnings of the units that no program has entered.
    fn announced(&self) -> impl Iterator<Item = u64> + '_ {
        self.announced.iter().map(|unit| unit * UNIT_BYTES)
    }

    /// These bytes are read.
    fn record_read(&mut self, bytes: &Range<u64>) {
        for unit in units_of(bytes) {
            self.read.insert(unit);
            self.announced.remove(&unit);
        }
        let furthest = self.read.last().copied().unwrap_or_default();
        let Some(judged) = furthest.checked_sub(LAG_UNITS + JUDGED_UNITS) else { return };
        self.read = self.read.split_off(&judged);
        self.announced = self.announced.split_off(&judged);
        self.here = self.here.split_off(&judged);
        if judged < self.first {
            return;
        }
        let is_read = |unit: &u64| self.read.contains(unit) || self.here.contains(unit);
        let read = (judged..judged + JUDGED_UNITS).filter(is_read).count();
        self.is_sparse = if self.is_sparse { read < DENSE_UNITS } else { read <= SPARSE_UNITS };
    }
}

/// Numbers of the units that some bytes touch.
fn units_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / UNIT_BYTES..bytes.end.div_ceil(UNIT_BYTES)
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
        assert_eq!(streams.read(0..4 * KIB, FILE, false), StreamPlan::Alone);
        assert_eq!(streams.read(4 * KIB..8 * KIB, FILE, false), one(0..MIB));
        assert_eq!(
            streams.read(8 * KIB..12 * KIB, FILE, false),
            StreamPlan::Stream(vec![]),
            "it is fetched already"
        );
    }

    #[test]
    fn processes_that_share_a_file_are_one_stream() {
        let mut streams = Streams::default();
        let block = |number: u64| number * 4 * KIB..(number + 1) * 4 * KIB;
        assert_eq!(streams.read(block(5), FILE, false), StreamPlan::Alone);
        assert_eq!(streams.read(block(0), FILE, false), one(0..MIB));
        for number in [7, 3, 1, 2, 4, 6, 13, 8] {
            assert_eq!(streams.read(block(number), FILE, false), StreamPlan::Stream(vec![]));
        }
    }

    #[test]
    fn windows_double_as_they_are_entered() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * KIB, FILE, false);
        let _ = streams.read(4 * KIB..8 * KIB, FILE, false);
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
        let _ = streams.read(0..4 * KIB, FILE, false);
        let _ = streams.read(4 * KIB..8 * KIB, FILE, false);
        assert_eq!(streams.begun(&(0..MIB), FILE, 1), [], "one is");
        assert_eq!(streams.begun(&(0..MIB), FILE, 3), [MIB..3 * MIB, 3 * MIB..7 * MIB]);
        assert_eq!(streams.entered(MIB, FILE, 3), [7 * MIB..15 * MIB, 15 * MIB..23 * MIB]);
        assert_eq!(streams.entered(3 * MIB, FILE, 1), [], "fewer are enough now");
        assert!(streams.announced().eq([7 * MIB, 15 * MIB]));
        assert_eq!(streams.begun(&(900 * MIB..901 * MIB), FILE, 3), [], "it is of no stream");
    }

    #[test]
    fn a_stream_ends_with_its_file() {
        let mut streams = Streams::default();
        let file = 2 * MIB + 5;
        let _ = streams.read(0..4 * KIB, file, false);
        assert_eq!(streams.read(4 * KIB..8 * KIB, file, false), one(0..MIB));
        assert_eq!(streams.entered(0, file, 1), only(MIB..file));
        assert_eq!(streams.entered(MIB, file, 1), []);
        assert_eq!(streams.read(2 * MIB..file, file, false), StreamPlan::Stream(vec![]));
    }

    #[test]
    fn reads_at_random_stay_alone() {
        let mut streams = Streams::default();
        for number in 0..1000_u64 {
            let start = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (FILE - MIB);
            assert_eq!(
                streams.read(start..start + 4 * KIB, FILE, false),
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
            assert_eq!(streams.read(start..start + 64 * KIB, FILE, false), StreamPlan::Alone);
        }
        for part in 0..8 {
            let start = part * (FILE / 8);
            let second = start + 64 * KIB..start + 128 * KIB;
            assert_eq!(streams.read(second, FILE, false), one(start..start + MIB));
        }
    }

    #[test]
    fn a_stream_that_comes_to_another_is_one_with_it() {
        let mut streams = Streams::default();
        let block = |number: u64| number * 4 * MIB..(number + 1) * 4 * MIB;
        let windows = |borders: &[u64]| {
            StreamPlan::Stream(borders.windows(2).map(|at| at[0] * MIB..at[1] * MIB).collect())
        };
        assert_eq!(streams.read(block(3), FILE, false), StreamPlan::Alone);
        assert_eq!(streams.read(block(5), FILE, false), windows(&[12, 13, 15, 19, 27]));
        assert_eq!(streams.read(block(0), FILE, false), StreamPlan::Alone);
        assert_eq!(streams.read(block(1), FILE, false), windows(&[0, 1, 3, 7, 12]));
        assert_eq!(streams.entered(7 * MIB, FILE, 1), [], "what comes then is fetched");
        assert_eq!(
            streams.announced().collect::<Vec<_>>(),
            [12, 13, 15, 19].map(|start| start * MIB)
        );
        assert_eq!(streams.entered(19 * MIB, FILE, 1), only(27 * MIB..35 * MIB));
        assert_eq!(streams.read(block(2), FILE, false), StreamPlan::Stream(vec![]));
    }

    #[test]
    fn a_call_that_is_large_enough_is_alone() {
        let mut streams = Streams::default();
        let _ = streams.read(0..8 * KIB, FILE, false);
        assert_eq!(streams.read(8 * KIB..FILE, FILE, false), StreamPlan::Alone);
    }

    #[test]
    fn a_call_larger_than_a_window_is_fetched_in_several() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * MIB, FILE, false);
        let windows = vec![0..MIB, MIB..3 * MIB, 3 * MIB..7 * MIB, 7 * MIB..15 * MIB];
        assert_eq!(streams.read(4 * MIB..8 * MIB, FILE, false), StreamPlan::Stream(windows));
    }

    #[test]
    fn a_second_read_from_the_beginning_is_another_stream() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * KIB, FILE, false);
        let _ = streams.read(4 * KIB..8 * KIB, FILE, false);
        let mut entered = 0;
        while entered < 200 * MIB {
            entered = streams.entered(entered, FILE, 1)[0].start;
        }
        assert_eq!(streams.read(0..4 * KIB, FILE, false), StreamPlan::Alone);
        assert_eq!(streams.read(4 * KIB..8 * KIB, FILE, false), one(0..MIB));
    }

    /// Programs read these units of a shared file. Units that are announced are entered.
    fn read_units(streams: &mut Streams, units: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
        let mut windows = Vec::new();
        for start in units.map(|unit| unit * MIB) {
            let is_announced = streams.announced().any(|announced| announced == start);
            windows.extend(if is_announced {
                streams.entered(start, FILE, 1)
            } else {
                match streams.read(start..start + MIB, FILE, true) {
                    StreamPlan::Stream(windows) => windows,
                    StreamPlan::Alone => Vec::new(),
                }
            });
        }
        windows
    }

    #[test]
    fn what_other_nodes_read_is_not_read_ahead() {
        let mut streams = Streams::default();
        let two_of_eight = |unit: &u64| unit % 8 == 2 || unit % 8 == 3;
        let before = read_units(&mut streams, (0..56).filter(two_of_eight));
        assert!(before.iter().any(|window| window.end - window.start == 8 * MIB), "{before:?}");
        let sparse = read_units(&mut streams, (56..200).filter(two_of_eight));
        assert_eq!(sparse, [], "no windows");
        assert_eq!(
            streams.begun(&(194 * MIB..195 * MIB), FILE, 3),
            [],
            "also not if several are read at a time"
        );
        let dense = read_units(&mut streams, 200..280);
        let again = 200 + JUDGED_UNITS + LAG_UNITS;
        assert!(dense[0].start.abs_diff(again * MIB) < 4 * MIB, "{dense:?}");
    }

    #[test]
    fn what_this_node_has_read_may_be_in_use_unseen() {
        let mut streams = Streams::default();
        for unit in (0..200).filter(|unit| unit % 8 < 2) {
            let windows = read_units(&mut streams, std::iter::once(unit));
            windows.iter().for_each(|window| assert_eq!(streams.begun(window, FILE, 1), []));
        }
        let is_sparse = |stream: &Stream| stream.units.as_ref().is_some_and(|of| of.is_sparse);
        assert!(!streams.streams.iter().any(is_sparse));
        assert!(streams.streams.iter().any(|stream| stream.end > 200 * MIB));
    }

    #[test]
    fn a_shared_stream_without_holes_is_read_ahead() {
        let mut streams = Streams::default();
        // Two programs of the node, of which one is slower.
        let fast = (0..200_u64).step_by(2);
        let units = fast.flat_map(|unit| [Some(unit), unit.checked_sub(13)]).flatten();
        let windows = read_units(&mut streams, units);
        assert!(windows.last().is_some_and(|last| last.end > 200 * MIB), "{windows:?}");
    }
}
