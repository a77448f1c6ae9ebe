//! Damaged copies that are kept instead of being deleted.
//!
//! A damaged copy of a cached object is deleted, since the object can be fetched again. A chunk of
//! the file system may have no other copy: a person may want to look at what is left of it, and a
//! disk that failed to read it may read it later. So the owner of such objects marks them as
//! irreplaceable. A damaged copy of a marked object is moved to `DIR/damaged`, under its name with
//! size and checksum. It is never given out. [`ObjectStore::restore`] reads it again when its file
//! has changed, and takes it back if it matches its checksum.
//!
//! When a store is opened, its marks are not known yet. Damaged copies wait in `DIR/damaged` until
//! [`ObjectStore::mark_irreplaceable`] has named the objects that matter.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use eyas_types::{FileMode, ObjectId};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::checksum::Checksum;
use crate::error::StoreError;
use crate::index::{IndexEntry, file_name, parse_file_name};
use crate::objects::{ObjectStore, seal, sum_up};

/// Maximum number of damaged copies in a store. If there are more, the copy that was asked for
/// longest ago is deleted.
pub const MAX_DAMAGED: usize = 1024;
/// Maximum number of bytes of damaged copies. A single copy is kept even if it is larger.
pub const MAX_DAMAGED_BYTES: u64 = 1 << 30;

/// The damaged copies that a store keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamagedUsage {
    /// Number of damaged copies.
    pub copies: u64,
    /// Bytes of the damaged copies.
    pub bytes: u64,
}

pub(crate) struct Quarantine {
    folder: OwnedFd,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    irreplaceable: HashSet<ObjectId>,
    copies: BTreeMap<ObjectId, QuarantinedCopy>,
}

struct QuarantinedCopy {
    size_bytes: u64,
    checksum: Checksum,
    /// The time when the copy was found or last asked for.
    asked: Instant,
    /// Size and times of the file when it was last read and still damaged.
    read: Option<(i64, i64, i64)>,
    /// Whether it was found when the store was opened, before irreplaceable objects were marked.
    is_unsure: bool,
}

impl Quarantine {
    /// Opens the folder, and creates it if it does not exist.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut shelf = Shelf::default();
        for file in fs::read_dir(folder)? {
            if let Some((id, size_bytes, checksum)) =
                file?.file_name().to_str().and_then(parse_file_name)
            {
                shelf.copies.insert(id, QuarantinedCopy::new(size_bytes, checksum, false));
            }
        }
        Ok(Quarantine { folder: File::open(folder)?.into(), shelf: Mutex::new(shelf) })
    }

    /// Whether a damaged copy of the object is kept.
    pub fn is_kept(&self, id: ObjectId) -> bool {
        self.shelf().irreplaceable.contains(&id)
    }

    /// Adds a damaged copy that was moved to the folder under its [`name`]. Deletes other copies if
    /// the limits are exceeded.
    pub fn add(&self, id: ObjectId, size_bytes: u64, checksum: Checksum, is_unsure: bool) {
        let mut shelf = self.shelf();
        let before = shelf.copies.insert(id, QuarantinedCopy::new(size_bytes, checksum, is_unsure));
        if let Some(before) =
            before.filter(|before| (before.size_bytes, before.checksum) != (size_bytes, checksum))
        {
            self.delete(id, &before);
        }
        while shelf.copies.len() > MAX_DAMAGED
            || shelf.copies.len() > 1 && shelf.usage().bytes > MAX_DAMAGED_BYTES
        {
            let others = shelf.copies.iter().filter(|(other, _)| **other != id);
            let Some(oldest) = others.min_by_key(|(_, aside)| aside.asked).map(|(id, _)| *id)
            else {
                return;
            };
            tracing::warn!(
                object = %oldest,
                "deleted a damaged copy, because the limit of damaged copies is reached"
            );
            self.remove(&mut shelf, oldest);
        }
    }

    /// Deletes the damaged copy of an object, because a good copy has arrived or none is needed.
    pub fn forget(&self, id: ObjectId) {
        self.remove(&mut self.shelf(), id);
    }

    fn remove(&self, shelf: &mut Shelf, id: ObjectId) {
        if let Some(aside) = shelf.copies.remove(&id) {
            self.delete(id, &aside);
        }
    }

    fn delete(&self, id: ObjectId, aside: &QuarantinedCopy) {
        // If this fails, the file stays until a person removes it.
        let _ = rustix::fs::unlinkat(
            &self.folder,
            name(id, aside.size_bytes, aside.checksum),
            AtFlags::empty(),
        );
    }

    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // No update of the table can panic half-way.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuarantinedCopy {
    fn new(size_bytes: u64, checksum: Checksum, is_unsure: bool) -> Self {
        QuarantinedCopy { size_bytes, checksum, asked: Instant::now(), read: None, is_unsure }
    }
}

