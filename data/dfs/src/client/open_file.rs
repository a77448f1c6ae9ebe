//! An open file, and the chunks of it that stay open for later reads.
//!
//! A small read that continues the read before it opens the chunk, and so does the second small read of a chunk that is
//! in the store of this node: its content is checked once, and later reads of it need no message. While a program reads
//! on, the next chunks are opened in the background: one at first, and one more with each chunk. Whole chunks that
//! nodes on this machine have are read from their stores, with several threads, while the last chunk of the read is
//! opened. Other reads request only the bytes that they need.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_types::dfs::FileName;
use tokio::task::JoinHandle;

use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::near::{ChunkContent, ChunkPlace, OpenChunk};
use crate::client::{DfsClient, File};

/// Number of chunks that a reader keeps open as files of this node's store.
const MAX_OPEN_FILES: usize = 128;

/// Number of received chunks that a reader keeps in memory.
const MAX_IN_MEMORY: usize = 2;

/// Number of chunks of which a reader remembers that a part was read.
const MAX_TOUCHED: usize = 1024;

/// Most bytes of chunks that are opened before they are read.
const MAX_AHEAD_BYTES: u64 = 16 << 20;

/// A file and the connections through which it is read, at the version that it had when it was opened.
pub struct OpenFile {
    files: DfsClient,
    file: Arc<File>,
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
    /// Number of chunks that were opened one after the other for reads that continued.
    in_turn: usize,
    /// Chunks that are opened in the background.
    ahead: Vec<(usize, JoinHandle<Result<OpenChunk, FilesError>>)>,
}

impl Drop for RecentChunks {
    fn drop(&mut self) {
        self.ahead.iter().for_each(|(_, opening)| opening.abort());
    }
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

    fn is_open(&self, place: usize) -> bool {
        self.on_disk.iter().chain(&self.in_memory).any(|(other, _)| *other == place)
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
        Ok(OpenFile { files, file: Arc::new(file), borders, recent: Mutex::default() })
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
        if let Some(read) = self.read_at_hand(offset, buffer) {
            return read;
        }
        let wanted = self.range(offset, buffer);
        let buffer = &mut buffer[..(wanted.end - wanted.start) as usize];
        let (first, last) = (self.place(wanted.start), self.place(wanted.end - 1));
        let before = std::mem::replace(&mut self.lock().end, wanted.end);
        let continues = first < last || (before == wanted.start && before > 0);
        let of_chunk = |place: usize| wanted.start.max(self.borders[place])..wanted.end.min(self.borders[place + 1]);
        let is_whole = |place: usize| of_chunk(place) == (self.borders[place]..self.borders[place + 1]);
        let is_large = wanted.end - wanted.start > self.file.record.chunks[last].size_bytes;
        if is_large && !is_whole(last) {
            // While those before it are read.
            self.open_in_background(&mut self.lock(), last..last + 1);
        }
        let mut rest = &mut *buffer;
        let mut place = first;
        while place <= last {
            let end = (place..=last).find(|place| !is_whole(*place)).unwrap_or(last + 1).max(place + 1);
            let range = of_chunk(place).start..of_chunk(end - 1).end;
            let (into, later) = std::mem::take(&mut rest).split_at_mut((range.end - range.start) as usize);
            rest = later;
            match is_whole(place) {
                true => self.read_chunks(place..end, into).await?,
                false => match self.chunk(place, continues, !is_large && place == last).await? {
                    Some(opened) => self.read_chunk(&opened, range.start - self.borders[place], into)?,
                    None => self.request(range, into).await?,
                },
            }
            place = end;
        }
        Ok(buffer.len())
    }

    /// As [`read`](OpenFile::read), if the bytes are in an open chunk; otherwise `None`.
    pub fn read_at_hand(&self, offset: u64, buffer: &mut [u8]) -> Option<Result<usize, FilesError>> {
        let wanted = self.range(offset, buffer);
        if wanted.is_empty() {
            return Some(Ok(0));
        }
        let place = self.place(wanted.start);
        if wanted.end > self.borders[place + 1] {
            return None;
        }
        let opened = {
            let mut recent = self.lock();
            let opened = recent.get(place)?;
            recent.end = wanted.end;
            opened
        };
        let buffer = &mut buffer[..(wanted.end - wanted.start) as usize];
        Some(self.read_chunk(&opened, wanted.start - self.borders[place], buffer).map(|()| buffer.len()))
    }

    /// The part of the file that fits into the buffer.
    fn range(&self, offset: u64, buffer: &[u8]) -> Range<u64> {
        let end = self.borders[self.borders.len() - 1];
        offset.min(end)..offset.saturating_add(buffer.len() as u64).min(end)
    }

    /// The index of the chunk with this byte.
    fn place(&self, offset: u64) -> usize {
        self.borders.partition_point(|border| *border <= offset) - 1
    }

