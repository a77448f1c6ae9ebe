//! The shuffle's middle: lines are parted by their keys, so that each reducer has all lines of its keys.
//!
//! What one program wrote is one file: all lines of the first reducer, then those of the second, and so on; and after them
//! where each reducer's end, as eight bytes each, the least significant first.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use eyas_store::Checksum;

/// Most reducers of a job: each program's lines are parted into as many open files.
pub const MAX_REDUCERS: u32 = 256;

/// A line is held in memory: no longer one is taken.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// Bytes that say where a reducer's lines end.
const END_BYTES: u64 = 8;

/// Parts lines by key, which is what is before the first tab: the file that they make, to be read once.
pub(crate) fn partition(source: impl Read, partitions: u32, scratch: &Path) -> io::Result<Box<dyn Read + Send>> {
    let open = |_| Ok(BufWriter::new(tempfile::tempfile_in(scratch)?));
    let mut files = (0..partitions).map(open).collect::<io::Result<Vec<BufWriter<File>>>>()?;
    let (mut source, mut line) = (BufReader::with_capacity(1 << 18, source), Vec::new());
    while source.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
        if line.last() != Some(&b'\n') {
            if line.len() as u64 == MAX_LINE_BYTES {
                return Err(io::Error::other(format!("the program wrote a line of more than {MAX_LINE_BYTES} bytes")));
            }
            line.push(b'\n');
        }
        files[partition_of(&line, partitions) as usize].write_all(&line)?;
        line.clear();
    }
    let (mut parts, mut ends, mut end): (Box<dyn Read + Send>, _, _) = (Box::new(io::empty()), Vec::new(), 0);
    for file in files {
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        end += file.stream_position()?;
        ends.extend_from_slice(&u64::to_le_bytes(end));
        file.seek(SeekFrom::Start(0))?;
        parts = Box::new(parts.chain(file));
    }
    Ok(Box::new(parts.chain(io::Cursor::new(ends))))
}

/// Which reducer gets a line, which ends with a line feed.
fn partition_of(line: &[u8], partitions: u32) -> u32 {
    let key = line.split(|byte| matches!(byte, b'\t' | b'\n')).next().unwrap_or_default();
    (Checksum::of(key).0 % u64::from(partitions)) as u32
}

/// Where in such a file it is said where a reducer's lines end, by the size of the file.
pub(crate) fn ends_at(size_bytes: u64, partitions: u32) -> Option<Range<u64>> {
    Some(size_bytes.checked_sub(u64::from(partitions) * END_BYTES)?..size_bytes)
}

/// Where in such a file the lines of a reducer are, which is one from 0 on, by what is said of the ends.
pub(crate) fn lines_of(ends: &[u8], partition: u32) -> Option<Range<u64>> {
    let end = |of: usize| Some(u64::from_le_bytes(ends.as_chunks().0.get(of).copied()?));
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
            partition(text.as_bytes(), partitions, scratch.path()).unwrap().read_to_end(&mut file).unwrap();
            let ends = ends_at(file.len() as u64, partitions).unwrap();
            let ends = &file[ends.start as usize..];
            let mut all = Vec::new();
            for part in 0..partitions {
                let range = lines_of(ends, part).unwrap();
                let lines = &file[range.start as usize..range.end as usize];
                assert!(lines.is_empty() || lines.ends_with(b"\n"));
                all.extend(
                    str::from_utf8(lines).unwrap().lines().map(|line| (line.split('\t').next().unwrap(), part, line)),
                );
            }
            all.sort_unstable();
            let keys: std::collections::BTreeSet<_> = all.iter().map(|(key, part, _)| (key, part)).collect();
            assert_eq!(keys.len(), 5, "each key has one reducer: {all:?}");
            let mut lines: Vec<_> = text.lines().collect();
            let mut found: Vec<_> = all.iter().map(|(_, _, line)| *line).collect();
            lines.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, lines);
        }
        assert_eq!((ends_at(7, 1), lines_of(&[0; 8], 1)), (None, None));
    }
}
