//! Chunks that stay in memory for clients that read them again and again. The pages of their files
//! are locked, so that no process waits for the disk. The first chunks that come are kept: of
//! chunks that are read in turns and do not all fit, no choice is better.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use eyas_files::protocol::{ChunkSpec, MEMORY_TERM};
use eyas_files::{LockedFile, MemoryAccount, MemoryUse};
use eyas_store::{Checksum, object_path};
use eyas_types::ObjectId;
use eyas_types::units::format_bytes;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// Interval at which a node looks for accounts that no client has renewed.
pub(crate) const RELEASE_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of accounts of a node.
const MAX_MEMORY_ACCOUNTS: usize = 1024;

/// Maximum number of chunks of a node that are locked at a time. Each is a mapping, of which the
/// system permits 65,530.
const MAX_LOCKED_CHUNKS: usize = 1 << 14;

/// The chunks of a node that stay in memory.
pub(crate) struct LockedChunks {
    /// The folder of the store.
    store: PathBuf,
    /// Maximum size of the chunks of all accounts.
    limit_bytes: u64,
    accounts: Mutex<HashMap<u128, LockedAccount>>,
}

struct LockedAccount {
    limit_bytes: u64,
    renewed: Instant,
    chunks: HashMap<ObjectId, LockedChunk>,
    /// Memory of all its chunks.
    bytes: u64,
    /// Why the last chunk that had room was not locked.
    failure: Option<String>,
}

struct LockedChunk {
    /// Its memory: whole pages.
    bytes: u64,
    /// `None` while the chunk is being locked.
    file: Option<LockedFile>,
}

impl LockedAccount {
    fn usage(&self) -> MemoryUse {
        let (chunks, failure) = (self.chunks.len() as u64, self.failure.clone());
        MemoryUse { chunks, bytes: self.bytes, failure }
    }

    /// Forgets a chunk. Returns it, so that it is unlocked elsewhere.
    fn remove(&mut self, object: ObjectId) -> Option<LockedChunk> {
        let chunk = self.chunks.remove(&object)?;
        self.bytes -= chunk.bytes;
        Some(chunk)
    }
}

impl LockedChunks {
    pub fn new(store: &Path, limit_bytes: u64) -> Self {
        LockedChunks { store: store.to_owned(), limit_bytes, accounts: Mutex::default() }
    }

    /// Opens an account, or renews it.
    pub fn open(&self, wanted: MemoryAccount) -> MemoryUse {
        let mut accounts = self.accounts();
        if accounts.len() >= MAX_MEMORY_ACCOUNTS && !accounts.contains_key(&wanted.number) {
            let failure = Some(format!(
                "a node keeps chunks in memory for {MAX_MEMORY_ACCOUNTS} clients at a time"
            ));
            return MemoryUse { failure, ..MemoryUse::default() };
        }
        let account = accounts.entry(wanted.number).or_insert_with(|| LockedAccount {
            limit_bytes: wanted.limit_bytes,
            renewed: Instant::now(),
            chunks: HashMap::new(),
            bytes: 0,
            failure: None,
        });
        account.renewed = Instant::now();
        account.usage()
    }

    /// Locks a chunk, if its account is open, and the account and the node have room. Blocks.
    pub fn keep(&self, number: u128, chunk: ChunkSpec) {
        if self.admit(number, chunk) {
            self.settle(number, chunk.object, self.lock_file(chunk));
        }
    }

    /// Reserves room for a chunk. Returns whether it is to be locked now.
    fn admit(&self, number: u128, chunk: ChunkSpec) -> bool {
        let mut accounts = self.accounts();
        let used_bytes: u64 = accounts.values().map(|account| account.bytes).sum();
        let used_chunks: usize = accounts.values().map(|account| account.chunks.len()).sum();
        let Some(account) = accounts.get_mut(&number) else { return false };
        let bytes = chunk.size_bytes.next_multiple_of(page_size() as u64);
        let rest = account.limit_bytes - account.bytes;
        if bytes == 0 || bytes > rest || account.chunks.contains_key(&chunk.object) {
            return false;
        }
        account.failure = match self.limit_bytes {
            0 => {
                let why = "a node keeps no chunks in memory: start its executor with --dfs-memory \
                           SIZE";
                Some(why.to_owned())
            }
            limit if bytes > limit - used_bytes => Some(format!(
                "a node keeps up to {} in memory for all clients: start its executor with a \
                 larger --dfs-memory",
                format_bytes(limit)
            )),
            _ if used_chunks >= MAX_LOCKED_CHUNKS => Some(format!(
                "a node keeps up to {MAX_LOCKED_CHUNKS} chunks in memory: write larger ones"
            )),
            _ => None,
        };
        if account.failure.is_some() {
            return false;
        }
        account.chunks.insert(chunk.object, LockedChunk { bytes, file: None });
        account.bytes += bytes;
        true
    }

    fn lock_file(&self, chunk: ChunkSpec) -> io::Result<LockedFile> {
        let ChunkSpec { object, size_bytes, checksum } = chunk;
        let path = object_path(&self.store, object, size_bytes, Checksum(checksum));
        LockedFile::of(&File::open(path)?, size_bytes)
    }

    /// The chunk is locked, or cannot be. Its account may have been released meanwhile.
    fn settle(&self, number: u128, object: ObjectId, locked: io::Result<LockedFile>) {
        let mut accounts = self.accounts();
        let Some(account) = accounts.get_mut(&number) else { return };
        match locked {
            Ok(file) => {
                if let Some(chunk) = account.chunks.get_mut(&object) {
                    chunk.file = Some(file);
                }
            }
            Err(error) => {
                account.remove(object);
                // A chunk that was deleted is no failure.
                if error.kind() != io::ErrorKind::NotFound {
                    account.failure = Some(why(&error));
                }
            }
        }
    }