impl Shelf {
    fn usage(&self) -> DamagedUsage {
        let bytes = self.copies.values().map(|aside| aside.size_bytes).sum();
        DamagedUsage { copies: self.copies.len() as u64, bytes }
    }
}

impl ObjectStore {
    /// Marks objects that may have no other copy: damaged copies of them are kept from now on.
    /// Damaged copies of other objects that were found when the store was opened are deleted.
    pub fn mark_irreplaceable(&self, objects: impl IntoIterator<Item = ObjectId>) {
        let damaged = self.damaged_copies();
        let mut shelf = damaged.shelf();
        shelf.irreplaceable.extend(objects);
        let Shelf { irreplaceable, copies } = &mut *shelf;
        let unsure = copies
            .iter_mut()
            .filter_map(|(id, aside)| std::mem::take(&mut aside.is_unsure).then_some(*id));
        let useless: Vec<_> = unsure.filter(|id| !irreplaceable.contains(id)).collect();
        useless.into_iter().for_each(|id| damaged.remove(&mut shelf, id));
    }

    /// Removes the mark: damaged copies of the object are deleted from now on. A damaged copy that
    /// is kept already stays.
    pub fn mark_replaceable(&self, object: ObjectId) {
        self.damaged_copies().shelf().irreplaceable.remove(&object);
    }

    /// The number and size of the damaged copies.
    pub fn damaged(&self) -> DamagedUsage {
        self.damaged_copies().shelf().usage()
    }

    /// Whether a damaged copy of the object is kept.
    pub fn has_damaged(&self, object: ObjectId) -> bool {
        self.damaged_copies().shelf().copies.contains_key(&object)
    }

    /// Deletes the damaged copy of an object, if there is one.
    pub fn forget_damaged(&self, object: ObjectId) {
        self.damaged_copies().forget(object);
    }

    /// Deletes damaged copies that were not asked for since `moment`.
    pub fn forget_damaged_before(&self, moment: Instant) {
        let damaged = self.damaged_copies();
        let mut shelf = damaged.shelf();
        let stale =
            shelf.copies.iter().filter(|(_, aside)| aside.asked < moment).map(|(id, _)| *id);
        let stale: Vec<_> = stale.collect();
        stale.into_iter().for_each(|id| damaged.remove(&mut shelf, id));
    }

    /// Returns a damaged copy to the store if its content matches its checksum after all, because
    /// the disk reads it again or a person has replaced the file. The file is read only if it has
    /// changed since it was last read. Returns whether the object is in the store now. Blocks.
    ///
    /// # Errors
    /// `Io` if the disk fails.
    pub fn restore(&self, object: ObjectId) -> Result<bool, StoreError> {
        let damaged = self.damaged_copies();
        let (size_bytes, checksum, read) = {
            let mut shelf = damaged.shelf();
            let Some(aside) = shelf.copies.get_mut(&object) else { return Ok(false) };
            aside.asked = Instant::now();
            (aside.size_bytes, aside.checksum, aside.read)
        };
        let name = name(object, size_bytes, checksum);
        let failed = |error: io::Error| {
            StoreError::io(format!("cannot read the damaged copy of object {object}"), error)
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(damaged.folder(), &name, flags, Mode::empty())
            .map_err(|e| failed(e.into()))?;
        let mut file = File::from(file);
        let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
        let mode = FileMode::of(stat.st_mode);
        let seen = (stat.st_size, stat.st_mtime, stat.st_mtime_nsec as i64);
        if read == Some(seen) {
            return Ok(false);
        }
        let summed = sum_up(&mut file, size_bytes).map_err(failed)?;
        let Some(summing) = summed.filter(|summing| summing.whole() == checksum) else {
            if let Some(aside) = damaged.shelf().copies.get_mut(&object) {
                aside.read = Some(seen);
            }
            return Ok(false);
        };
        seal(&file, mode).map_err(|e| failed(e.into()))?;
        let partial = self.new_partial();
        rustix::fs::renameat(damaged.folder(), &name, self.partial(), &partial)
            .map_err(|e| failed(e.into()))?;
        let entry = IndexEntry { size_bytes, checksum, mode, verified: true };
        if self.publish(&partial, object, entry)? {
            self.remembered().insert(object, &summing);
        } else {
            // A good copy has arrived in the meantime.
            self.discard_partial(&partial);
        }
        tracing::info!(%object, "a damaged copy was repaired and is used again");
        Ok(true)
    }
}

/// The file name of a damaged copy.
pub(crate) fn name(id: ObjectId, size_bytes: u64, checksum: Checksum) -> String {
    // Without the folder, which only good objects have.
    file_name(id, size_bytes, checksum)[3..].to_owned()
}
