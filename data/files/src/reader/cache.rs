//! The chunks that readers keep open: files of stores on this machine, whose content the system
//! caches, and the content of other chunks in memory.
//!
//! Chunks never change, so a chunk that is here is valid for every version that has it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use eyas_types::ObjectId;
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::near::ChunkContent;

/// Memory of a chunk besides its content.
const ENTRY_BYTES: u64 = 256;

/// This number of chunks is kept in memory whatever their size: the one that is read, and the next
/// one.
const MIN_IN_MEMORY: usize = 2;

/// A shared cache uses up to this part of the descriptors that the process may have.
const OPEN_SHARE: usize = 8;

/// A shared cache closes a file that no program has read for this time, as the file keeps the space
/// of a deleted chunk.
const OPEN_UNUSED: Duration = Duration::from_secs(2);

/// The bounds of a cache.
#[derive(Clone, Copy, Debug)]
struct CacheLimits {
    /// Maximum size of all chunks in memory. Above it, the chunks that were used longest ago are
    /// dropped.
    memory_bytes: u64,
    /// Maximum number of open files. Above it, the files that were used longest ago are closed.
    files: usize,
    /// Whether many readers use the cache for a long time.
    is_shared: bool,
}

/// A chunk that is open or is being opened. Readers of one chunk share its transfer.
pub(super) type CachedChunk = Arc<OnceCell<ChunkContent>>;

/// Open chunks.
pub struct ChunkCache {
    limits: CacheLimits,
    chunks: Mutex<CachedChunks>,
}

#[derive(Default)]
struct CachedChunks {
    chunks: HashMap<ObjectId, Entry>,
    in_memory: ByUse,
    /// Counted bytes of those in memory.
    memory_bytes: u64,
    files: ByUse,
    /// Number of uses of chunks.
    uses: u64,
    /// Whether a task closes files that are no longer used.
    are_closed: bool,
}

/// Chunks by the number of their last use.
type ByUse = BTreeMap<u64, ObjectId>;

struct Entry {
    chunk: CachedChunk,
    /// Counted bytes; `None` for a file. A chunk that is still being opened is counted as if it
    /// came into memory.
    bytes: Option<u64>,
    use_number: u64,
    used: Instant,
}

impl ChunkCache {
    /// The cache of one reader: for the chunks that it reads ahead, and the one that it reads.
    pub(super) fn of_reader() -> Arc<Self> {
        ChunkCache::with(CacheLimits { memory_bytes: 32 << 20, files: 128, is_shared: false })
    }

    /// A cache for many readers, such as those of a mount. Files that were written to since they
    /// were checked are not used, and files that are not read any more are closed.
    pub fn shared() -> Arc<Self> {
        let descriptors = getrlimit(Resource::Nofile)
            .current
            .map_or(usize::MAX, |descriptors| descriptors as usize);
        ChunkCache::with(CacheLimits {
            memory_bytes: 64 << 20,
            files: descriptors / OPEN_SHARE,
            is_shared: true,
        })
    }

    fn with(limits: CacheLimits) -> Arc<Self> {
        Arc::new(ChunkCache { limits, chunks: Mutex::default() })
    }

    /// Whether each read makes sure that the file of a chunk is as it was checked.
    pub(super) fn checks_files(&self) -> bool {
        self.limits.is_shared
    }

    /// A chunk that is here, or is being opened.
    pub(super) fn get(&self, object: ObjectId) -> Option<CachedChunk> {
        self.lock().get(object, &self.limits)
    }

    /// A chunk, which is to be opened if it is not here.
    pub(super) fn add(&self, object: ObjectId, size_bytes: u64) -> CachedChunk {
        let mut cached = self.lock();
        if let Some(chunk) = cached.get(object, &self.limits) {
            return chunk;
        }
        let counted = size_bytes + ENTRY_BYTES;
        cached.make_room(&self.limits, counted);
        cached.insert(object, CachedChunk::default(), Some(counted))
    }

    /// A chunk was opened. The one whose place it has taken stays in use where it is read.
    pub(super) fn opened(
        self: &Arc<Self>,
        object: ObjectId,
        chunk: &CachedChunk,
        runtime: &Handle,
    ) {
        if !matches!(chunk.get(), Some(ChunkContent::File(_))) {
            return;
        }
        let begins = {
            let mut cached = self.lock();
            if cached.chunks.get(&object).is_none_or(|entry| entry.bytes.is_none()) {
                return;
            }
            cached.remove(object);
            while cached.files.len() >= self.limits.files.max(1) {
                let Some((_, oldest)) = cached.files.first_key_value() else { break };
                let oldest = *oldest;
                cached.remove(oldest);
            }
            cached.insert(object, chunk.clone(), None);
            self.limits.is_shared && !std::mem::replace(&mut cached.are_closed, true)
        };
        if begins {
            runtime.spawn(close_unused(Arc::downgrade(self)));
        }
    }

    /// A chunk could not be opened, or its file has changed.
    pub(super) fn forget(&self, object: ObjectId) {
        let removed = self.lock().remove(object);
        drop(removed);
    }