    /// Releases an account.
    pub fn release(&self, number: u128) {
        let released = self.accounts().remove(&number);
        unlock(released.into_iter().collect());
    }

    /// Releases accounts that no client has renewed.
    pub fn release_old(&self) {
        let mut accounts = self.accounts();
        let is_old =
            |_: &u128, account: &mut LockedAccount| account.renewed.elapsed() > MEMORY_TERM;
        unlock(accounts.extract_if(is_old).collect());
    }

    /// These chunks are deleted: their memory, and their space on the disk, are released.
    pub fn forget(&self, objects: &[ObjectId]) {
        let mut gone = Vec::new();
        for account in self.accounts().values_mut() {
            gone.extend(objects.iter().filter_map(|object| account.remove(*object)));
        }
        unlock(gone);
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<u128, LockedAccount>> {
        // No update of the accounts panics half-way.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unlocks what was removed. That takes long for many pages, so a thread does it.
fn unlock<T: Send + 'static>(removed: Vec<T>) {
    if !removed.is_empty() {
        // Without a thread, it is dropped here.
        let _ = thread::Builder::new().name("unlock".into()).spawn(move || drop(removed));
    }
}

/// Why a file was not locked, for a person. The system has the same error for a limit that is
/// reached, for too little memory and for a disk that fails.
fn why(error: &io::Error) -> String {
    match (error.kind(), getrlimit(Resource::Memlock).current) {
        (
            io::ErrorKind::OutOfMemory
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::PermissionDenied,
            Some(limit),
        ) => format!(
            "the system does not lock a chunk in the memory of a node ({error}), whose limit \
             `ulimit -l` is {}: raise it before the executor starts, or make the size smaller",
            format_bytes(limit)
        ),
        _ => format!("a node cannot keep a chunk in memory: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A multiple of the size of a page, and little enough for the default limit of `ulimit -l`.
    const SIZE: u64 = 1 << 16;

    /// A store with this number of chunks.
    fn store(chunks: u8) -> (tempfile::TempDir, Vec<ChunkSpec>) {
        let folder = tempfile::tempdir().unwrap();
        let chunks: Vec<_> = (1..=chunks).map(|number| chunk(number, SIZE)).collect();
        for ChunkSpec { object, checksum, .. } in &chunks {
            let path = object_path(folder.path(), *object, SIZE, Checksum(*checksum));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![7; SIZE as usize]).unwrap();
        }
        (folder, chunks)
    }

    fn chunk(number: u8, size_bytes: u64) -> ChunkSpec {
        ChunkSpec { object: ObjectId([number; 16]), size_bytes, checksum: number.into() }
    }

    fn account(number: u128, chunks: u64) -> MemoryAccount {
        MemoryAccount { number, limit_bytes: chunks * SIZE }
    }

    #[test]
    fn the_first_chunks_for_which_there_is_room_stay_until_they_are_released() {
        let (folder, chunks) = store(3);
        let locked = LockedChunks::new(folder.path(), 1 << 20);
        let kept = |chunks: u64| MemoryUse { chunks, bytes: chunks * SIZE, failure: None };
        let keep_all = || chunks.iter().for_each(|chunk| locked.keep(1, *chunk));
        keep_all();
        assert_eq!(locked.open(account(1, 2)), kept(0), "nobody had opened the account");
        keep_all();
        keep_all();
        assert_eq!(locked.open(account(1, 2)), kept(2), "it has room for two");
        locked.forget(&[chunks[0].object]);
        assert_eq!(locked.open(account(1, 2)), kept(1));
        locked.keep(1, chunks[2]);
        assert_eq!(locked.open(account(1, 2)), kept(2), "there was room again");
        locked.release(1);
        keep_all();
        assert_eq!(locked.open(account(1, 2)), kept(0));
    }

    #[test]
    fn the_node_has_a_limit_of_its_own_and_a_missing_chunk_is_no_failure() {
        let (folder, chunks) = store(3);
        let keep = |locked: &LockedChunks, number, chunk| {
            locked.open(account(number, 9));
            locked.keep(number, chunk);
            locked.open(account(number, 9))
        };
        let locked = LockedChunks::new(folder.path(), 2 * SIZE);
        assert_eq!(keep(&locked, 1, chunks[0]).failure, None);
        assert_eq!(keep(&locked, 2, chunks[1]).chunks, 1);
        assert!(keep(&locked, 2, chunks[2]).failure.unwrap().contains("a larger --dfs-memory"));
        locked.release(2);
        assert_eq!(keep(&locked, 3, chunk(9, SIZE)), MemoryUse::default());
        let none = LockedChunks::new(folder.path(), 0);
        assert!(keep(&none, 1, chunks[0]).failure.unwrap().contains("with --dfs-memory SIZE"));
        // The name of a chunk's file has its size.
        let short = object_path(folder.path(), chunks[1].object, SIZE, Checksum(2));
        std::fs::write(short, "short").unwrap();
        assert!(keep(&locked, 3, chunks[1]).failure.unwrap().contains("cannot keep"));
    }

    #[test]
    fn accounts_that_nobody_renews_are_released() {
        let (folder, chunks) = store(1);
        let locked = LockedChunks::new(folder.path(), 1 << 20);
        locked.open(account(1, 1));
        locked.keep(1, chunks[0]);
        locked.release_old();
        assert_eq!(locked.open(account(1, 1)).bytes, SIZE);
        let old = Instant::now().checked_sub(MEMORY_TERM + RELEASE_EVERY).unwrap();
        locked.accounts().get_mut(&1).unwrap().renewed = old;
        locked.release_old();
        assert_eq!(locked.accounts().len(), 0);
    }
}
