//! Objects whose content is in memory, and objects that are forced to the disk.
//!
//! An object that has just been stored is in the page cache. [`ObjectStore::sync`] returns when a
//! power failure can no longer lose it. One sync of many objects costs little more than that of
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_types::{FileMode, ObjectId};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;

use crate::checksum::Checksum;
use crate::error::{StoreError, StoreErrorKind};
use crate::index::{IndexEntry, file_name, folder_name};
use crate::objects::{ObjectStore, not_here, seal};

/// Up to this number of small objects are synced one by one. For more of them, the whole file
/// system of the store is synced, which also writes what other programs have written there.
const SYNCED_ONE_BY_ONE: usize = 16;

/// An object of at least this size is synced on its own: to write what other programs have written
/// may take longer.
const LARGE_BYTES: u64 = 256 << 10;

/// Syncs of the whole file system of a store.
///
/// The kernel reports an error of the disk to a descriptor once. After a failure, a successful sync
/// with the same descriptor says nothing about objects that were stored before. So the first
/// failure ends these syncs: from then on, each object is synced by itself, through a new
/// descriptor.
#[derive(Default)]
pub(crate) struct WholeSyncs {
    has_failed: Mutex<bool>,
}

impl WholeSyncs {
    /// Syncs with this function, if it has never failed. Returns whether all objects are on the
    /// disk.
    fn is_done(&self, sync: impl FnOnce() -> Result<(), Errno>) -> bool {
        // Held during the sync: of two at the same time, one would not get the error.
        let mut has_failed = self.has_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*has_failed && let Err(error) = sync() {
            tracing::error!(
                "the disk of the store failed to write ({error}); each object is synced by itself \
                 from now on"
            );
            *has_failed = true;
        }
        !*has_failed
    }
}

/// Objects that the disk has failed to write. The kernel reports that once, and keeps the content
/// in memory as if it were on the disk, so a second sync of the same file would succeed. Such an
/// object is written to a new file.
#[derive(Default)]
pub(crate) struct FailedSyncs(Mutex<BTreeSet<ObjectId>>);

impl FailedSyncs {
    pub fn contain(&self, id: ObjectId) -> bool {
        self.objects().contains(&id)
    }

    pub fn add(&self, ids: impl IntoIterator<Item = ObjectId>) {
        self.objects().extend(ids);
    }

    pub fn forget(&self, id: ObjectId) {
        self.objects().remove(&id);
    }

