//! Reads whole chunks into memory of the caller, from the store of a node on this machine. A chunk
//! is checked while it is read, block by block, so that its bytes are still in the cache of the
//! processor.

use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use eyas_store::{Checksum, Hasher};
use eyas_types::dfs::Chunk;

use super::file_state::FileState;
use super::stores::{NearChunk, NearStores};
use super::{COPIED_BYTES, open_chunk_file};

/// Maximum number of threads that read for one caller.
const MAX_THREADS: usize = 4;

/// A chunk that the caller wants, and the place for its content.
pub(crate) struct ChunkPlace<'a> {
    pub chunk: &'a Chunk,
    pub into: &'a mut [u8],
}

/// A chunk that can be read from a store.
struct StoredChunk<'a> {
    /// The number of the chunk for the caller.
    number: usize,
    store: PathBuf,
    known: Arc<NearChunk>,
    wanted: ChunkPlace<'a>,
}

impl NearStores {
    /// Reads chunks from the stores of nodes on this machine, with several threads, and waits for
    /// them. Returns the numbers of the chunks that have to be requested.
    pub async fn read_near(&self, wanted: Vec<ChunkPlace<'_>>) -> Vec<usize> {
        let (mut stored, mut missing) = (Vec::new(), Vec::new());
        for (number, wanted) in wanted.into_iter().enumerate() {
            if wanted.chunk.is_hole() {
                wanted.into.fill(0);
                continue;
            }
            match self.store_near(wanted.chunk).await {
                Some(store) => {
                    let known = self.chunk(wanted.chunk.object);
                    stored.push(Mutex::new(StoredChunk { number, store, known, wanted }));
                }
                None => missing.push(number),
            }
        }
        let processors = available_parallelism().map_or(1, NonZero::get);
        let (next, missed) = (AtomicUsize::new(0), Mutex::new(missing));
        let read = || {
            while let Some(chunk) = stored.get(next.fetch_add(1, Ordering::Relaxed)) {
                // Only the thread with this number locks it.
                let mut chunk = chunk.lock().unwrap_or_else(PoisonError::into_inner);
                if chunk.read().is_none() {
                    missed.lock().unwrap_or_else(PoisonError::into_inner).push(chunk.number);
                }
            }
        };
        std::thread::scope(|threads| {
            for _ in 1..stored.len().min(processors).min(MAX_THREADS) {
                threads.spawn(read);
            }
            read();
        });
        let mut missing = missed.into_inner().unwrap_or_else(PoisonError::into_inner);
        missing.sort_unstable();
        missing
    }
}

impl StoredChunk<'_> {
    /// Fills the place with content that matches the checksum of the chunk; `None` if that is not
    /// possible.
    fn read(&mut self) -> Option<()> {
        let ChunkPlace { chunk, into } = &mut self.wanted;
        let file = open_chunk_file(&self.store, chunk)?;
        let state = FileState::of(&file)?;
        if self.known.is_checked(chunk, state) {
            file.read_exact_at(into, 0).ok()?;
        } else {
            let (mut hasher, mut at) = (Hasher::new(), 0);
            for block in into.chunks_mut(COPIED_BYTES) {
                file.read_exact_at(block, at).ok()?;
                hasher.update(block);
                at += block.len() as u64;
            }
            if hasher.finish() != Checksum(chunk.checksum) {
                return None;
            }
            self.known.set_checked(chunk, state);
        }
        (FileState::of(&file)? == state).then_some(())
    }
}
