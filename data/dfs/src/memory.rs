//! Chunks that stay in memory for clients that read them again and again: the pages of their files
//! are locked, so that every process reads them without the disk. First come, first kept: what is
//! read in turns and does not fit has no better order.

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
use rustix::process::{Resource, getrlimit, setrlimit};

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
    accounts: Mutex<LockedAccounts>,
}

#[derive(Default)]
struct LockedAccounts {
    by_number: HashMap<u128, LockedAccount>,
    /// Number of the chunks of all accounts, and their bytes.
    chunks: usize,
    bytes: u64,
}

struct LockedAccount {
    limit_bytes: u64,
    renewed: Instant,
    chunks: HashMap<ObjectId, LockedChunk>,
    bytes: u64,
    /// Why the last chunk that had room was not locked.
    failure: Option<String>,
}

struct LockedChunk {
    size_bytes: u64,
    /// `None` while the chunk is being locked.
    file: Option<LockedFile>,
}

impl LockedAccount {
    fn usage(&self) -> MemoryUse {
        let locked = || self.chunks.values().filter(|chunk| chunk.file.is_some());
        MemoryUse {
            chunks: locked().count() as u64,
            bytes: locked().map(|chunk| chunk.size_bytes).sum(),
            failure: self.failure.clone(),
        }
    }
}

impl LockedAccounts {
    /// Forgets a chunk of an account. Returns it, so that it is unlocked elsewhere.
    fn remove(&mut self, number: u128, object: ObjectId) -> Option<LockedChunk> {
        let account = self.by_number.get_mut(&number)?;
        let chunk = account.chunks.remove(&object)?;
        account.bytes -= chunk.size_bytes;
        (self.chunks, self.bytes) = (self.chunks - 1, self.bytes - chunk.size_bytes);
        Some(chunk)
    }

    fn remove_account(&mut self, number: u128) -> Option<LockedAccount> {
        let account = self.by_number.remove(&number)?;
        self.chunks -= account.chunks.len();
        self.bytes -= account.bytes;
        Some(account)
    }
}

impl LockedChunks {
    pub fn new(store: &Path, limit_bytes: u64) -> Self {
        if limit_bytes > 0 {
            // As much as the process may have. If that is too little, locking fails, and says so.
            let mut limits = getrlimit(Resource::Memlock);
            limits.current = limits.maximum;
            let _ = setrlimit(Resource::Memlock, limits);
        }
        LockedChunks { store: store.to_owned(), limit_bytes, accounts: Mutex::default() }
    }

