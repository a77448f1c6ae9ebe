//! Holes of sparse files: ranges that read as zeros and take no space on the disk. Whatever copies
//! a file leaves its holes out, so that a file of 8 GB with 1 MB of data is copied as fast as 1 MB,
//! and takes as much space.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::SeekFrom as SeekTo;
use rustix::io::Errno;

/// Bytes of a block as `stat` counts them, whatever the blocks of the file system are.
const BLOCK_BYTES: u64 = 512;

/// ZFS in `statfs(2)`. Its releases before 2.2.2 report holes where data was written a moment ago.
const ZFS: u32 = 0x2fc1_2fc1;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Bytes that may have any value.
    Data(Range<u64>),
    /// Zeros that take no space.
    Hole(Range<u64>),
}

/// The same with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Data(&'a [u8]),
    Hole(u64),
}

impl Part<'_> {
    pub fn size_bytes(&self) -> u64 {
        match self {
            Part::Data(bytes) => bytes.len() as u64,
            Part::Hole(bytes) => *bytes,
        }
    }
}

/// The segments of a range of a file, in their order. Where the file system does not tell holes,
/// all is data. The position of the file changes.
#[derive(Debug)]
pub struct Segments<'a> {
    file: &'a File,
    rest: Range<u64>,
    is_sparse: bool,
    shortest_hole: u64,
}

impl<'a> Segments<'a> {
    /// The segments of `range`, which is inside the file.
    pub fn of(file: &'a File, range: Range<u64>) -> Self {
        let is_sparse = file.metadata().is_ok_and(|metadata| is_sparse(file, &metadata));
        Segments { file, rest: range, is_sparse, shortest_hole: 1 }
    }

    /// Takes holes that are shorter than this for data.
    pub(crate) fn with_holes_from(self, shortest_hole: u64) -> Self {
        Segments { shortest_hole, ..self }
    }

    /// The end of the data that begins at `start`.
    fn end_of_data(&self, start: u64) -> u64 {
        let (seek, end) = (|to| rustix::fs::seek(self.file, to), self.rest.end);
        let mut hole = seek(SeekTo::Hole(start)).unwrap_or(end);
        while hole < end && self.shortest_hole > 1 {
            match seek(SeekTo::Data(hole)) {
                Ok(data) if data - hole < self.shortest_hole => {
                    hole = seek(SeekTo::Hole(data)).unwrap_or(end)
                }
                _ => break,
            }
        }
        hole.clamp(start + 1, end)
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let Range { start, end } = self.rest;
        if start >= end {
            return None;
        }
        let data = self.is_sparse.then(|| rustix::fs::seek(self.file, SeekTo::Data(start)));
        let (segment, until) = match data {
            // No data follows.
            Some(Err(Errno::NXIO)) => (Segment::Hole(start..end), end),
            Some(Ok(data)) if data > start => (Segment::Hole(start..data.min(end)), data.min(end)),
            Some(Ok(_)) => {
                let hole = self.end_of_data(start);
                (Segment::Data(start..hole), hole)
            }
            None | Some(Err(_)) => (Segment::Data(start..end), end),
        };
        self.rest.start = until;
        Some(segment)
    }
}

/// Whether a range of a file is a hole, as far as the file system tells it. The position of the
/// file changes.
pub fn is_hole(file: &File, range: Range<u64>) -> bool {
    let end = range.end;
    matches!(Segments::of(file, range).next(), Some(Segment::Hole(hole)) if hole.end == end)
}

