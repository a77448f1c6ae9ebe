//! Where the records of a file begin. A file does not say how many records its chunks have, so the
//! chunks are read and their records counted, from the first chunk on, as far as records are asked
//! for. The counts are kept. The same for files outside the file system, whose content is read from
//! a disk.

use std::io::{Read, Seek};
use std::ops::Range;

use eyas_blocks::format::{BadContent, Cutter};
use eyas_types::dfs::{Format, PROBED_BYTES};
use thiserror::Error;
use tokio::sync::Mutex;

use crate::{DfsClient, File, FilesError};

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The records of a file, as far as they were counted.
pub(crate) struct RecordIndex {
    files: DfsClient,
    file: File,
    counted: Mutex<CountedChunks>,
}

#[derive(Default)]
struct CountedChunks {
    /// The number of records of each chunk, from the first chunk on.
    counts: Vec<u64>,
    /// The chunk that was read last, and where its records begin in it.
    last: Option<(usize, Vec<u64>)>,
}

/// Where a record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordStart {
    /// At this byte of the file.
    At(u64),
    /// The file has only this number of records.
    Beyond { records: u64 },
}

impl RecordIndex {
    /// Reads nothing yet.
    pub fn new(files: DfsClient, file: File) -> Self {
        RecordIndex { files, file, counted: Mutex::default() }
    }

    /// Where the record with this number begins; numbers count from 0.
    pub async fn start_of(&self, number: u64) -> Result<RecordStart, FilesError> {
        let record = &self.file.record;
        let size_bytes = record.size_bytes();
        if let Format::Fixed { record_bytes } = *record.format {
            let records = size_bytes.div_ceil(record_bytes.into());
            return Ok(match number < records {
                true => RecordStart::At(number * u64::from(record_bytes)),
                false => RecordStart::Beyond { records },
            });
        }
        if *record.format == Format::Whole {
            let records = u64::from(size_bytes > 0);
            return Ok(if number < records {
                RecordStart::At(0)
            } else {
                RecordStart::Beyond { records }
            });
        }
        let mut counted = self.counted.lock().await;
        let (mut first, mut offset) = (0, 0);
        for (index, chunk) in record.chunks.iter().enumerate() {
            if index == counted.counts.len() {
                let starts = self.starts_of(index).await?;
                counted.counts.push(starts.len() as u64);
                counted.last = Some((index, starts));
            }
            let count = counted.counts[index];
            if number < first + count {
                if counted.last.as_ref().is_none_or(|(last, _)| *last != index) {
                    counted.last = Some((index, self.starts_of(index).await?));
                }
                let start = counted
                    .last
                    .as_ref()
                    .map_or(0, |(_, starts)| starts[(number - first) as usize]);
                return Ok(RecordStart::At(offset + start));
            }
            first += count;
            offset += chunk.size_bytes;
        }
        Ok(RecordStart::Beyond { records: first })
    }

    /// Reads a chunk. Returns where its records begin in it.
    async fn starts_of(&self, index: usize) -> Result<Vec<u64>, FilesError> {
        let content = self.files.chunk(&self.file, index).await?;
        let starts = record_starts(*self.file.record.format, &content);
        starts.map_err(|error| {
            FilesError::invalid(format!("{}: chunk {index}: {error}", self.file.name))
        })
    }
}

/// Why records of a file cannot be found.
#[derive(Debug, Error)]
pub enum RecordsError {
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// The content does not have the format that the file's name promises.
    #[error("{0}")]
    Format(#[from] BadContent),
    /// The file has fewer records.
    #[error(
        "the file has {records} records, and so none from {first} on: the range is beyond its end"
    )]
    BeyondEnd {
        /// Number of records.
        records: u64,
        /// The first record that was asked for, from 0.
        first: u64,
    },
}

