//! The content of a draft as a publication stores it: the bytes of the scratch file, and those that
//! are still in the version on which the draft is based.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use eyas_types::dfs::{FileName, PROBED_BYTES, RecordFormat};
use tokio::runtime::Handle;

use crate::DfsClient;
use crate::draft::DraftSnapshot;
use crate::source::ContentSource;
use crate::write::rewrite::NewContent;

/// Number of bytes that are read from a draft at a time when it is published.
pub const READ_BYTES: usize = 1 << 20;

/// The content of a draft.
#[derive(Clone)]
pub struct DraftContent {
    /// Reads the base.
    pub dfs: DfsClient,
    /// The draft.
    pub snapshot: Arc<DraftSnapshot>,
    /// The runtime of the client, for threads that wait for the base.
    pub runtime: Handle,
}

impl DraftContent {
    /// The format of the content. A guess is made again for new content, and for content of which
    /// the version before had only a part of the beginning.
    pub async fn format(&self, name: &FileName) -> io::Result<RecordFormat> {
        let (base, is_whole) = (self.snapshot.base.as_ref(), self.snapshot.is_whole);
        match base.map(|base| &base.record) {
            Some(record) if !record.format.is_guessed => return Ok(record.format),
            Some(record) if !is_whole && record.size_bytes() >= PROBED_BYTES as u64 => {
                return Ok(record.format);
            }
            _ => {}
        }
        let range = 0..self.snapshot.size_bytes.min(PROBED_BYTES as u64);
        let beginning = match self.read_local(range.clone()) {
            Some(beginning) => beginning,
            None => {
                let reader = self.reader(range.clone());
                let reading =
                    tokio::task::spawn_blocking(move || read_all(reader, range.end as usize));
                match (reading.await.unwrap_or_else(eyas_panics::resume), base) {
                    (Ok(beginning), _) => beginning,
                    // Another client may have replaced the version, which storing the content finds
                    // out.
                    (Err(_), Some(base)) => return Ok(base.record.format),
                    (Err(error), None) => return Err(error),
                }
            }
        };
        Ok(RecordFormat::guess(name.base_name(), &beginning))
    }
}

impl NewContent for DraftContent {
    fn reader(&self, range: Range<u64>) -> Box<dyn ContentSource> {
        Box::new(DraftReader { content: self.clone(), at: range.start, end: range.end })
    }

    fn read_local(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let is_here = self.snapshot.missing(range.clone()).is_empty();
        is_here
            .then(|| self.snapshot.read(range.start, (range.end - range.start) as usize).ok())
            .flatten()
    }
}

/// Reads up to `length` bytes. Blocks.
fn read_all(mut reader: Box<dyn ContentSource>, length: usize) -> io::Result<Vec<u8>> {
    let (mut bytes, mut read) = (vec![0; length], 0);
    while read < length {
        match reader.read(&mut bytes[read..])? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads a range of a draft.
struct DraftReader {
    content: DraftContent,
    at: u64,
    end: u64,
}

impl ContentSource for DraftReader {
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
            bytes[(part.start - range.start) as usize..(part.end - range.start) as usize]
                .copy_from_slice(&fetched);
        }
        buffer[..length].copy_from_slice(&bytes);
        self.at = range.end;
        Ok(length)
    }

    fn skip_hole(&mut self, bytes: u64) -> io::Result<bool> {
        let next = self.at + bytes;
        let is_hole = next <= self.end && self.content.snapshot.is_hole(self.at..next);
        self.at = if is_hole { next } else { self.at };
        Ok(is_hole)
    }
}