/// Whether all bytes are zeros.
pub fn is_zeros(bytes: &[u8]) -> bool {
    // Most bytes that are not zeros are told by the first one, whether or not they are in the cache
    // of the processor.
    bytes.first().is_none_or(|byte| *byte == 0)
        && bytes
            .chunks(ZERO_BLOCK_BYTES)
            .all(|some| some.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Whether a file may have holes: it takes less space than its length.
pub(crate) fn is_sparse(file: &File, metadata: &Metadata) -> bool {
    metadata.blocks().saturating_mul(BLOCK_BYTES) < metadata.len()
        && rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type as u32 != ZFS)
}

/// Zeros of a sparse file become holes again in blocks of this size. File systems have blocks of
/// this size or larger ones.
const ZERO_BLOCK_BYTES: usize = 4096;

/// Content as runs of blocks that are zeros and of others.
pub(crate) fn without_zeros(mut bytes: &[u8]) -> impl Iterator<Item = Part<'_>> {
    std::iter::from_fn(move || {
        let zeros = is_zeros(bytes.chunks(ZERO_BLOCK_BYTES).next()?);
        let blocks = bytes.chunks(ZERO_BLOCK_BYTES).take_while(|block| is_zeros(block) == zeros);
        let (run, rest) = bytes.split_at(blocks.map(<[u8]>::len).sum());
        bytes = rest;
        Some(if zeros { Part::Hole(run.len() as u64) } else { Part::Data(run) })
    })
}