    fn objects(&self) -> MutexGuard<'_, BTreeSet<ObjectId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ObjectStore {
    /// Stores an object whose content is in memory, and returns its checksum. Blocks.
    ///
    /// # Errors
    /// `Full` or `Io` for failures of the disk.
    pub fn put(&self, id: ObjectId, content: &[u8]) -> Result<Checksum, StoreError> {
        let name = self.new_partial();
        let failed = |errno: Errno| StoreError::io(format!("cannot store object {id}"), errno);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.partial(), &name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed)?;
        let written = write_all(&file, content)
            .and_then(|()| seal(&file, FileMode::READABLE))
            .map_err(failed);
        drop(file);
        let checksum = Checksum::of(content);
        let entry = IndexEntry {
            size_bytes: content.len() as u64,
            checksum,
            mode: FileMode::READABLE,
            verified: true,
        };
        let published = written.and_then(|()| self.publish(&name, id, entry));
        if !matches!(published, Ok(true)) {
            self.discard_partial(&name);
        }
        published.map(|_| checksum)
    }

    /// The content of an object. Blocks.
    ///
    /// # Errors
    /// `NotHere`, also if it turns out to be damaged; `Io` if the disk fails.
    pub fn content(&self, id: ObjectId) -> Result<Vec<u8>, StoreError> {
        let mut opened = self.open_object(id)?;
        let mut content = vec![0; opened.size_bytes as usize];
        let failed = |error| StoreError::io(format!("cannot read object {id}"), error);
        opened.file.read_exact(&mut content).map_err(failed)?;
        Ok(content)
    }

    /// Begins to write an object to the disk, and does not wait until it is there.
    ///
    /// # Errors
    /// `NotHere`; `Io` if the disk fails.
    pub fn start_writing(&self, id: ObjectId) -> Result<(), StoreError> {
        let opened = self.open_object(id)?;
        let failed =
            |errno: Errno| StoreError::io(format!("cannot write object {id} to the disk"), errno);
        // The kernel begins to write pages that have changed, and keeps them until they are
        // written. `sync_file_range` does the same, but no safe wrapper of it is among the
        // dependencies.
        rustix::fs::fadvise(&opened.file, 0, None, Advice::DontNeed).map_err(failed)
    }

    /// Returns when these objects are on the disk. Blocks.
    ///
    /// # Errors
    /// `NotHere`; `Full` or `Io` if the disk fails. Then none of the objects can be relied on,
    /// until another sync of them succeeds.
    pub fn sync(&self, ids: &[ObjectId]) -> Result<(), StoreError> {
        for id in ids.iter().filter(|id| self.failed_syncs().contain(**id)) {
            let (entry, _) = self.ready(*id)?;
            self.copy_object(*id, *id, entry.mode)?;
        }
        let entries: Vec<_> = ids
            .iter()
            .map(|id| Ok((*id, self.ready(*id)?.0)))
            .collect::<Result<_, StoreError>>()?;
        let small = entries.iter().filter(|(_, entry)| entry.size_bytes < LARGE_BYTES).count();
        let sync_all = || rustix::io::retry_on_intr(|| rustix::fs::syncfs(self.objects()));
        if small > SYNCED_ONE_BY_ONE && self.whole_syncs().is_done(sync_all) {
            return Ok(());
        }
        let sync = |id: ObjectId, path: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(self.objects(), path, flags, Mode::empty());
            opened
                .and_then(|opened| rustix::io::retry_on_intr(|| rustix::fs::fsync(&opened)))
                .map_err(|errno| match errno {
                    Errno::NOENT => not_here(id),
                    errno => StoreError::io(format!("cannot sync object {id}"), errno),
                })
        };
        // The names of the objects in their folders.
        let mut folders = BTreeMap::new();
        for (id, entry) in entries {
            sync(id, &file_name(id, entry.size_bytes, entry.checksum)).inspect_err(|error| {
                if error.kind != StoreErrorKind::NotHere {
                    self.failed_syncs().add([id]);
                }
            })?;
            folders.insert(folder_name(id), id);
        }
        let synced = folders.iter().try_for_each(|(folder, id)| sync(*id, folder));
        synced.inspect_err(|_| self.failed_syncs().add(ids.iter().copied()))
    }
}

fn write_all(file: &impl std::os::fd::AsFd, mut content: &[u8]) -> Result<(), Errno> {
    while !content.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file, content))?;
        content = &content[written..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_whose_sync_failed_is_written_to_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(folder.path().join("store")).unwrap();
        let [bad, good] = [1, 2].map(|number| ObjectId([number; 16]));
        let put_both = || [bad, good].map(|id| store.put(id, b"content").unwrap());
        put_both();
        let inode = |id| rustix::fs::fstat(&store.open_object(id).unwrap().file).unwrap().st_ino;
        // The files stay open, so that no other file gets their numbers.
        let kept = [bad, good].map(|id| (inode(id), store.open_object(id).unwrap()));
        store.failed_syncs().add([bad]);
        for _ in 0..2 {
            store.sync(&[bad, good]).unwrap();
            assert!(inode(bad) != kept[0].0 && inode(good) == kept[1].0);
            assert!(!store.failed_syncs().contain(bad));
        }
        let written_again = inode(bad);
        store.sync(&[bad]).unwrap();
        assert_eq!((inode(bad), store.content(bad).unwrap()), (written_again, b"content".to_vec()));
        // A copy that arrives takes the place of one that is not on the disk, and of no other.
        store.failed_syncs().add([bad]);
        put_both();
        assert!(inode(bad) != written_again && inode(good) == kept[1].0);
    }

    #[test]
    fn no_sync_of_the_whole_store_is_trusted_after_a_failure() {
        let syncs = WholeSyncs::default();
        assert!(syncs.is_done(|| Ok(())));
        assert!(!syncs.is_done(|| Err(Errno::IO)));
        assert!(!syncs.is_done(|| unreachable!("it has failed")));
    }
}
