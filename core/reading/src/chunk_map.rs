//! Where the chunks of a file are.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Where each chunk of a file begins, and where the last one ends. For example chunks of 4 and 6
/// bytes are 0, 4 and 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkMap(Vec<u64>);

/// A part of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPart {
    /// The index of the chunk in the file.
    pub index: usize,
    /// The bytes, as offsets in the chunk.
    pub range: Range<u64>,
}

impl ChunkPart {
    /// Number of bytes.
    pub fn size_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl ChunkMap {
    /// The map of a file whose chunks have these sizes.
    pub fn new(sizes_bytes: impl IntoIterator<Item = u64>) -> Self {
        let mut borders = vec![0];
        let mut end = 0;
        borders.extend(sizes_bytes.into_iter().map(|size_bytes| {
            end += size_bytes;
            end
        }));
        ChunkMap(borders)
    }

    /// Number of chunks.
    pub fn count(&self) -> usize {
        self.0.len() - 1
    }

    /// Size of the file.
    pub fn size_bytes(&self) -> u64 {
        self.0[self.count()]
    }

    /// The bytes of a chunk, as offsets in the file.
    ///
    /// # Panics
    /// If the file has no such chunk.
    pub fn chunk(&self, index: usize) -> Range<u64> {
        self.0[index]..self.0[index + 1]
    }

    /// The index of the chunk with this byte; `None` behind the end of the file.
    pub fn index_at(&self, offset: u64) -> Option<usize> {
        (offset < self.size_bytes()).then(|| self.0.partition_point(|border| *border <= offset) - 1)
    }

    /// Up to `length` bytes from `offset`, as far as the file has them.
    pub fn range(&self, offset: u64, length: u64) -> Range<u64> {
        let end = self.size_bytes();
        offset.min(end)..offset.saturating_add(length).min(end)
    }

    /// The parts of chunks that a range of the file consists of, in order.
    ///
    /// Of chunks of 4 and 6 bytes, 2..7 is 2..4 of the first one and 0..3 of the second one.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = ChunkPart> {
        let end = range.end.min(self.size_bytes());
        let first =
            self.index_at(range.start).filter(|_| range.start < end).unwrap_or(self.count());
        (first..self.count())
            .map(|index| (index, self.chunk(index)))
            .take_while(move |(_, chunk)| chunk.start < end)
            .map(move |(index, chunk)| ChunkPart {
                index,
                range: range.start.max(chunk.start) - chunk.start..end.min(chunk.end) - chunk.start,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_a_file_is_parts_of_chunks() {
        let map = ChunkMap::new([4, 6, 1]);
        let parts =
            |range| map.parts(range).map(|part| (part.index, part.range)).collect::<Vec<_>>();
        assert_eq!((map.count(), map.size_bytes(), map.chunk(1)), (3, 11, 4..10));
        assert_eq!(parts(2..7), [(0, 2..4), (1, 0..3)]);
        assert_eq!(parts(0..u64::MAX), [(0, 0..4), (1, 0..6), (2, 0..1)]);
        assert_eq!(parts(4..10), [(1, 0..6)]);
        assert_eq!((parts(5..5), parts(11..20), parts(20..30)), (vec![], vec![], vec![]));
        assert_eq!(
            [0, 3, 4, 10, 11].map(|offset| map.index_at(offset)),
            [Some(0), Some(0), Some(1), Some(2), None]
        );
        assert_eq!(
            (map.range(9, 5), map.range(12, 5), map.range(2, u64::MAX)),
            (9..11, 11..11, 2..11)
        );
    }

    #[test]
    fn an_empty_file_has_no_parts() {
        let map = ChunkMap::new([]);
        assert_eq!((map.count(), map.size_bytes(), map.index_at(0)), (0, 0, None));
        assert_eq!(map.parts(0..10).count(), 0);
    }
}