    fn read_chunk(&self, opened: &OpenChunk, begin: u64, buffer: &mut [u8]) -> Result<(), FilesError> {
        match &opened.content {
            ChunkContent::Bytes(bytes) => {
                buffer.copy_from_slice(&bytes[begin as usize..begin as usize + buffer.len()]);
                Ok(())
            }
            ChunkContent::File(file) => file.read_exact_at(buffer, begin).map_err(|error| {
                let message = format!("{} cannot be read from the store of this node: {error}", self.file.name);
                FilesError::new(FilesErrorKind::Local, message)
            }),
        }
    }

    /// Reads whole chunks: from the stores of nodes on this machine as far as possible.
    async fn read_chunks(&self, places: Range<usize>, buffer: &mut [u8]) -> Result<(), FilesError> {
        let first = places.start;
        let mut rest = &mut *buffer;
        let chunks = places.map(|place| {
            let chunk = &self.file.record.chunks[place];
            let (into, later) = std::mem::take(&mut rest).split_at_mut(chunk.size_bytes as usize);
            rest = later;
            ChunkPlace { chunk, into }
        });
        let missing = self.files.read_near(chunks.collect()).await;
        let start = self.borders[first];
        for run in missing.chunk_by(|one, next| one + 1 == *next) {
            let range = self.borders[first + run[0]]..self.borders[first + run[run.len() - 1] + 1];
            self.request(range.clone(), &mut buffer[(range.start - start) as usize..]).await?;
        }
        Ok(())
    }

    /// Reads a range without opening its chunks.
    async fn request(&self, range: Range<u64>, mut buffer: &mut [u8]) -> Result<(), FilesError> {
        let mut reading = self.files.read_range(&self.file, range);
        while let Some(part) = reading.next().await? {
            let (into, later) = std::mem::take(&mut buffer).split_at_mut(part.len());
            into.copy_from_slice(&part);
            buffer = later;
        }
        Ok(())
    }

    /// The open chunk of which a part is read; `None` if the bytes are to be requested. `continues` says that the reads
    /// before and after are next to this one, and `may_open_ahead` that the chunks after this one may be opened, too.
    async fn chunk(
        &self,
        place: usize,
        continues: bool,
        may_open_ahead: bool,
    ) -> Result<Option<Arc<OpenChunk>>, FilesError> {
        let chunk = &self.file.record.chunks[place];
        let (was_touched, ahead) = {
            let mut recent = self.lock();
            if let Some(opened) = recent.get(place) {
                return Ok(Some(opened));
            }
            let ahead = recent.ahead.iter().position(|(ahead, _)| *ahead == place);
            (recent.touch(place), ahead.map(|found| recent.ahead.swap_remove(found)))
        };
        let is_near = self.files.near().is_some_and(|near| chunk.replicas.contains(&near));
        if !(continues || is_near && was_touched) {
            return Ok(None);
        }
        let opened = match ahead {
            Some((_, opening)) => opening.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())),
            None => self.files.open_chunk(&self.file, place, 1, false).await,
        };
        match opened {
            Ok(opened) => {
                let opened = Arc::new(opened);
                let mut recent = self.lock();
                recent.add(place, opened.clone());
                recent.in_turn = if continues { recent.in_turn + 1 } else { 0 };
                if continues && may_open_ahead {
                    let later = self.file.record.chunks[place + 1..].iter().map(|chunk| chunk.size_bytes);
                    let next = place + 1..place + 1 + count_ahead(later, recent.in_turn);
                    self.open_in_background(&mut recent, next);
                }
                Ok(Some(opened))
            }
            // The nodes may still have the bytes that are wanted.
            Err(failure) if failure.kind == FilesErrorKind::Lost => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Opens the chunks at these places, as far as they are not open, and gives up others.
    fn open_in_background(&self, recent: &mut RecentChunks, wanted: Range<usize>) {
        recent.ahead.retain(|(place, opening)| {
            let is_wanted = wanted.contains(place);
            if !is_wanted {
                opening.abort();
            }
            is_wanted
        });
        for place in wanted {
            if recent.is_open(place) || recent.ahead.iter().any(|(ahead, _)| *ahead == place) {
                continue;
            }
            let (files, file) = (self.files.clone(), self.file.clone());
            let opening = tokio::spawn(async move { files.open_chunk(&file, place, 1, false).await });
            recent.ahead.push((place, opening));
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecentChunks> {
        // Each change of it is whole.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many of the next chunks are opened before they are read: up to `most`, and [`MAX_AHEAD_BYTES`].
fn count_ahead(sizes_bytes: impl Iterator<Item = u64>, most: usize) -> usize {
    let mut bytes = 0;
    let fits = |size_bytes: &u64| {
        bytes += size_bytes;
        bytes <= MAX_AHEAD_BYTES
    };
    sizes_bytes.take(most).take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_opened_ahead_up_to_some_number_and_some_bytes() {
        let count = |chunks, size_bytes, most| count_ahead(std::iter::repeat_n(size_bytes, chunks), most);
        assert_eq!(count(10, 1, 3), 3);
        assert_eq!(count(2, 1, 3), 2);
        assert_eq!(count(10, MAX_AHEAD_BYTES / 4, 9), 4);
        assert_eq!(count(10, MAX_AHEAD_BYTES / 4 + 1, 9), 3);
        assert_eq!(count(10, MAX_AHEAD_BYTES + 1, 9), 0);
    }

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
