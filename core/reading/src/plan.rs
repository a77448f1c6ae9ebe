//! The plan of a reader that reads where a program wants.
//!
//! A reader whose reads continue each other gets whole chunks, and those that follow before it asks
//! for them. Others get only the bytes that they ask for. A chunk on this machine is opened after
//! some parts of it were requested: its content is then checked once, and later reads of it need no
//! message.

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Range;

use crate::ChunkMap;

/// Number of chunks of which a plan remembers how much was requested. When it is reached, the first
/// ones are forgotten.
const MAX_KNOWN: usize = 1024;

/// The bounds of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// A read continues the one before if it begins within this distance of that one's end. 0:
    /// just there.
    pub slack_bytes: u64,
    /// Whether the first read is expected to be continued if it is at the beginning of the file.
    pub expects_more: bool,
    /// Chunks of up to this size are always read as a whole.
    pub small_bytes: u64,
    /// Larger chunks are not read as a whole from other machines.
    pub whole_bytes: u64,
    /// A chunk on this machine is opened when more than this number of parts of it were requested.
    pub parts: u32,
    /// It is opened, too, when one of so many equal parts of it was requested. 8: an eighth of the
    /// chunk.
    pub shares: u64,
    /// Most chunks that are opened before they are read. Of a file that is read on, it is one at
    /// first, and one more with each chunk.
    pub ahead_chunks: usize,
    /// Most bytes of these chunks; but the next chunk is opened ahead whatever its size, unless
    /// this is 0.
    pub ahead_bytes: u64,
}

impl ReadLimits {
    /// For a program that reads a file by calls of its own. For example a chunk of 64 MiB on its
    /// machine is opened when 8 MiB of it, or 17 parts, were requested; and up to four chunks of 4
    /// MiB, or one of 64 MiB, are opened ahead.
    pub const PROGRAM: ReadLimits = ReadLimits {
        slack_bytes: 0,
        expects_more: false,
        small_bytes: 0,
        whole_bytes: u64::MAX,
        parts: 16,
        shares: 8,
        ahead_chunks: usize::MAX,
        ahead_bytes: 16 << 20,
    };

    /// For a task. The node on its machine is that of its executor, and its inputs were placed
    /// there to be read. For example a chunk is opened with the second part of it that is
    /// requested.
    pub const TASK: ReadLimits = ReadLimits { parts: 1, ..ReadLimits::PROGRAM };

    /// For a mount. The kernel reads ahead in several requests, which come in any order, and caches
    /// what it has read. For example a chunk of 16 MiB is fetched as a whole from another machine
    /// if reads continue each other, and of one of 64 MiB only parts.
    pub const MOUNT: ReadLimits = ReadLimits {
        slack_bytes: 2 << 20,
        expects_more: true,
        small_bytes: 64 << 10,
        whole_bytes: 16 << 20,
        parts: 16,
        shares: 8,
        ahead_chunks: 1,
        ahead_bytes: u64::MAX,
    };
}

/// The plan of a reader of one version of a file.
#[derive(Clone, Debug)]
pub struct ReadPlan {
    limits: ReadLimits,
    /// Where the last read has ended; `None` before the first one.
    end: Option<u64>,
    /// The last chunk of the reads that continue each other.
    entered: Option<usize>,
    /// Number of chunks that were entered one after the other.
    window: usize,
    /// Parts and bytes that were requested of chunks that are not open, and these chunks, the
    /// first one first.
    requested: BTreeMap<usize, (u32, u64)>,
    order: VecDeque<usize>,
}

/// What a read means for the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadStep {
    /// Whether the read continues the one before, or is itself of several chunks.
    pub continues: bool,
    /// The chunks to open in the background. Those that are being opened there and are neither
    /// read nor among these are to be given up. `None` for no change.
    pub ahead: Option<Range<usize>>,
}

/// A part of a chunk that is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartFacts {
    /// The index of the chunk.
    pub index: usize,
    /// Size of the part.
    pub part_bytes: u64,
    /// Size of the chunk.
    pub chunk_bytes: u64,
    /// Whether the chunk can be read from a store on this machine.
    pub is_near: bool,
}

/// How a part of a chunk is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The whole chunk is opened or fetched, and kept.
    Whole,
    /// Only the part is requested.
    Part,
}

impl ReadPlan {
    /// The plan of a file that was not read yet.
    pub fn new(limits: ReadLimits) -> Self {
        let (requested, order) = (BTreeMap::new(), VecDeque::new());
        ReadPlan { limits, end: None, entered: None, window: 0, requested, order }
    }

    /// The bounds.
    pub fn limits(&self) -> ReadLimits {
        self.limits
    }

