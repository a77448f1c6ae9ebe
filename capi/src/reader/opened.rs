//! An open file, and the chunks of it that this process keeps open for small reads.
//!
//! A small read of a chunk that is in the store of this node, or that continues the read before it, opens the chunk:
//! its content is checked once, and later reads of it need no message. Other small reads, and large ones, ask the nodes
//! for the bytes that they need.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_client::files::{ChunkContent, DfsClient, File, OpenChunk};
use eyas_client::types::dfs::FileName;

use crate::client::ClientOwner;
use crate::status::{CallError, EyasStatus};

/// Number of chunks that a reader keeps open as files of this node's store.
const MAX_OPEN_FILES: usize = 128;

/// Number of received chunks that a reader keeps in memory.
const MAX_IN_MEMORY: usize = 2;

/// A file and the connections through which it is read.
pub struct OpenFile {
    client: ClientOwner,
    files: DfsClient,
    file: File,
    /// Where each chunk begins, and where the last one ends.
    borders: Vec<u64>,
    recent: Mutex<RecentChunks>,
}

/// The chunks that were read last, with their indices, oldest first.
#[derive(Default)]
struct RecentChunks {
    on_disk: VecDeque<(usize, Arc<OpenChunk>)>,
    in_memory: VecDeque<(usize, Arc<OpenChunk>)>,
    /// Where the last read has ended.
    end: u64,
}

impl RecentChunks {
    fn get(&self, place: usize) -> Option<Arc<OpenChunk>> {
        let mut all = self.on_disk.iter().chain(&self.in_memory);
        all.find(|(other, _)| *other == place).map(|(_, chunk)| chunk.clone())
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
    pub fn open(client: ClientOwner, name: &FileName) -> Result<Self, CallError> {
        let (files, file) = client.on_files(&format!("opening {name}"), async |files| {
            let file = files.stat(name).await?;
            Ok((files, file))
        })?;
        let mut borders = vec![0];
        for chunk in &file.record.chunks {
            borders.push(borders[borders.len() - 1] + chunk.size_bytes);
        }
        Ok(OpenFile { client, files, file, borders, recent: Mutex::default() })
    }

    /// The file, as it was when it was opened.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills the buffer with the bytes from `offset`, as far as the file has them. Returns their number.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, CallError> {
        let end = self.borders[self.borders.len() - 1];
        let wanted = offset.min(end)..offset.saturating_add(buffer.len() as u64).min(end);
        if wanted.is_empty() {
            return Ok(0);
        }
        let buffer = &mut buffer[..(wanted.end - wanted.start) as usize];
        let place = self.borders.partition_point(|border| *border <= wanted.start) - 1;
        let opened = if wanted.end <= self.borders[place + 1] { self.chunk(place, &wanted)? } else { None };
        let begin = wanted.start - self.borders[place];
        match opened.as_ref().map(|opened| &opened.content) {
            Some(ChunkContent::Bytes(bytes)) => {
                buffer.copy_from_slice(&bytes[begin as usize..begin as usize + buffer.len()]);
            }
            Some(ChunkContent::File(file)) => file.read_exact_at(buffer, begin).map_err(|error| {
                let message = format!("{} cannot be read from the store of this node: {error}", self.file.name);
                CallError::new(EyasStatus::Local, message)
            })?,
            None => {
                let mut reading = self.files.read_range(&self.file, wanted);
                self.client.wait(&format!("reading {}", self.file.name), async {
                    let mut rest = &mut *buffer;
                    while let Some(part) = reading.next().await? {
                        let (place, later) = rest.split_at_mut(part.len());
                        place.copy_from_slice(&part);
                        rest = later;
                    }
                    Ok::<_, CallError>(())
                })?;
            }
        }
        Ok(buffer.len())
    }

    /// The open chunk with this index; `None` if the bytes are to be requested.
    fn chunk(&self, place: usize, wanted: &Range<u64>) -> Result<Option<Arc<OpenChunk>>, CallError> {
        let chunk = &self.file.record.chunks[place];
        let continues = {
            let mut recent = self.lock();
            let end = std::mem::replace(&mut recent.end, wanted.end);
            if let Some(opened) = recent.get(place) {
                return Ok(Some(opened));
            }
            end == wanted.start && end > 0
        };
        let is_near = self.files.near().is_some_and(|near| chunk.replicas.contains(&near));
        let is_whole = wanted.end - wanted.start == chunk.size_bytes;
        if is_whole || !is_near && !continues {
            return Ok(None);
        }
        let opening = self.files.open_chunk(&self.file, place, 1);
        match self.client.wait(&format!("reading {}", self.file.name), opening) {
            Ok(opened) => {
                let opened = Arc::new(opened);
                self.lock().add(place, opened.clone());
                Ok(Some(opened))
            }
            // The nodes may still have the bytes that are wanted.
            Err(failure) if failure.status == EyasStatus::Lost => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecentChunks> {
        // Each change of it is whole.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