    /// Opens an account, or renews it.
    pub fn renew(&self, wanted: MemoryAccount) -> MemoryUse {
        let accounts = &mut self.accounts().by_number;
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

    /// Locks a chunk, if its account is open and the account and the node have room. Blocks.
    pub fn keep(&self, number: u128, chunk: ChunkSpec) {
        if self.admit(number, chunk) {
            self.settle(number, chunk.object, self.lock_file(chunk));
        }
    }

    /// Reserves room for a chunk. Returns whether it is to be locked now.
    fn admit(&self, number: u128, chunk: ChunkSpec) -> bool {
        let mut accounts = self.accounts();
        let free = self.limit_bytes - accounts.bytes;
        let is_full = accounts.chunks >= MAX_LOCKED_CHUNKS;
        let Some(account) = accounts.by_number.get_mut(&number) else { return false };
        let ChunkSpec { object, size_bytes, .. } = chunk;
        let rest = account.limit_bytes - account.bytes;
        if size_bytes == 0 || size_bytes > rest || account.chunks.contains_key(&object) {
            return false;
        }
        if size_bytes > free || is_full {
            account.failure = Some(match self.limit_bytes {
                _ if is_full => {
                    format!(
                        "a node keeps up to {MAX_LOCKED_CHUNKS} chunks in memory: write larger ones"
                    )
                }
                0 => "a node keeps no chunks in memory: start its executor with --dfs-memory SIZE"
                    .to_owned(),
                limit => format!(
                    "a node keeps up to {} in memory for all clients: start its executor with a \
                     larger --dfs-memory",
                    format_bytes(limit)
                ),
            });
            return false;
        }
        account.chunks.insert(object, LockedChunk { size_bytes, file: None });
        account.bytes += size_bytes;
        (accounts.chunks, accounts.bytes) = (accounts.chunks + 1, accounts.bytes + size_bytes);
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
        let Some(account) = accounts.by_number.get_mut(&number) else { return };
        match locked {
            Ok(file) => {
                if let Some(chunk) = account.chunks.get_mut(&object) {
                    (chunk.file, account.failure) = (Some(file), None);
                }
            }
            Err(error) => {
                // A chunk that was deleted is no failure.
                if error.kind() != io::ErrorKind::NotFound {
                    account.failure = Some(why(&error));
                }
                accounts.remove(number, object);
            }
        }
    }

    /// Releases an account.
    pub fn release(&self, number: u128) {
        let released = self.accounts().remove_account(number);
        unlock(released.into_iter().collect());
    }

    /// Releases accounts that no client has renewed.
    pub fn release_old(&self) {
        let mut accounts = self.accounts();
        let is_old = |(number, account): (&u128, &LockedAccount)| {
            (account.renewed.elapsed() > MEMORY_TERM).then_some(*number)
        };
        let old: Vec<_> = accounts.by_number.iter().filter_map(is_old).collect();
        unlock(old.into_iter().filter_map(|number| accounts.remove_account(number)).collect());
    }

    /// These chunks are deleted: their memory, and their space on the disk, are released.
    pub fn forget(&self, objects: &[ObjectId]) {
        let mut accounts = self.accounts();
        if accounts.chunks == 0 {
            return;
        }
        let numbers: Vec<_> = accounts.by_number.keys().copied().collect();
        let mut gone = Vec::new();
        for number in numbers {
            gone.extend(objects.iter().filter_map(|object| accounts.remove(number, *object)));
        }
        unlock(gone);
    }

    fn accounts(&self) -> MutexGuard<'_, LockedAccounts> {
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

    const SIZE: u64 = 8192;

    /// A store with this number of chunks, which fit the default limit of locked memory.
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
        assert_eq!(locked.renew(account(1, 2)), kept(0), "nobody had opened the account");
        keep_all();
        keep_all();
        assert_eq!(locked.renew(account(1, 2)), kept(2), "it has room for two");
        locked.forget(&[chunks[0].object]);
        assert_eq!(locked.renew(account(1, 2)), kept(1));
        locked.keep(1, chunks[2]);
        assert_eq!(locked.renew(account(1, 2)), kept(2), "there was room again");
        locked.release(1);
        keep_all();
        assert_eq!(locked.renew(account(1, 2)), kept(0));
        let LockedAccounts { chunks, bytes, .. } = &*locked.accounts();
        assert_eq!((*chunks, *bytes), (0, 0));
    }

    #[test]
    fn the_node_has_a_limit_of_its_own_and_a_missing_chunk_is_no_failure() {
        let (folder, chunks) = store(3);
        let keep = |locked: &LockedChunks, number, chunk| {
            locked.renew(account(number, 9));
            locked.keep(number, chunk);
            locked.renew(account(number, 9))
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
        locked.renew(account(1, 1));
        locked.keep(1, chunks[0]);
        locked.release_old();
        assert_eq!(locked.accounts().bytes, SIZE);
        let old = Instant::now().checked_sub(MEMORY_TERM + RELEASE_EVERY).unwrap();
        locked.accounts().by_number.get_mut(&1).unwrap().renewed = old;
        locked.release_old();
        let accounts = locked.accounts();
        assert_eq!((accounts.bytes, accounts.by_number.len()), (0, 0));
    }
}