    /// Notes a read of this range, which is not empty. With chunks of 10 bytes, reads of 0..5, 5..8
    /// and 8..12 open chunk 1 with the second read, and chunks 2 and 3 with the third one.
    pub fn read(&mut self, map: &ChunkMap, range: Range<u64>) -> ReadStep {
        let (Some(first), Some(last)) = (map.index_at(range.start), map.index_at(range.end - 1))
        else {
            return ReadStep { continues: false, ahead: None };
        };
        let slack_bytes = self.limits.slack_bytes;
        let is_next = match self.end.replace(range.end) {
            Some(end) => range.start.abs_diff(end) <= slack_bytes,
            None => self.limits.expects_more && range.start <= slack_bytes,
        };
        if !is_next {
            (self.entered, self.window) = (None, 0);
        }
        let continues = is_next || first < last;
        // A read that is larger than a chunk keeps several threads or nodes busy itself. Of its
        // last chunk, the next read needs the rest.
        let chunk = map.chunk(last);
        if range.end - range.start > chunk.end - chunk.start {
            let is_cut = range.end < chunk.end;
            return ReadStep { continues, ahead: is_cut.then_some(last..last + 1) };
        }
        // Requests of a kernel come in any order: an earlier chunk is no reason to give up later
        // ones.
        let is_new = continues && self.entered.is_none_or(|entered| last > entered);
        if !is_new {
            return ReadStep { continues, ahead: None };
        }
        self.entered = Some(last);
        self.window += 1;
        ReadStep { continues, ahead: Some(last + 1..last + 1 + self.count_ahead(map, last + 1)) }
    }

    /// How many chunks from `next` on are opened before they are read.
    fn count_ahead(&self, map: &ChunkMap, next: usize) -> usize {
        let (mut bytes, most) = (0_u64, self.limits.ahead_bytes);
        let fits = |index: &usize| {
            let chunk = map.chunk(*index);
            bytes = bytes.saturating_add(chunk.end - chunk.start);
            bytes <= most || (*index == next && most > 0)
        };
        (next..map.count()).take(self.window.min(self.limits.ahead_chunks)).take_while(fits).count()
    }

    /// How a part of a chunk is read, as part of a read that `continues` the one before or does
    /// not.
    pub fn way(&mut self, part: PartFacts, continues: bool) -> Way {
        let ReadLimits { small_bytes, whole_bytes, parts, shares, .. } = self.limits;
        let PartFacts { index, part_bytes, chunk_bytes, is_near } = part;
        let may_open = is_near || chunk_bytes <= whole_bytes;
        if (continues && may_open) || chunk_bytes <= small_bytes {
            return Way::Whole;
        }
        let (count, bytes) = self.request(index, part_bytes);
        if is_near && (count > parts || bytes.saturating_mul(shares) >= chunk_bytes) {
            Way::Whole
        } else {
            Way::Part
        }
    }

    /// Counts a requested part of a chunk. Returns their number and bytes.
    fn request(&mut self, index: usize, part_bytes: u64) -> (u32, u64) {
        if !self.requested.contains_key(&index) {
            if self.order.len() == MAX_KNOWN
                && let Some(oldest) = self.order.pop_front()
            {
                self.requested.remove(&oldest);
            }
            self.order.push_back(index);
        }
        let (count, bytes) = self.requested.entry(index).or_default();
        *count = count.saturating_add(1);
        *bytes = bytes.saturating_add(part_bytes);
        (*count, *bytes)
    }

