//! Partitions lines by key for the shuffle, so that each reducer gets all lines of its keys.
//!
//! The output of one program is one file: all lines for the first reducer, then all lines for the
//! second, and so on. A trailer follows: for each reducer the offset at which its lines end, as
//! eight bytes, little-endian.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use memchr::memchr;

use super::line_sort::{self, read_lines, with_line_feed};

/// Maximum number of reducers of a job. Partitioning opens one temporary file for each reducer.
pub const MAX_REDUCERS: u32 = 256;

/// Maximum bytes of lines that a task holds in memory while it partitions. An equal part of this
/// belongs to each reducer; when it is full, its lines move to the temporary file of the reducer.
const PARTITION_MEMORY: usize = 64 << 20;

/// Size of one offset in the trailer.
const END_BYTES: u64 = 8;

/// Partitions the lines of all `sources` by key, the text before the first tab. Returns the file to
/// store, which can be read once. The last line of a source may lack its line feed.
pub(crate) fn partition(
    sources: impl IntoIterator<Item = impl Read>,
    partitions: u32,
    scratch: &Path,
) -> io::Result<Box<dyn Read + Send>> {
    let memory = PARTITION_MEMORY / partitions as usize;
    let open = |_| Ok(BufWriter::with_capacity(memory, tempfile::tempfile_in(scratch)?));
    let mut files = (0..partitions).map(open).collect::<io::Result<Vec<BufWriter<File>>>>()?;
    for source in sources {
        read_lines(BufReader::with_capacity(line_sort::BUFFER_BYTES, source), |line, buffered| {
            let file = &mut files[partition_of(line, partitions) as usize];
            match with_line_feed(line, buffered) {
                Some(whole) => file.write_all(whole),
                None => file.write_all(line).and_then(|()| file.write_all(b"\n")),
            }
        })?;
    }
    let (mut parts, mut ends, mut end): (Box<dyn Read + Send>, _, _) =
        (Box::new(io::empty()), Vec::new(), 0);
    for file in files {
        let (mut file, last) = file.into_parts();
        let last = last.expect("a write does not panic");
        end += file.stream_position()? + last.len() as u64;
        ends.extend_from_slice(&u64::to_le_bytes(end));
        file.seek(SeekFrom::Start(0))?;
        parts = Box::new(parts.chain(file).chain(io::Cursor::new(last)));
    }
    Ok(Box::new(parts.chain(io::Cursor::new(ends))))
}

/// Index of the reducer for a line.
fn partition_of(line: &[u8], partitions: u32) -> u32 {
    if partitions == 1 {
        return 0;
    }
    let key = memchr(b'\t', line).map_or(line, |tab| &line[..tab]);
    let (words, rest) = key.as_chunks();
    let mut last = [0; size_of::<u64>()];
    last[..rest.len()].copy_from_slice(rest);
    let mixed = words
        .iter()
        .chain([&last])
        .fold(key.len() as u64, |hash, word| mix(hash ^ u64::from_le_bytes(*word)));
    ((u128::from(mixed) * u128::from(partitions)) >> 64) as u32
}

/// A hash of a number. All workers of a run have the same.
fn mix(number: u64) -> u64 {
    // Digits of pi and of e.
    let product = u128::from(number ^ 0x243f_6a88_85a3_08d3) * 0xb7e1_5162_8aed_2a6b;
    (product >> 64) as u64 ^ product as u64
}

/// Byte range of the trailer in a partitioned file; `None` if the file is too small to have one.
pub(crate) fn trailer_of(size_bytes: u64, partitions: u32) -> Option<Range<u64>> {
    Some(size_bytes.checked_sub(u64::from(partitions) * END_BYTES)?..size_bytes)
}

/// Byte range of a partition's lines, from the content of the trailer. Partitions count from 0.
pub(crate) fn lines_of(trailer: &[u8], partition: u32) -> Option<Range<u64>> {
    let end = |index: usize| Some(u64::from_le_bytes(trailer.as_chunks().0.get(index).copied()?));
    let begin = match partition {
        0 => 0,
        later => end(later as usize - 1)?,
    };
    Some(begin..end(partition as usize)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_key_are_together_and_none_is_lost() {
        let scratch = tempfile::tempdir().unwrap();
        let text = "b\t1\na\t1\n\n\tx\nb\t2\nno tab\na\t3\nno tab\tbut one\nlast";
        for partitions in [1, 3, 200] {
            let mut file = Vec::new();
            partition([text.as_bytes()], partitions, scratch.path())
                .unwrap()
                .read_to_end(&mut file)
                .unwrap();
            let trailer = trailer_of(file.len() as u64, partitions).unwrap();
            let trailer = &file[trailer.start as usize..];
            let mut all = Vec::new();
            for part in 0..partitions {
                let range = lines_of(trailer, part).unwrap();
                let lines = &file[range.start as usize..range.end as usize];
                assert!(lines.is_empty() || lines.ends_with(b"\n"));
                let lines = str::from_utf8(lines).unwrap().lines();
                all.extend(lines.map(|line| (line.split('\t').next().unwrap(), part, line)));
            }
            all.sort_unstable();
            let keys: std::collections::BTreeSet<_> =
                all.iter().map(|(key, part, _)| (key, part)).collect();
            assert_eq!(keys.len(), 5, "each key has one reducer: {all:?}");
            let mut lines: Vec<_> = text.lines().collect();
            let mut found: Vec<_> = all.iter().map(|(_, _, line)| *line).collect();
            lines.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, lines);
        }
        let mut file = Vec::new();
        partition(["a", "b\nc"].map(str::as_bytes), 1, scratch.path())
            .unwrap()
            .read_to_end(&mut file)
            .unwrap();
        assert!(file.starts_with(b"a\nb\nc\n"), "programs that end without a line feed: {file:?}");
        assert_eq!((trailer_of(7, 1), lines_of(&[0; 8], 1)), (None, None));
    }
}