/// Passes on a range of a file part by part, each of up to the length of `buffer` if it is data.
/// Ends early where the file ends.
pub(crate) fn each_part<E>(
    file: &File,
    range: Range<u64>,
    buffer: &mut [u8],
    failed: &dyn Fn(io::Error) -> E,
    mut take: impl FnMut(Part<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for segment in Segments::of(file, range) {
        let mut data = match segment {
            Segment::Hole(hole) => {
                take(Part::Hole(hole.end - hole.start))?;
                continue;
            }
            Segment::Data(data) => data,
        };
        while !data.is_empty() {
            let length = buffer.len().min((data.end - data.start) as usize);
            match file.read_at(&mut buffer[..length], data.start) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    take(Part::Data(&buffer[..count]))?;
                    data.start += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
    Ok(())
}

/// Copies a range of a file into an empty one, within the kernel where the file systems can do
/// that. Returns the number of bytes, fewer than asked for if the file ends early.
pub(crate) fn copy_range(mut from: &File, range: Range<u64>, mut into: &File) -> io::Result<u64> {
    let mut copied_bytes = 0;
    for segment in Segments::of(from, range) {
        match segment {
            Segment::Hole(hole) => {
                copied_bytes += hole.end - hole.start;
                into.set_len(copied_bytes)?;
                into.seek(SeekFrom::Start(copied_bytes))?;
            }
            Segment::Data(data) => {
                from.seek(SeekFrom::Start(data.start))?;
                let length = data.end - data.start;
                let copied = io::copy(&mut io::Read::take(from, length), &mut into)?;
                copied_bytes += copied;
                if copied < length {
                    break;
                }
            }
        }
    }
    Ok(copied_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A sparse file; `None` if the file system of temporary files has no holes.
    fn sparse(data: &[Range<u64>], size_bytes: u64) -> Option<File> {
        let file = tempfile::tempfile().unwrap();
        for range in data {
            file.write_all_at(&vec![7; (range.end - range.start) as usize], range.start).unwrap();
        }
        file.set_len(size_bytes).unwrap();
        is_sparse(&file, &file.metadata().unwrap()).then_some(file)
    }

    #[test]
    fn a_range_is_its_data_and_its_holes() {
        const M: u64 = 1 << 20;
        use Segment::{Data, Hole};
        let Some(file) = sparse(&[M..2 * M, 5 * M..6 * M], 9 * M) else { return };
        for (range, expected) in [
            (
                0..9 * M,
                vec![
                    Hole(0..M),
                    Data(M..2 * M),
                    Hole(2 * M..5 * M),
                    Data(5 * M..6 * M),
                    Hole(6 * M..9 * M),
                ],
            ),
            (M + 1..M + 5, vec![Data(M + 1..M + 5)]),
            (3 * M..5 * M + 9, vec![Hole(3 * M..5 * M), Data(5 * M..5 * M + 9)]),
            (7 * M..8 * M, vec![Hole(7 * M..8 * M)]),
            (4 * M..4 * M, vec![]),
        ] {
            assert_eq!(
                Segments::of(&file, range.clone()).collect::<Vec<_>>(),
                expected,
                "{range:?}"
            );
        }
        let coarse =
            |shortest| Segments::of(&file, M..9 * M).with_holes_from(shortest).collect::<Vec<_>>();
        assert_eq!(
            coarse(3 * M),
            [Data(M..2 * M), Hole(2 * M..5 * M), Data(5 * M..6 * M), Hole(6 * M..9 * M)]
        );
        assert_eq!(coarse(3 * M + 1), [Data(M..6 * M), Hole(6 * M..9 * M)]);
        let mut full = tempfile::tempfile().unwrap();
        full.write_all(&[0; 5000]).unwrap();
        assert_eq!(Segments::of(&full, 1..5000).collect::<Vec<_>>(), [Data(1..5000)]);
    }

    #[test]
    fn a_hole_is_told_from_data_and_from_the_end() {
        const M: u64 = 1 << 20;
        let Some(file) = sparse(&[M..2 * M, 5 * M..6 * M], 9 * M) else { return };
        for (range, expected) in [
            (0..M, true),
            (0..M + 1, false),
            (M..M + 1, false),
            (2 * M..5 * M, true),
            (M - 1..3 * M, false),
        ] {
            assert_eq!(is_hole(&file, range.clone()), expected, "{range:?}");
        }
        let full = tempfile::tempfile().unwrap();
        full.write_all_at(&[0; 5000], 0).unwrap();
        assert!(!is_hole(&full, 0..5000), "written zeros");
    }

    #[test]
    fn a_nonzero_byte_is_noticed_in_any_length() {
        for length in [1, ZERO_BLOCK_BYTES - 1, ZERO_BLOCK_BYTES, 3 * ZERO_BLOCK_BYTES + 5] {
            let mut bytes = vec![0; length];
            assert!(is_zeros(&bytes));
            bytes[length - 1] = 1;
            assert!(!is_zeros(&bytes));
        }
    }

    #[test]
    fn blocks_of_zeros_are_found_in_content() {
        const B: usize = ZERO_BLOCK_BYTES;
        let content = |ones: &[usize], length| {
            let mut content = vec![0; length];
            ones.iter().for_each(|at| content[*at] = 1);
            content
        };
        for (content, expected) in [
            (vec![], vec![]),
            (content(&[], 10), vec![(true, 10)]),
            (content(&[5], 3 * B + 1), vec![(false, B), (true, 2 * B + 1)]),
            (content(&[B, 3 * B - 1], 3 * B + 7), vec![(true, B), (false, 2 * B), (true, 7)]),
        ] {
            let runs = without_zeros(&content)
                .map(|part| (matches!(part, Part::Hole(_)), part.size_bytes() as usize));
            assert_eq!(runs.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_copy_has_the_same_bytes_and_the_same_holes() {
        const M: u64 = 1 << 20;
        let Some(file) = sparse(&[M..2 * M, 5 * M..5 * M + 10], 9 * M) else { return };
        for range in [0..9 * M, M + 5..5 * M + 3, 3 * M..4 * M] {
            let copied = tempfile::tempfile().unwrap();
            let length = range.end - range.start;
            assert_eq!(copy_range(&file, range.clone(), &copied).unwrap(), length);
            let content = |file: &File, start| {
                let mut content = vec![1; length as usize];
                file.read_exact_at(&mut content, start).unwrap();
                content
            };
            assert!(content(&copied, 0) == content(&file, range.start), "{range:?}");
            assert_eq!(copied.metadata().unwrap().len(), length);
            assert!(
                copied.metadata().unwrap().blocks() <= file.metadata().unwrap().blocks() + 16,
                "{range:?}"
            );
        }
        // The file has become shorter.
        assert_eq!(
            copy_range(&file, 8 * M..20 * M, &tempfile::tempfile().unwrap()).unwrap(),
            12 * M
        );
    }
}
