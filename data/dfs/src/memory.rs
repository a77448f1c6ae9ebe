//! Chunks that stay in memory for clients that read them again and again: the pages of their files
//! are locked, so that every process reads them without the disk. First come, first kept: what is
//! read in turns and does not fit has no better order.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// The chunks of a node that stay in memory.
pub(crate) struct LockedChunks {
    /// The folder of the store.
    store: PathBuf,
    /// Maximum size of the chunks of all accounts.
    limit_bytes: u64,
    accounts: Mutex<HashMap<u128, LockedAccount>>,
}

struct LockedAccount {
    renewed: Instant,
    chunks: HashMap<ObjectId, LockedChunk>,
    /// Why the last chunk that had room was not locked.
    failure: Option<String>,
}

struct LockedChunk {
    size_bytes: u64,
    /// `None` while the chunk is being locked.
    file: Option<LockedFile>,
}

impl LockedAccount {
    fn bytes(&self) -> u64 {
        self.chunks.values().map(|chunk| chunk.size_bytes).sum()
    }

    fn usage(&self) -> MemoryUse {
        let locked = || self.chunks.values().filter(|chunk| chunk.file.is_some());
        MemoryUse {
            chunks: locked().count() as u64,
            bytes: locked().map(|chunk| chunk.size_bytes).sum(),
            failure: self.failure.clone(),
        }
    }
}

impl LockedChunks {
    pub fn new(store: &Path, limit_bytes: u64) -> Self {
        // As much as the process may have. If that is too little, locking fails, and says so.
        let mut limits = getrlimit(Resource::Memlock);
        limits.current = limits.maximum;
        let _ = setrlimit(Resource::Memlock, limits);
        LockedChunks { store: store.to_owned(), limit_bytes, accounts: Mutex::default() }
    }

    /// Renews an account, and locks those of these chunks for which it and the node have room.
    /// Blocks.
    pub fn keep(&self, wanted: MemoryAccount, chunks: &[ChunkSpec]) -> MemoryUse {
        let number = wanted.number;
        match self.admit(wanted, chunks) {
            Ok(admitted) => {
                for chunk in admitted {
                    self.settle(number, chunk.object, self.lock_file(chunk));
                }
            }
            Err(failure) => return MemoryUse { failure: Some(failure), ..MemoryUse::default() },
        }
        self.accounts().get(&number).map(LockedAccount::usage).unwrap_or_default()
    }

    /// Reserves room for chunks. Returns those that are to be locked now.
    fn admit(&self, wanted: MemoryAccount, chunks: &[ChunkSpec]) -> Result<Vec<ChunkSpec>, String> {
        let mut accounts = self.accounts();
        if accounts.len() >= MAX_MEMORY_ACCOUNTS && !accounts.contains_key(&wanted.number) {
            return Err(format!(
                "a node keeps chunks in memory for {MAX_MEMORY_ACCOUNTS} clients at a time"
            ));
        }
        let mut free = self.limit_bytes - accounts.values().map(LockedAccount::bytes).sum::<u64>();
        let account = accounts.entry(wanted.number).or_insert_with(|| LockedAccount {
            renewed: Instant::now(),
            chunks: HashMap::new(),
            failure: None,
        });
        account.renewed = Instant::now();
        let mut rest = wanted.limit_bytes.saturating_sub(account.bytes());
        let mut admitted = Vec::new();
        for chunk in chunks {
            let ChunkSpec { object, size_bytes, .. } = *chunk;
            if size_bytes == 0 || size_bytes > rest || account.chunks.contains_key(&object) {
                continue;
            }
            if size_bytes > free {
                account.failure = Some(format!(
                    "a node keeps up to {} in memory for all clients: start its executor with a \
                     larger --dfs-memory",
                    format_bytes(self.limit_bytes)
                ));
                continue;
            }
            (rest, free) = (rest - size_bytes, free - size_bytes);
            account.chunks.insert(object, LockedChunk { size_bytes, file: None });
            admitted.push(*chunk);
        }
        Ok(admitted)
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
                account.chunks.remove(&object);
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
        // Unlocking many pages takes long: without the lock.
        drop(released);
    }