    /// Whether a chunk of another machine may be opened ahead.
    pub fn is_whole_from_afar(&self, chunk_bytes: u64) -> bool {
        chunk_bytes <= self.limits.whole_bytes
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const LIMITS: ReadLimits =
        ReadLimits { parts: 2, whole_bytes: 50, ahead_bytes: 35, ..ReadLimits::PROGRAM };

    /// A file of ten chunks of 10 bytes.
    fn map() -> ChunkMap {
        ChunkMap::new([10; 10])
    }

    fn reads(limits: ReadLimits, ranges: &[Range<u64>]) -> Vec<(bool, Option<Range<usize>>)> {
        let (map, mut plan) = (map(), ReadPlan::new(limits));
        let steps = ranges.iter().map(|range| plan.read(&map, range.clone()));
        steps.map(|step| (step.continues, step.ahead)).collect()
    }

    #[test]
    fn a_sequential_reader_gets_one_more_chunk_ahead_with_each_chunk() {
        let steps = reads(LIMITS, &[0..5, 5..8, 8..12, 12..20, 20..21, 21..31, 31..41]);
        // 35 bytes are three chunks.
        let expected = [
            (false, None),
            (true, Some(1..2)),
            (true, Some(2..4)),
            (true, None),
            (true, Some(3..6)),
            (true, Some(4..7)),
            (true, Some(5..8)),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_reader_that_jumps_starts_a_new_sequence() {
        let steps = reads(LIMITS, &[0..5, 5..8, 50..55, 55..56, 3..4, 90..95, 95..96]);
        let expected = [
            (false, None),
            (true, Some(1..2)),
            (false, None),
            (true, Some(6..7)),
            (false, None),
            (false, None),
            // There is no chunk behind the last one.
            (true, Some(10..10)),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_large_read_opens_only_the_rest_of_its_last_chunk_ahead() {
        assert_eq!(reads(LIMITS, &[0..35, 40..60]), [(true, Some(3..4)), (true, None)]);
    }

    #[test]
    fn chunks_ahead_have_a_number_and_bytes() {
        let sizes = |size_bytes| ChunkMap::new([size_bytes; 10]);
        let ahead = |limits, size_bytes: u64| {
            let (map, mut plan) = (sizes(size_bytes), ReadPlan::new(limits));
            let ranges = (0..8).map(|index| index * size_bytes..(index + 1) * size_bytes);
            ranges
                .filter_map(|range| plan.read(&map, range).ahead)
                .map(|ahead| ahead.len())
                .collect::<Vec<_>>()
        };
        let few = ReadLimits { ahead_chunks: 2, ..LIMITS };
        assert_eq!(ahead(few, 1), [1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(ahead(LIMITS, 10), [1, 2, 3, 3, 3, 3, 2]);
        assert_eq!(ahead(LIMITS, 36), [1, 1, 1, 1, 1, 1, 1], "one, whatever its size");
        assert_eq!(ahead(ReadLimits { ahead_bytes: 0, ..LIMITS }, 10), [0; 7]);
    }

    #[test]
    fn requests_of_a_kernel_come_in_any_order() {
        let limits = ReadLimits { slack_bytes: 12, expects_more: true, ahead_chunks: 1, ..LIMITS };
        let steps = reads(limits, &[0..4, 8..12, 4..8, 12..16, 40..44]);
        let expected =
            [(true, Some(1..2)), (true, Some(2..3)), (true, None), (true, None), (false, None)];
        assert_eq!(steps, expected);
        let one = reads(limits, core::slice::from_ref(&(50..54)));
        assert_eq!(one, [(false, None)], "not the beginning of the file");
    }

    #[test]
    fn chunks_are_opened_for_readers_that_read_on_and_near_ones_after_some_parts() {
        let way = |plan: &mut ReadPlan, index, part_bytes, is_near, continues| {
            plan.way(PartFacts { index, part_bytes, chunk_bytes: 40, is_near }, continues)
        };
        let mut plan = ReadPlan::new(LIMITS);
        assert_eq!(way(&mut plan, 0, 1, false, true), Way::Whole);
        assert_eq!(
            [1, 2, 3, 4].map(|_| way(&mut plan, 1, 1, true, false)),
            [Way::Part, Way::Part, Way::Whole, Way::Whole]
        );
        assert_eq!(
            [1, 2, 3, 4].map(|_| way(&mut plan, 2, 1, false, false)),
            [Way::Part; 4],
            "of another machine"
        );
        assert_eq!(
            [2, 3].map(|bytes| way(&mut plan, 3, bytes, true, false)),
            [Way::Part, Way::Whole],
            "an eighth"
        );
    }

    #[test]
    fn the_size_of_a_chunk_decides_too() {
        let way = |chunk_bytes, is_near, continues| {
            let limits = ReadLimits { small_bytes: 8, ..LIMITS };
            ReadPlan::new(limits)
                .way(PartFacts { index: 0, part_bytes: 1, chunk_bytes, is_near }, continues)
        };
        assert_eq!((way(8, false, false), way(9, false, false)), (Way::Whole, Way::Part));
        assert_eq!(
            (way(50, false, true), way(51, false, true), way(51, true, true)),
            (Way::Whole, Way::Part, Way::Whole)
        );
        assert!(
            ReadPlan::new(LIMITS).is_whole_from_afar(50)
                && !ReadPlan::new(LIMITS).is_whole_from_afar(51)
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn a_plan_remembers_a_bounded_number_of_chunks() {
        let mut plan = ReadPlan::new(LIMITS);
        for index in 0..2 * MAX_KNOWN {
            plan.request(index, 1);
        }
        assert_eq!((plan.requested.len(), plan.order.len()), (MAX_KNOWN, MAX_KNOWN));
        assert_eq!(plan.request(2 * MAX_KNOWN - 1, 1), (2, 2));
        assert_eq!(plan.request(0, 1), (1, 1), "it was forgotten");
    }
}
