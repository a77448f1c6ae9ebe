//! An open file, and the chunks of it that stay open for later reads.
//!
//! A small read that continues the read before it opens the chunk, and so does the second small read of a chunk that is
//! in the store of this node: its content is checked once, and later reads of it need no message. Other small reads,
//! and large ones, read only the bytes that they need.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_types::dfs::FileName;

use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::near::{ChunkContent, OpenChunk};
use crate::client::{DfsClient, File};

/// Number of chunks that a reader keeps open as files of this node's store.
const MAX_OPEN_FILES: usize = 128;

/// Number of received chunks that a reader keeps in memory.
const MAX_IN_MEMORY: usize = 2;

/// Number of chunks of which a reader remembers that a part was read.
const MAX_TOUCHED: usize = 1024;

/// A file and the connections through which it is read, at the version that it had when it was opened.
pub struct OpenFile {
    files: DfsClient,
    file: File,
    /// Where each chunk begins, and where the last one ends.
    borders: Vec<u64>,
    recent: Mutex<RecentChunks>,
}

/// Chunks that are open, with their indices, that of the oldest read first.
#[derive(Default)]
struct RecentChunks {
    on_disk: VecDeque<(usize, Arc<OpenChunk>)>,
    in_memory: VecDeque<(usize, Arc<OpenChunk>)>,
    /// Chunks of which a part was read without opening them, the oldest first.
    touched: VecDeque<usize>,
    /// Where the last read has ended.
    end: u64,
}

impl RecentChunks {
    fn get(&mut self, place: usize) -> Option<Arc<OpenChunk>> {
        [&mut self.on_disk, &mut self.in_memory].into_iter().find_map(|chunks| {
            let found = chunks.iter().position(|(other, _)| *other == place)?;
            let entry = chunks.remove(found)?;
            let chunk = entry.1.clone();
            chunks.push_back(entry);
            Some(chunk)
        })
    }

    /// A part of a chunk is read that is not open. Whether that has happened before.
    fn touch(&mut self, place: usize) -> bool {
        let is_known = self.touched.contains(&place);
        if !is_known {
            if self.touched.len() == MAX_TOUCHED {
                self.touched.pop_front();
            }
            self.touched.push_back(place);
        }
        is_known
    }

    fn add(&mut self, place: usize, chunk: Arc<OpenChunk>) {
        let (chunks, most) = match chunk.content {
            ChunkContent::File(_) => (&mut self.on_disk, MAX_OPEN_FILES),
            ChunkContent::Bytes(_) => (&mut self.in_memory, MAX_IN_MEMORY),
        };
        if chunks.len() == most {
            chunks.pop_front();
        }
        chunks.push_back((place, chunk));
    }
}

impl OpenFile {
    /// Opens the present version of a file.
    ///
    /// # Errors
    /// As [`stat`](DfsClient::stat).
    pub async fn open(files: DfsClient, name: &FileName) -> Result<Self, FilesError> {
        let file = files.stat(name).await?;
        let mut borders = vec![0];
        for chunk in &file.record.chunks {
            borders.push(borders[borders.len() - 1] + chunk.size_bytes);
        }
        Ok(OpenFile { files, file, borders, recent: Mutex::default() })
    }

    /// The file, as it was when it was opened.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills the buffer with the bytes from `offset`, as far as the file has them. Returns their number. Waits for the
    /// disk of this machine on the thread that polls it.
    ///
    /// # Errors
    /// `Lost` if no replica of a chunk can be read; `Local` if a chunk in the store of this node cannot be read any
    /// longer.
    pub async fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        let end = self.borders[self.borders.len() - 1];
        let wanted = offset.min(end)..offset.saturating_add(buffer.len() as u64).min(end);
        if wanted.is_empty() {
            return Ok(0);
        }
        let buffer = &mut buffer[..(wanted.end - wanted.start) as usize];
        let place = self.borders.partition_point(|border| *border <= wanted.start) - 1;
        let opened = if wanted.end <= self.borders[place + 1] { self.chunk(place, &wanted).await? } else { None };
        let begin = wanted.start - self.borders[place];
        match opened.as_ref().map(|opened| &opened.content) {
            Some(ChunkContent::Bytes(bytes)) => {
                buffer.copy_from_slice(&bytes[begin as usize..begin as usize + buffer.len()]);
            }
            Some(ChunkContent::File(file)) => file.read_exact_at(buffer, begin).map_err(|error| {
                let message = format!("{} cannot be read from the store of this node: {error}", self.file.name);
                FilesError::new(FilesErrorKind::Local, message)
            })?,
            None => {
                let mut reading = self.files.read_range(&self.file, wanted);
                let mut rest = &mut *buffer;
                while let Some(part) = reading.next().await? {
                    let (place, later) = rest.split_at_mut(part.len());
                    place.copy_from_slice(&part);
                    rest = later;
                }
            }
        }
        Ok(buffer.len())
    }

    /// The open chunk with this index; `None` if the bytes are to be requested.
    async fn chunk(&self, place: usize, wanted: &Range<u64>) -> Result<Option<Arc<OpenChunk>>, FilesError> {
        let chunk = &self.file.record.chunks[place];
        let (continues, was_touched) = {
            let mut recent = self.lock();
            let end = std::mem::replace(&mut recent.end, wanted.end);
            if let Some(opened) = recent.get(place) {
                return Ok(Some(opened));
            }
            (end == wanted.start && end > 0, recent.touch(place))
        };
        let is_whole = *wanted == (self.borders[place]..self.borders[place + 1]);
        let is_near = self.files.near().is_some_and(|near| chunk.replicas.contains(&near));
        if is_whole || !(continues || is_near && was_touched) {
            return Ok(None);
        }
        match self.files.open_chunk(&self.file, place, 1, false).await {
            Ok(opened) => {
                let opened = Arc::new(opened);
                self.lock().add(place, opened.clone());
                Ok(Some(opened))
            }
            // The nodes may still have the bytes that are wanted.
            Err(failure) if failure.kind == FilesErrorKind::Lost => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecentChunks> {
        // Each change of it is whole.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunk_that_was_not_read_for_the_longest_time_is_closed_first() {
        let mut recent = RecentChunks::default();
        let add = |recent: &mut RecentChunks, place| {
            recent.add(place, Arc::new(OpenChunk { content: ChunkContent::Bytes(Vec::new()), ends: Vec::new() }));
        };
        (0..MAX_IN_MEMORY).for_each(|place| add(&mut recent, place));
        assert!(recent.get(0).is_some());
        add(&mut recent, 7);
        assert!(!recent.touch(5) && recent.touch(5));
        assert!(recent.get(1).is_none() && recent.get(0).is_some() && recent.get(7).is_some());
    }
}
