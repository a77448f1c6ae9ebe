//! Reading of published versions: sequential readers get whole chunks, the next one ahead; other readers get only the
//! bytes that they ask for, unless the chunk is in memory. Chunks that a node on this machine keeps are read from the
//! files of its store, and only the system caches them.
//!
//! Chunks never change, so a chunk in memory is valid for every version that has it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_dfs::{File, FilesError};
use eyas_types::ObjectId;
use tokio::sync::OnceCell;

use crate::failure::MountFailure;
use crate::mounted::Mounted;
use crate::nodes::Inode;
use crate::session::THREADS;

/// Maximum size of all chunks in memory. Above it, the chunks that were used longest ago are dropped.
const MAX_CACHE_BYTES: u64 = 64 << 20;

/// Memory of a chunk besides its content.
const ENTRY_BYTES: u64 = 256;

/// A larger chunk is read in parts.
const MAX_CHUNK_BYTES: u64 = 16 << 20;

/// A chunk of up to this size is always read as a whole.
const SMALL_BYTES: u64 = 64 << 10;

/// A read within this distance of the end of the last one is sequential: the kernel reads ahead in several requests.
const NEAR_BYTES: u64 = 2 << 20;

/// Maximum number of threads that wait for a disk at the same time, of those that take the kernel's requests. Other
/// reads wait in the background, which costs more.
const MAX_WAITING: usize = THREADS / 2;

/// A chunk that is in memory or is being fetched.
type CachedChunk = Arc<OnceCell<Vec<u8>>>;

/// The chunks in memory.
#[derive(Default)]
pub(crate) struct ChunkCache(Mutex<CachedChunks>);

#[derive(Default)]
struct CachedChunks {
    /// Each chunk with the bytes that are counted for it and the time of its last use.
    chunks: HashMap<ObjectId, (CachedChunk, u64, u64)>,
    /// The chunks by the time of their last use.
    by_use: BTreeMap<u64, ObjectId>,
    bytes: u64,
    /// Number of uses since the mount began.
    now: u64,
}

impl ChunkCache {
    /// A chunk, which may still have to be fetched; `None` if it is not in memory and `adds` is not set.
    fn chunk(&self, object: ObjectId, size_bytes: u64, adds: bool) -> Option<CachedChunk> {
        let mut cached = self.lock();
        cached.now += 1;
        let now = cached.now;
        if let Some((chunk, _, used)) = cached.chunks.get_mut(&object) {
            let (chunk, before) = (chunk.clone(), std::mem::replace(used, now));
            cached.by_use.remove(&before);
            cached.by_use.insert(now, object);
            return Some(chunk);
        }
        if !adds {
            return None;
        }
        let counted = size_bytes + ENTRY_BYTES;
        while cached.bytes + counted > MAX_CACHE_BYTES {
            let Some(oldest) = cached.by_use.first_key_value().map(|(_, object)| *object) else { break };
            cached.remove(oldest);
        }
        let chunk = CachedChunk::default();
        cached.bytes += counted;
        cached.chunks.insert(object, (chunk.clone(), counted, now));
        cached.by_use.insert(now, object);
        Some(chunk)
    }

    /// A chunk could not be fetched.
    fn forget(&self, object: ObjectId) {
        self.lock().remove(object);
    }

    fn lock(&self) -> MutexGuard<'_, CachedChunks> {
        // No update of the cache panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedChunks {
    fn remove(&mut self, object: ObjectId) {
        if let Some((_, counted, used)) = self.chunks.remove(&object) {
            self.by_use.remove(&used);
            self.bytes -= counted;
        }
    }
}

impl Mounted {
    /// Reads from a chunk that a node on this machine has and whose file is open. Waits for the disk, if not too many
    /// threads do so already. `None` if the bytes are elsewhere.
    pub fn read_at_hand(self: &Arc<Self>, node: &Inode, offset: u64, length: u64) -> Option<Vec<u8>> {
        let file = {
            let state = node.state();
            if state.draft.is_some() {
                return None;
            }
            state.readable(state.file.as_ref())?
        };
        let (mut start, mut place) = (0, 0);
        let chunk = loop {
            let chunk = file.record.chunks.get(place)?;
            if offset < start + chunk.size_bytes {
                break chunk;
            }
            (start, place) = (start + chunk.size_bytes, place + 1);
        };
        let is_last = place + 1 == file.record.chunks.len();
        let (end, chunk_end) = (offset.saturating_add(length), start + chunk.size_bytes);
        if end > chunk_end && !is_last {
            return None;
        }
        let end = end.min(chunk_end);
        let waiting = DiskWaitPermit::begin(&self.waiting_for_disk);
        let read = self.namespace.dfs.part_at_hand(chunk, offset - start..end - start, waiting.is_some())?;
        if node.is_read_on(offset, end) {
            self.read_ahead(node, &file, place + 1);
        }
        Some(read)
    }