    /// The files that were not used for some time. `None` if no file is open, and the task ends.
    fn take_unused(&self) -> Option<Vec<CachedChunk>> {
        let mut cached = self.lock();
        cached.are_closed = !cached.files.is_empty();
        let is_unused = |object: &ObjectId| cached.chunks[object].used.elapsed() >= OPEN_UNUSED;
        let unused: Vec<ObjectId> = cached.files.values().copied().filter(is_unused).collect();
        let unused = unused.into_iter().filter_map(|object| cached.remove(object)).collect();
        cached.are_closed.then_some(unused)
    }

    fn lock(&self) -> MutexGuard<'_, CachedChunks> {
        // No update of the cache panics half-way.
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes files that are no longer used, until none is open.
async fn close_unused(cache: Weak<ChunkCache>) {
    loop {
        sleep(OPEN_UNUSED).await;
        let Some(unused) = cache.upgrade().and_then(|cache| cache.take_unused()) else { break };
        // To close the file of a deleted chunk may take long.
        let _ = tokio::task::spawn_blocking(move || drop(unused)).await;
    }
}

impl CachedChunks {
    fn get(&mut self, object: ObjectId, limits: &CacheLimits) -> Option<CachedChunk> {
        let entry = self.chunks.get_mut(&object)?;
        // Only files of a shared cache are closed by time.
        if limits.is_shared {
            entry.used = Instant::now();
        }
        if entry.use_number != self.uses {
            self.uses += 1;
            let by_use = if entry.bytes.is_some() { &mut self.in_memory } else { &mut self.files };
            by_use.remove(&entry.use_number);
            by_use.insert(self.uses, object);
            entry.use_number = self.uses;
        }
        Some(entry.chunk.clone())
    }

    fn insert(&mut self, object: ObjectId, chunk: CachedChunk, bytes: Option<u64>) -> CachedChunk {
        self.uses += 1;
        let by_use = if bytes.is_some() { &mut self.in_memory } else { &mut self.files };
        by_use.insert(self.uses, object);
        self.memory_bytes += bytes.unwrap_or(0);
        let entry =
            Entry { chunk: chunk.clone(), bytes, use_number: self.uses, used: Instant::now() };
        self.chunks.insert(object, entry);
        chunk
    }

    /// Drops chunks in memory until one that is counted with these bytes fits.
    fn make_room(&mut self, limits: &CacheLimits, counted: u64) {
        while self.memory_bytes + counted > limits.memory_bytes
            && self.in_memory.len() >= MIN_IN_MEMORY
        {
            let Some((_, oldest)) = self.in_memory.first_key_value() else { break };
            let oldest = *oldest;
            self.remove(oldest);
        }
    }

    fn remove(&mut self, object: ObjectId) -> Option<CachedChunk> {
        let entry = self.chunks.remove(&object)?;
        match entry.bytes {
            Some(bytes) => {
                self.in_memory.remove(&entry.use_number);
                self.memory_bytes -= bytes;
            }
            None => drop(self.files.remove(&entry.use_number)),
        }
        Some(entry.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::near::CheckedFile;

    fn object(number: u8) -> ObjectId {
        ObjectId([number; 16])
    }

    fn cache(memory_bytes: u64, files: usize) -> Arc<ChunkCache> {
        ChunkCache::with(CacheLimits { memory_bytes, files, is_shared: false })
    }

    #[test]
    fn the_chunks_in_memory_are_bounded() {
        let quarter = (64 << 20) / 4 - ENTRY_BYTES;
        let cache = cache(64 << 20, 1);
        assert!(cache.get(object(0)).is_none());
        for number in 0..10 {
            cache.add(object(number), quarter);
            cache.add(object(0), quarter);
        }
        let here: Vec<u8> = (0..10).filter(|number| cache.get(object(*number)).is_some()).collect();
        assert_eq!(here, [0, 7, 8, 9]);
        cache.forget(object(0));
        let cached = cache.lock();
        assert_eq!(
            (cached.memory_bytes, cached.chunks.len(), cached.in_memory.len()),
            (3 * (64 << 20) / 4, 3, 3)
        );
    }

    #[test]
    fn two_large_chunks_are_kept() {
        let cache = cache(10, 1);
        (0..3).for_each(|number| drop(cache.add(object(number), 1 << 30)));
        assert_eq!(
            [0, 1, 2].map(|number| cache.get(object(number)).is_some()),
            [false, true, true]
        );
    }

    #[tokio::test]
    async fn open_files_have_a_number_and_take_no_memory() {
        let cache = cache(1 << 20, 2);
        for number in 0..3 {
            let chunk = cache.add(object(number), 1000);
            let file = tempfile::NamedTempFile::new().unwrap();
            let file = CheckedFile::of(file.reopen().unwrap()).unwrap();
            assert!(chunk.set(ChunkContent::File(file)).is_ok());
            cache.opened(object(number), &chunk, &Handle::current());
        }
        assert_eq!(
            [0, 1, 2].map(|number| cache.get(object(number)).is_some()),
            [false, true, true]
        );
        let cached = cache.lock();
        assert_eq!((cached.memory_bytes, cached.files.len(), cached.in_memory.len()), (0, 2, 0));
    }
}
