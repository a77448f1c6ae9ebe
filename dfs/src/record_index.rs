//! Where the records of a file begin. A file does not say how many records its chunks have, so the chunks are read and
//! their records counted, from the first chunk on, as far as records are asked for. The counts are kept.

use eyas_blocks::format::{BadContent, Cutter};
use eyas_types::dfs::Format;
use tokio::sync::Mutex;

use crate::client::{DfsClient, File, FilesError};

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
        if let Format::Fixed { record_bytes } = record.format {
            let records = size_bytes.div_ceil(record_bytes.into());
            return Ok(match number < records {
                true => RecordStart::At(number * u64::from(record_bytes)),
                false => RecordStart::Beyond { records },
            });
        }
        let mut counted = self.counted.lock().await;
        let (mut first, mut offset) = (0, 0);
        for (place, chunk) in record.chunks.iter().enumerate() {
            if place == counted.counts.len() {
                let starts = self.starts_of(place).await?;
                counted.counts.push(starts.len() as u64);
                counted.last = Some((place, starts));
            }
            let count = counted.counts[place];
            if number < first + count {
                if counted.last.as_ref().is_none_or(|(last, _)| *last != place) {
                    counted.last = Some((place, self.starts_of(place).await?));
                }
                let start = counted.last.as_ref().map_or(0, |(_, starts)| starts[(number - first) as usize]);
                return Ok(RecordStart::At(offset + start));
            }
            first += count;
            offset += chunk.size_bytes;
        }
        Ok(RecordStart::Beyond { records: first })
    }

    /// Reads a chunk. Returns where its records begin in it.
    async fn starts_of(&self, place: usize) -> Result<Vec<u64>, FilesError> {
        let content = self.files.chunk(&self.file, place).await?;
        let starts = record_starts(self.file.record.format, &content);
        starts.map_err(|error| FilesError::invalid(format!("{}: chunk {place}: {error}", self.file.name)))
    }
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
            assert_eq!(record_starts(format, content.as_bytes()).unwrap(), starts, "{format}: {content}");
        }
    }
}
