//! The plan of a reader that takes a range of a file from its beginning to its end.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::{ChunkMap, ChunkPart};

/// Number of parts that are fetched at the same time.
pub const MAX_IN_FLIGHT: usize = 4;

/// Most bytes of them. A larger part is fetched alone. For example four parts of 64 MiB, or two of
/// 100 MiB.
pub const MAX_IN_FLIGHT_BYTES: u64 = 256 << 20;

/// The parts of a range that are not fetched yet, and how many may be.
#[derive(Clone, Debug)]
pub struct Sequence {
    rest: VecDeque<ChunkPart>,
    /// Sizes of the parts that are being fetched, in order.
    in_flight: VecDeque<u64>,
}

impl Sequence {
    /// The parts of this range.
    pub fn new(map: &ChunkMap, range: Range<u64>) -> Self {
        Sequence { rest: map.parts(range).collect(), in_flight: VecDeque::new() }
    }

    /// The next part to begin with, if more may be fetched now.
    pub fn begin(&mut self) -> Option<ChunkPart> {
        let bytes: u64 = self.in_flight.iter().sum();
        let next = self.rest.front()?.size_bytes();
        let fits = self.in_flight.len() < MAX_IN_FLIGHT
            && bytes.saturating_add(next) <= MAX_IN_FLIGHT_BYTES;
        if !fits && !self.in_flight.is_empty() {
            return None;
        }
        self.in_flight.push_back(next);
        self.rest.pop_front()
    }

    /// The reader has taken the first of the parts that were begun.
    pub fn taken(&mut self) {
        self.in_flight.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn begun(sequence: &mut Sequence) -> Vec<usize> {
        core::iter::from_fn(|| sequence.begin()).map(|part| part.index).collect()
    }

    #[test]
    fn up_to_four_parts_are_fetched_at_the_same_time() {
        let mut sequence = Sequence::new(&ChunkMap::new([10; 6]), 5..60);
        assert_eq!(begun(&mut sequence), [0, 1, 2, 3]);
        sequence.taken();
        assert_eq!(begun(&mut sequence), [4]);
        (0..4).for_each(|_| sequence.taken());
        assert_eq!(begun(&mut sequence), [5]);
        assert_eq!(sequence.begin(), None);
    }

    #[test]
    fn their_bytes_are_bounded_and_a_large_part_is_fetched_alone() {
        let (half, all) = (MAX_IN_FLIGHT_BYTES / 2, MAX_IN_FLIGHT_BYTES + 1);
        let mut sequence = Sequence::new(&ChunkMap::new([half, half, all, half]), 0..u64::MAX);
        assert_eq!(begun(&mut sequence), [0, 1]);
        sequence.taken();
        assert_eq!(begun(&mut sequence), []);
        sequence.taken();
        assert_eq!(begun(&mut sequence), [2]);
        sequence.taken();
        assert_eq!(begun(&mut sequence), [3]);
    }
}
