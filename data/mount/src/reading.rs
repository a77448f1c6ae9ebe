//! Reading of published versions. Each file that is read has a reader; all of them share the chunks
//! that are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eyas_files::{ChunkCache, DfsClient, File, FileReader};

use crate::failure::MountFailure;
use crate::inode::{Inode, InodeState};

/// Number of threads that receive requests of the kernel.
pub(crate) const THREADS: usize = 4;

/// Maximum number of threads that wait for a disk at the same time, of those that take the kernel's
/// requests. Other reads wait in the background, which costs more.
const MAX_WAITING: usize = THREADS / 2;

/// Reads published versions.
pub(crate) struct Readers {
    dfs: DfsClient,
    /// The chunks that are open.
    chunks: Arc<ChunkCache>,
    /// Number of threads that wait for a disk, of those that take the kernel's requests.
    waiting_for_disk: AtomicUsize,
}

impl Readers {
    pub fn new(dfs: DfsClient) -> Self {
        Readers { dfs, chunks: ChunkCache::shared(), waiting_for_disk: AtomicUsize::new(0) }
    }

    /// Reads from a chunk that is open. Waits for the disk, if not too many threads do so already.
    /// `None` if the bytes are elsewhere.
    pub fn read_local(&self, node: &Inode, offset: u64, length: u64) -> Option<Vec<u8>> {
        let reader = {
            let mut state = node.state();
            if state.draft().is_some() {
                return None;
            }
            let file = state.readable(state.file())?;
            self.reader(&mut state, &file)
        };
        let mut read = vec![0; length.min(reader.size_bytes().saturating_sub(offset)) as usize];
        match DiskWaitPermit::begin(&self.waiting_for_disk) {
            Some(_permit) => reader.read_local(offset, &mut read)?,
            None => reader.try_read_local(offset, &mut read)?,
        };
        Some(read)
    }

    /// Reads up to `length` bytes of a version of a file.
    pub async fn read(
        &self,
        node: &Inode,
        file: &Arc<File>,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, MountFailure> {
        let reader = self.reader(&mut node.state(), file);
        Ok(reader.read_at(offset, length).await?)
    }

    fn reader(&self, state: &mut InodeState, file: &Arc<File>) -> Arc<FileReader> {
        let begin = || FileReader::of_mount(self.dfs.clone(), file.clone(), self.chunks.clone());
        state.reader(file, begin)
    }
}

/// A thread that takes the kernel's requests, while it waits for a disk.
struct DiskWaitPermit<'a>(&'a AtomicUsize);

impl<'a> DiskWaitPermit<'a> {
    /// `None` if not enough threads would be left for other requests.
    fn begin(threads: &'a AtomicUsize) -> Option<Self> {
        let more = |waiting| (waiting < MAX_WAITING).then_some(waiting + 1);
        threads
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(|_| DiskWaitPermit(threads))
    }
}

impl Drop for DiskWaitPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
