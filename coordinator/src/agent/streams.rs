//! What is read ahead of one file: where the programs of a node, taken together, read it in order.
//!
//! Each of several processes that share a file may read with gaps, and all of them without any (io-coordination §2, real
//! aggregation). So it is the file that is looked at, not who reads: a read close to where a stream of it ends carries that
//! stream on, whoever it is of. What is read ahead doubles from one window to the next. A stream that comes to where another
//! begins is one with it from there on: processes that begin in any order make several. One window is fetched ahead of who
//! reads; more only where the storage turns out to serve several at a time. A read that belongs to no stream yet
//! is done alone, so that who reads at random pays for nothing that he does not want.
//!
//! Pure: it is told of reads, and says what to fetch.

use std::collections::VecDeque;
use std::ops::Range;

/// Windows begin and end at multiples of this, in bytes, but for the file's end.
pub(super) const UNIT_BYTES: u64 = eyas_board::PIECE_BYTES;
/// Most that is fetched at once.
pub(super) const MAX_WINDOW_BYTES: u64 = 8 << 20;
/// Streams of a file at a time; the one that was not carried on for longest makes room for a new one.
const MAX_STREAMS: usize = 32;
/// Reads that are remembered until another shows that they begin a stream.
const MAX_ALONE: usize = 16;
/// A stream remembers so much of what it has fetched. Who comes later, or again, is another stream.
const MEMORY_BYTES: u64 = 64 << 20;
/// A read is close to another if no more of its own lengths are between them.
const CLOSE_LENGTHS: u64 = 16;

/// What to do about a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is a read of its own.
    Alone,
    /// It is of a stream: it is fetched already, and these windows are to be, one after the other.
    Stream(Vec<Range<u64>>),
}

/// One file's streams.
#[derive(Default)]
pub(super) struct Streams {
    /// The last that was carried on comes last.
    streams: VecDeque<Stream>,
    alone: VecDeque<Range<u64>>,
}

struct Stream {
    /// From where on it was fetched, as far as it remembers.
    start: u64,
    /// Up to where.
    end: u64,
    /// Where the windows begin that nobody has come to.
    ahead: VecDeque<u64>,
    /// How much is fetched next.
    window: u64,
}

impl Streams {
    /// Somebody is about to read these bytes, which are all in a file of so many.
    pub(super) fn read(&mut self, bytes: Range<u64>, file_bytes: u64) -> Plan {
        if bytes.end - bytes.start > MAX_WINDOW_BYTES {
            // It is large enough.
            return Plan::Alone;
        }
        if let Some(place) = self.streams.iter().position(|stream| stream.has(&bytes) || stream.is_before(&bytes)) {
            let mut stream = self.streams.remove(place).expect("it was found there");
            let mut windows = Vec::new();
            while stream.end < bytes.end {
                windows.extend(self.advance(&mut stream, file_bytes));
            }
            self.streams.push_back(stream);
            return Plan::Stream(windows);
        }
        let close = self.alone.iter().position(|other| is_close(other, &bytes) || is_close(&bytes, other));
        let Some(place) = close else {
            self.alone.push_back(bytes);
            if self.alone.len() > MAX_ALONE {
                self.alone.pop_front();
            }
            return Plan::Alone;
        };
        let other = self.alone.remove(place).expect("it was found there");
        let start = other.start.min(bytes.start) / UNIT_BYTES * UNIT_BYTES;
        self.streams.push_back(Stream { start, end: start, ahead: VecDeque::new(), window: UNIT_BYTES });
        if self.streams.len() > MAX_STREAMS {
            self.streams.pop_front();
        }
        self.read(bytes, file_bytes)
    }

    /// Somebody has come to the window that begins at this offset; what is to be fetched next, so that so many are ahead.
    pub(super) fn entered(&mut self, offset: u64, file_bytes: u64, ahead: usize) -> Vec<Range<u64>> {
        let Some(place) = self.streams.iter().position(|stream| stream.ahead.contains(&offset)) else {
            return Vec::new();
        };
        let mut stream = self.streams.remove(place).expect("it was found there");
        stream.ahead.retain(|start| *start > offset);
        self.top_up(stream, file_bytes, ahead)
    }

    /// The window that begins at this offset is read now; what is to be fetched besides, so that so many are ahead.
    pub(super) fn begun(&mut self, offset: u64, file_bytes: u64, ahead: usize) -> Vec<Range<u64>> {
        let Some(place) = self.streams.iter().position(|stream| (stream.start..stream.end).contains(&offset)) else {
            return Vec::new();
        };
        let stream = self.streams.remove(place).expect("it was found there");
        self.top_up(stream, file_bytes, ahead)
    }

