//! Reading of published versions: sequential readers get whole chunks, the next one ahead; other readers get only the
//! bytes that they ask for, unless the chunk is at hand.
//!
//! Chunks never change, so a chunk at hand is valid for every version that has it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_dfs::{File, FilesError};
use eyas_types::ObjectId;
use tokio::sync::OnceCell;

use crate::failure::MountFailure;
use crate::mounted::Mounted;
use crate::nodes::Inode;

/// Maximum size of all chunks at hand. When they are larger, those that were used longest ago are dropped.
const MAX_CACHE_BYTES: u64 = 64 << 20;

/// A larger chunk is read in parts.
const MAX_CHUNK_BYTES: u64 = 16 << 20;

/// A chunk of up to this size is always read as a whole.
const SMALL_BYTES: u64 = 64 << 10;

/// A read within this distance of the end of the last one is sequential: the kernel reads ahead in several requests.
const NEAR_BYTES: u64 = 2 << 20;

/// A chunk that is at hand or is being fetched.
type CachedChunk = Arc<OnceCell<Vec<u8>>>;

/// The chunks at hand.
#[derive(Default)]
pub(crate) struct ChunkCache(Mutex<CachedChunks>);

#[derive(Default)]
struct CachedChunks {
    /// Each chunk with its size and the time of its last use.
    chunks: HashMap<ObjectId, (CachedChunk, u64, u64)>,
    bytes: u64,
    /// Number of uses so far.
    now: u64,
}

impl ChunkCache {
    /// A chunk, which may still have to be fetched; `None` if it is not at hand and `adds` is not set.
    fn chunk(&self, object: ObjectId, size_bytes: u64, adds: bool) -> Option<CachedChunk> {
        let mut cached = self.lock();
        cached.now += 1;
        let now = cached.now;
        if let Some((chunk, _, used)) = cached.chunks.get_mut(&object) {
            *used = now;
            return Some(chunk.clone());
        }
        if !adds {
            return None;
        }
        while cached.bytes + size_bytes > MAX_CACHE_BYTES {
            let Some(oldest) = cached.chunks.iter().min_by_key(|(_, (_, _, used))| *used).map(|(object, _)| *object)
            else {
                break;
            };
            cached.remove(oldest);
        }
        let chunk = CachedChunk::default();
        cached.bytes += size_bytes;
        cached.chunks.insert(object, (chunk.clone(), size_bytes, now));
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
        if let Some((_, size_bytes, _)) = self.chunks.remove(&object) {
            self.bytes -= size_bytes;
        }
    }
}

impl Mounted {
    /// Reads up to `length` bytes of a version of a file.
    pub async fn read_version(
        self: &Arc<Self>,
        node: &Inode,
        file: &Arc<File>,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, MountFailure> {
        let is_sequential = {
            let mut state = node.state();
            let before = std::mem::replace(&mut state.read_to, offset.saturating_add(length));
            offset.abs_diff(before) <= NEAR_BYTES
        };
        let (mut read, mut start) = (Vec::with_capacity(length as usize), 0);
        let end = offset.saturating_add(length);
        for (place, chunk) in file.record.chunks.iter().enumerate() {
            let range = offset.max(start)..end.min(start + chunk.size_bytes);
            if !range.is_empty() {
                let size_bytes = chunk.size_bytes;
                let adds = size_bytes <= SMALL_BYTES || (is_sequential && size_bytes <= MAX_CHUNK_BYTES);
                match self.chunks.chunk(chunk.object, size_bytes, adds) {
                    Some(cached) => {
                        if is_sequential {
                            self.read_ahead(file, place + 1);
                        }
                        let content = self.fetched(&cached, file, place).await?;
                        let part = (range.start - start) as usize..(range.end - start) as usize;
                        read.extend_from_slice(content.get(part).unwrap_or_default());
                    }
                    None => {
                        let length = range.end - range.start;
                        read.extend(self.namespace.dfs.read_at(file, range.start, length).await?);
                    }
                }
            }
            start += chunk.size_bytes;
            if start >= end {
                break;
            }
        }
        Ok(read)
    }

    /// Fetches a chunk in the background, if it is not at hand.
    fn read_ahead(self: &Arc<Self>, file: &Arc<File>, place: usize) {
        let Some(chunk) = file.record.chunks.get(place).filter(|chunk| chunk.size_bytes <= MAX_CHUNK_BYTES) else {
            return;
        };
        if self.chunks.chunk(chunk.object, chunk.size_bytes, false).is_some() {
            return;
        }
        let Some(cached) = self.chunks.chunk(chunk.object, chunk.size_bytes, true) else { return };
        let (mounted, file) = (self.clone(), file.clone());
        self.runtime.spawn(async move {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunks_at_hand_are_bounded() {
        let cache = ChunkCache::default();
        let object = |number: u8| ObjectId([number; 16]);
        assert!(cache.chunk(object(0), 1, false).is_none());
        for number in 0..10 {
            assert!(cache.chunk(object(number), MAX_CACHE_BYTES / 4, true).is_some());
            assert!(cache.chunk(object(0), MAX_CACHE_BYTES / 4, true).is_some());
        }
        let at_hand: Vec<u8> = (0..10).filter(|number| cache.chunk(object(*number), 0, false).is_some()).collect();
        assert_eq!(at_hand, [0, 7, 8, 9]);
        cache.forget(object(0));
        assert_eq!(cache.lock().bytes, 3 * (MAX_CACHE_BYTES / 4));
    }
}
