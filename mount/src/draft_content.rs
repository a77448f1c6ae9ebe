//! The content of a draft that is being published: bytes that a program has written, and bytes of the version before.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use eyas_dfs::{DfsClient, NewContent};
use eyas_types::dfs::{FileName, PROBED_BYTES, RecordFormat};
use tokio::runtime::Handle;

use crate::draft::DraftSnapshot;

/// Number of bytes that are read from a draft at a time when it is published.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// The content of a draft, of which some bytes are still in the version that it is based on.
#[derive(Clone)]
pub(crate) struct DraftContent {
    pub dfs: DfsClient,
    pub snapshot: Arc<DraftSnapshot>,
    pub runtime: Handle,
}

impl DraftContent {
    /// The format of the content. A guess is made again for new content, and for content of which the version before
    /// had only a part of the beginning.
    pub async fn format(&self, name: &FileName) -> io::Result<RecordFormat> {
        let (base, is_whole) = (self.snapshot.base.as_ref(), self.snapshot.is_whole);
        match base.map(|base| &base.record) {
            Some(record) if !record.format.is_guessed => return Ok(record.format),
            Some(record) if !is_whole && record.size_bytes() >= PROBED_BYTES as u64 => return Ok(record.format),
            _ => {}
        }
        let range = 0..self.snapshot.size_bytes.min(PROBED_BYTES as u64);
        let beginning = match self.at_hand(range.clone()) {
            Some(beginning) => beginning,
            None => {
                let mut reader = self.reader(range);
                let reading = tokio::task::spawn_blocking(move || {
                    let mut beginning = Vec::new();
                    reader.read_to_end(&mut beginning).map(|_| beginning)
                });
                match (reading.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())), base) {
                    (Ok(beginning), _) => beginning,
                    // Another client may have replaced the version, which storing the content finds out.
                    (Err(_), Some(base)) => return Ok(base.record.format),
                    (Err(error), None) => return Err(error),
                }
            }
        };
        Ok(RecordFormat::guess(name.base_name(), &beginning))
    }
}

impl NewContent for DraftContent {
    fn reader(&self, range: Range<u64>) -> Box<dyn Read + Send> {
        Box::new(DraftReader { content: self.clone(), at: range.start, end: range.end })
    }

    fn at_hand(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let is_here = self.snapshot.missing(range.clone()).is_empty();
        is_here.then(|| self.snapshot.read(range.start, (range.end - range.start) as usize).ok()).flatten()
    }
}

/// Reads a range of a draft.
struct DraftReader {
    content: DraftContent,
    at: u64,
    end: u64,
}

impl Read for DraftReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let DraftContent { dfs, snapshot, runtime } = &self.content;
        let length = (self.end - self.at).min(buffer.len() as u64).min(READ_BYTES as u64) as usize;
        let range = self.at..self.at + length as u64;
        let missing = snapshot.missing(range.clone());
        let mut bytes = snapshot.read(range.start, length)?;
        for part in missing {
            let Some(base) = &snapshot.base else { break };
            let fetched = runtime.block_on(dfs.read_at(base, part.start, part.end - part.start));
            let fetched = fetched.map_err(io::Error::other)?;
            bytes[(part.start - range.start) as usize..(part.end - range.start) as usize].copy_from_slice(&fetched);
        }
        buffer[..length].copy_from_slice(&bytes);
        self.at = range.end;
        Ok(length)
    }
}