    /// Where windows begin that nobody has come to.
    pub(super) fn ahead(&self) -> impl Iterator<Item = u64> + '_ {
        self.streams.iter().flat_map(|stream| stream.ahead.iter().copied())
    }

    /// What is fetched next of a stream that is not among the others now, and is again then.
    fn top_up(&mut self, mut stream: Stream, file_bytes: u64, ahead: usize) -> Vec<Range<u64>> {
        let mut windows = Vec::new();
        while stream.ahead.len() < ahead && stream.end < file_bytes {
            windows.extend(self.advance(&mut stream, file_bytes));
        }
        self.streams.push_back(stream);
        windows
    }

    /// What is fetched next of a stream that is not among the others now. None: it has taken in one that begins at its end.
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

    /// Whether the read carries it on.
    fn is_before(&self, bytes: &Range<u64>) -> bool {
        self.start <= bytes.start && is_close(&(self.start..self.end), bytes)
    }

    /// Goes on where that one goes on, which begins where this one ends.
    fn take_in(&mut self, other: &Stream) {
        self.end = other.end;
        self.ahead.extend(&other.ahead);
        self.window = self.window.max(other.window);
    }

    /// What is fetched next, up to there or to the file's end.
    fn advance(&mut self, end: u64, file_bytes: u64) -> Range<u64> {
        let start = self.end;
        self.ahead.push_back(start);
        self.end = end;
        self.window = (self.window * 2).min(MAX_WINDOW_BYTES);
        self.start = self.start.max(self.end.saturating_sub(MEMORY_BYTES));
        start..self.end.min(file_bytes)
    }
}

/// Whether `next` goes on where `before` ends, or almost.
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

    /// One window is to be fetched.
    fn one(window: Range<u64>) -> Plan {
        Plan::Stream(only(window))
    }

    fn only(window: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(window).collect()
    }

    #[test]
    fn the_first_read_is_alone_and_the_second_begins_a_stream() {
        let mut streams = Streams::default();
        assert_eq!(streams.read(0..4 * KIB, FILE), Plan::Alone);
        assert_eq!(streams.read(4 * KIB..8 * KIB, FILE), one(0..MIB));
        assert_eq!(streams.read(8 * KIB..12 * KIB, FILE), Plan::Stream(vec![]), "it is fetched already");
    }

    #[test]
    fn processes_that_share_a_file_are_one_stream() {
        let mut streams = Streams::default();
        let block = |number: u64| number * 4 * KIB..(number + 1) * 4 * KIB;
        assert_eq!(streams.read(block(5), FILE), Plan::Alone);
        assert_eq!(streams.read(block(0), FILE), one(0..MIB));
        for number in [7, 3, 1, 2, 4, 6, 13, 8] {
            assert_eq!(streams.read(block(number), FILE), Plan::Stream(vec![]));
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
        assert_eq!(streams.read(2 * MIB..file, file), Plan::Stream(vec![]));
    }

    #[test]
    fn reads_at_random_stay_alone() {
        let mut streams = Streams::default();
        for number in 0..1000_u64 {
            let start = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (FILE - MIB);
            assert_eq!(streams.read(start..start + 4 * KIB, FILE), Plan::Alone, "read {number} at {start}");
        }
    }

    #[test]
    fn parts_of_a_file_are_streams_of_their_own() {
        let mut streams = Streams::default();
        for part in 0..8 {
            let start = part * (FILE / 8);
            assert_eq!(streams.read(start..start + 64 * KIB, FILE), Plan::Alone);
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
        let windows = |borders: &[u64]| Plan::Stream(borders.windows(2).map(|at| at[0] * MIB..at[1] * MIB).collect());
        assert_eq!(streams.read(block(3), FILE), Plan::Alone);
        assert_eq!(streams.read(block(5), FILE), windows(&[12, 13, 15, 19, 27]));
        assert_eq!(streams.read(block(0), FILE), Plan::Alone);
        assert_eq!(streams.read(block(1), FILE), windows(&[0, 1, 3, 7, 12]));
        assert_eq!(streams.entered(7 * MIB, FILE, 1), [], "what comes then is fetched");
        assert_eq!(streams.ahead().collect::<Vec<_>>(), [12, 13, 15, 19].map(|start| start * MIB));
        assert_eq!(streams.entered(19 * MIB, FILE, 1), only(27 * MIB..35 * MIB));
        assert_eq!(streams.read(block(2), FILE), Plan::Stream(vec![]));
    }

    #[test]
    fn a_call_that_is_large_enough_is_alone() {
        let mut streams = Streams::default();
        let _ = streams.read(0..8 * KIB, FILE);
        assert_eq!(streams.read(8 * KIB..FILE, FILE), Plan::Alone);
    }

    #[test]
    fn a_call_larger_than_a_window_is_fetched_in_several() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * MIB, FILE);
        let windows = vec![0..MIB, MIB..3 * MIB, 3 * MIB..7 * MIB, 7 * MIB..15 * MIB];
        assert_eq!(streams.read(4 * MIB..8 * MIB, FILE), Plan::Stream(windows));
    }

    #[test]
    fn who_reads_it_again_is_another_stream() {
        let mut streams = Streams::default();
        let _ = streams.read(0..4 * KIB, FILE);
        let _ = streams.read(4 * KIB..8 * KIB, FILE);
        let mut entered = 0;
        while entered < 200 * MIB {
            entered = streams.entered(entered, FILE, 1)[0].start;
        }
        assert_eq!(streams.read(0..4 * KIB, FILE), Plan::Alone);
        assert_eq!(streams.read(4 * KIB..8 * KIB, FILE), one(0..MIB));
    }
}