    /// Reads up to `length` bytes of a version of a file.
    pub async fn read_version(
        self: &Arc<Self>,
        node: &Inode,
        file: &Arc<File>,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, MountFailure> {
        let is_sequential = node.is_read_on(offset, offset.saturating_add(length));
        let (mut read, mut start) = (Vec::new(), 0);
        let end = offset.saturating_add(length);
        for (place, chunk) in file.record.chunks.iter().enumerate() {
            let range = offset.max(start)..end.min(start + chunk.size_bytes);
            if !range.is_empty() {
                if is_sequential {
                    self.read_ahead(node, file, place + 1);
                }
                let part = self.read_part(file, place, start, range, is_sequential).await?;
                match read.is_empty() {
                    true => read = part,
                    false => read.extend_from_slice(&part),
                }
            }
            start += chunk.size_bytes;
            if start >= end {
                break;
            }
        }
        Ok(read)
    }

    /// Reads a range of a file that is within the chunk with this index, which begins at `start`.
    async fn read_part(
        &self,
        file: &File,
        place: usize,
        start: u64,
        range: Range<u64>,
        is_sequential: bool,
    ) -> Result<Vec<u8>, FilesError> {
        let (dfs, chunk) = (&self.namespace.dfs, &file.record.chunks[place]);
        let size_bytes = chunk.size_bytes;
        let part = range.start - start..range.end - start;
        if chunk.is_hole() {
            return Ok(vec![0; (part.end - part.start) as usize]);
        }
        if is_sequential && let Some(read) = dfs.part_near(chunk, part.clone(), true).await {
            return Ok(read);
        }
        let adds = size_bytes <= SMALL_BYTES || (is_sequential && size_bytes <= MAX_CHUNK_BYTES);
        match self.chunks.chunk(chunk.object, size_bytes, adds) {
            Some(cached) => {
                let content = self.fetched(&cached, file, place).await?;
                Ok(content.get(part.start as usize..part.end as usize).unwrap_or_default().to_vec())
            }
            None => dfs.read_at(file, range.start, range.end - range.start).await,
        }
    }

    /// Fetches a chunk in the background, if it is not in memory; or checks it, if a node on this machine has it.
    fn read_ahead(self: &Arc<Self>, node: &Inode, file: &Arc<File>, place: usize) {
        let Some(chunk) = file.record.chunks.get(place).filter(|chunk| !chunk.is_hole()) else { return };
        if node.state().read_ahead.replace(chunk.object) == Some(chunk.object) {
            return;
        }
        let (mounted, file) = (self.clone(), file.clone());
        self.runtime.spawn(async move {
            let chunk = &file.record.chunks[place];
            if mounted.namespace.dfs.check_near(chunk).await || chunk.size_bytes > MAX_CHUNK_BYTES {
                return;
            }
            let Some(cached) = mounted.chunks.chunk(chunk.object, chunk.size_bytes, true) else { return };
            if let Err(error) = mounted.fetched(&cached, &file, place).await {
                tracing::debug!("a chunk was not read ahead: {error}");
            }
        });
    }

    /// The content of a chunk. Readers of one chunk share its transfer.
    async fn fetched<'a>(&self, cached: &'a CachedChunk, file: &File, place: usize) -> Result<&'a Vec<u8>, FilesError> {
        let content = cached.get_or_try_init(|| self.namespace.dfs.chunk(file, place)).await;
        if content.is_err() {
            self.chunks.forget(file.record.chunks[place].object);
        }
        content
    }
}

impl Inode {
    /// Notes a read. Returns whether it continues the one before.
    fn is_read_on(&self, offset: u64, end: u64) -> bool {
        let before = std::mem::replace(&mut self.state().read_to, end);
        offset.abs_diff(before) <= NEAR_BYTES
    }
}

/// A thread that takes the kernel's requests, while it waits for a disk.
struct DiskWaitPermit<'a>(&'a AtomicUsize);

impl<'a> DiskWaitPermit<'a> {
    /// `None` if not enough threads would be left for other requests.
    fn begin(threads: &'a AtomicUsize) -> Option<Self> {
        let more = |waiting| (waiting < MAX_WAITING).then_some(waiting + 1);
        threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| DiskWaitPermit(threads))
    }
}

impl Drop for DiskWaitPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four chunks of this size fill the cache.
    const QUARTER: u64 = MAX_CACHE_BYTES / 4 - ENTRY_BYTES;

    #[test]
    fn the_chunks_at_hand_are_bounded() {
        let cache = ChunkCache::default();
        let object = |number: u8| ObjectId([number; 16]);
        assert!(cache.chunk(object(0), 1, false).is_none());
        for number in 0..10 {
            assert!(cache.chunk(object(number), QUARTER, true).is_some());
            assert!(cache.chunk(object(0), QUARTER, true).is_some());
        }
        let at_hand: Vec<u8> = (0..10).filter(|number| cache.chunk(object(*number), 0, false).is_some()).collect();
        assert_eq!(at_hand, [0, 7, 8, 9]);
        cache.forget(object(0));
        let cached = cache.lock();
        assert_eq!((cached.bytes, cached.chunks.len(), cached.by_use.len()), (3 * MAX_CACHE_BYTES / 4, 3, 3));
    }
}