/// The bytes of a file that are its records from `first` to the one before `end`, counted from 0.
/// The format is guessed by the name and the first bytes, as for new files of the cluster. The file
/// is read up to the last of these records.
///
/// # Errors
/// If the file has none of these records, does not have its format, or cannot be read.
pub fn bytes_of_records(
    content: &mut std::fs::File,
    base_name: &str,
    first: u64,
    end: u64,
) -> Result<Range<u64>, RecordsError> {
    let format = probe(content, base_name)?;
    content.rewind()?;
    let size_bytes = content.metadata()?.len();
    if let Format::Fixed { record_bytes } = format {
        let start = |record: u64| record.saturating_mul(record_bytes.into()).min(size_bytes);
        if start(first) == size_bytes {
            return Err(RecordsError::BeyondEnd {
                records: size_bytes.div_ceil(record_bytes.into()),
                first,
            });
        }
        return Ok(start(first)..start(end));
    }
    // Of a cutter for chunks of one byte, each chunk is a record.
    let mut cutter = Cutter::new(format, 1);
    // The record with number `record` begins at byte `border`.
    let (mut record, mut border, mut at) = (0, 0, 0);
    let mut begin = (first == 0 && size_bytes > 0).then_some(0);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = content.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        let mut bytes = &buffer[..read];
        while let Some(taken) = cutter.cut(bytes)? {
            bytes = &bytes[taken..];
            at += taken as u64;
            (record, border) = (record + 1, at);
            if record == first && at < size_bytes {
                begin = Some(at);
            }
            if let Some(begin) = begin.filter(|_| record == end) {
                return Ok(begin..at);
            }
        }
        at += bytes.len() as u64;
    }
    cutter.finish()?;
    let records = record + u64::from(border < at);
    begin.map(|begin| begin..at).ok_or(RecordsError::BeyondEnd { records, first })
}

/// The likely format of a file outside the file system.
pub fn probe(file: &mut std::fs::File, base_name: &str) -> std::io::Result<Format> {
    let mut beginning = Vec::new();
    file.by_ref().take(PROBED_BYTES as u64).read_to_end(&mut beginning)?;
    Ok(Format::guess(base_name, &beginning))
}

/// Where records begin in a chunk, which begins with a record.
fn record_starts(format: Format, content: &[u8]) -> Result<Vec<u64>, BadContent> {
    let (mut starts, mut at) = (Vec::new(), 0);
    // Of a cutter for chunks of one byte, each chunk is a record.
    let mut cutter = Cutter::new(format, 1);
    while at < content.len() {
        starts.push(at as u64);
        match cutter.cut(&content[at..])? {
            Some(taken) => at += taken,
            None => break,
        }
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_begin_where_their_format_says() {
        for (format, content, starts) in [
            (Format::Lines, "a\n\nbc\nd", &[0, 2, 3, 6][..]),
            (Format::Lines, "a\n", &[0]),
            (Format::Csv, "a,\"x\ny\"\nb\n", &[0, 8]),
            (Format::Fasta, ">a\nAC\nGT\n>b\nT\n", &[0, 9]),
            (Format::Whole, "a\nb\n", &[0]),
            (Format::Lines, "", &[]),
        ] {
            assert_eq!(
                record_starts(format, content.as_bytes()).unwrap(),
                starts,
                "{format}: {content}"
            );
        }
    }

    #[test]
    fn records_of_files_on_a_disk_are_ranges_of_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(READ_BYTES + 1);
        let two_long = format!("{long}\n{long}");
        let size = two_long.len() as u64;
        for (name, content, first, end, found) in [
            ("a.txt", "a\n\nbc\nd", 0, 1, Ok(0..2)),
            ("a.txt", "a\n\nbc\nd", 1, 3, Ok(2..6)),
            ("a.txt", "a\n\nbc\nd", 3, u64::MAX, Ok(6..7)),
            ("a.txt", "a\n\nbc\nd", 4, 9, Err(4)),
            ("a.txt", "a\nb\n", 1, 2, Ok(2..4)),
            ("a.txt", "a\nb\n", 2, 3, Err(2)),
            ("a.txt", "", 0, 1, Err(0)),
            ("a.csv", "a,\"x\ny\"\nb\n", 1, 2, Ok(8..10)),
            ("a.fasta", ">a\nAC\nGT\n>b\nT\n", 0, 1, Ok(0..9)),
            ("a.fasta", ">a\nAC\nGT\n>b\nT\n", 1, 5, Ok(9..14)),
            ("a", "a\0b", 1, 2, Ok(1..2)),
            ("a", "a\0b", 3, 4, Err(3)),
            ("a", two_long.as_str(), 1, 2, Ok(size / 2 + 1..size)),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let mut file = std::fs::File::open(&path).unwrap();
            match (bytes_of_records(&mut file, name, first, end), found) {
                (Ok(bytes), Ok(expected)) => assert_eq!(bytes, expected, "{name}: {first}-{end}"),
                (Err(RecordsError::BeyondEnd { records, .. }), Err(expected)) => {
                    assert_eq!(records, expected, "{name}")
                }
                (result, expected) => panic!("{name}: {result:?}, expected {expected:?}"),
            }
        }
        let path = folder.path().join("bad.csv");
        std::fs::write(&path, "a,\"b").unwrap();
        let mut file = std::fs::File::open(&path).unwrap();
        assert!(matches!(
            bytes_of_records(&mut file, "bad.csv", 0, 2),
            Err(RecordsError::Format(_))
        ));
    }
}