    /// Releases accounts that no client has renewed.
    pub fn release_old(&self) {
        let mut accounts = self.accounts();
        let old: Vec<_> =
            accounts.extract_if(|_, account| account.renewed.elapsed() > MEMORY_TERM).collect();
        drop(accounts);
        for (number, account) in old {
            let MemoryUse { chunks, .. } = account.usage();
            tracing::debug!(chunks, "released memory account {number:x}, which nobody renewed");
        }
    }

    /// These chunks are deleted: their memory, and their space on the disk, are released.
    pub fn forget(&self, objects: &[ObjectId]) {
        let mut accounts = self.accounts();
        let mut gone = Vec::new();
        for account in accounts.values_mut() {
            gone.extend(objects.iter().filter_map(|object| account.chunks.remove(object)));
        }
        drop(accounts);
        drop(gone);
    }

    fn accounts(&self) -> MutexGuard<'_, HashMap<u128, LockedAccount>> {
        // No update of the map panics half-way.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a file was not locked, for a person.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::OutOfMemory
        | io::ErrorKind::WouldBlock
        | io::ErrorKind::PermissionDenied => {
            let limit = match getrlimit(Resource::Memlock).current {
                Some(bytes) => format!("at most {}", format_bytes(bytes)),
                None => "no more".to_owned(),
            };
            format!(
                "the system lets a node lock {limit} in memory: raise the limit before its \
                 executor starts (`ulimit -l`), or make the size smaller"
            )
        }
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
        assert_eq!(locked.keep(account(1, 2), &chunks[..1]), kept(1));
        assert_eq!(locked.keep(account(1, 2), &chunks), kept(2));
        assert_eq!(locked.keep(account(1, 2), &chunks[2..]), kept(2), "it is full");
        locked.forget(&[chunks[0].object]);
        assert_eq!(locked.keep(account(1, 2), &chunks[2..]), kept(2), "there is room again");
        locked.release(1);
        assert_eq!(locked.keep(account(1, 2), &[]), kept(0));
    }

    #[test]
    fn the_node_has_a_limit_of_its_own_and_a_missing_chunk_is_no_failure() {
        let (folder, chunks) = store(3);
        let locked = LockedChunks::new(folder.path(), 2 * SIZE);
        assert_eq!(locked.keep(account(1, 9), &chunks[..1]).failure, None);
        let used = locked.keep(account(2, 9), &chunks);
        assert_eq!(used.chunks, 1);
        assert!(used.failure.unwrap().contains("--dfs-memory"));
        let gone = [chunk(9, SIZE)];
        locked.release(2);
        assert_eq!(locked.keep(account(3, 9), &gone), MemoryUse::default());
        // The name of a chunk's file has its size.
        let short = object_path(folder.path(), chunks[1].object, SIZE, Checksum(2));
        std::fs::write(short, "short").unwrap();
        let locked = LockedChunks::new(folder.path(), 1 << 20);
        assert!(locked.keep(account(4, 9), &chunks[1..2]).failure.unwrap().contains("cannot keep"));
    }

    #[test]
    fn accounts_that_nobody_renews_are_released() {
        let (folder, chunks) = store(1);
        let locked = LockedChunks::new(folder.path(), 1 << 20);
        locked.keep(account(1, 1), &chunks);
        locked.release_old();
        assert_eq!(locked.accounts().len(), 1);
        let old = Instant::now().checked_sub(MEMORY_TERM + RELEASE_EVERY).unwrap();
        locked.accounts().get_mut(&1).unwrap().renewed = old;
        locked.release_old();
        assert_eq!(locked.accounts().len(), 0);
    }
}
