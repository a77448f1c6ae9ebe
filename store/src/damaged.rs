//! Damaged copies that are kept aside instead of being deleted.
//!
//! An object of the cache is fetched again when its copy is damaged. A chunk of the file system may have no other copy:
//! what is left of it is all that there is for a person to look at, and a disk that failed to read it may read it later.
//! So the owner of such objects marks them, and a damaged copy of a marked object moves to `DIR/damaged`, under the
//! object's name with size and checksum. It is never given out. [`ObjectStore::restore`] reads it again when it may have
//! changed, and takes it back if it matches its checksum.
//!
//! A store that is opened does not know its marks yet: what it finds damaged waits in `DIR/damaged` until
//! [`ObjectStore::mark_irreplaceable`] has said which objects matter.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use eyas_types::ObjectId;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::checksum::Checksum;
use crate::error::StoreError;
use crate::index::{IndexEntry, file_name, parse_file_name};
use crate::objects::{ObjectStore, seal, sum_up};

/// A store keeps this many damaged copies; of further ones, that which was asked for longest ago is deleted.
pub const MAX_DAMAGED: usize = 1024;
/// Likewise, of bytes. A single larger copy is kept.
pub const MAX_DAMAGED_BYTES: u64 = 1 << 30;

/// What a store has kept aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamagedUsage {
    /// Damaged copies.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
}

pub(crate) struct Damaged {
    folder: OwnedFd,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    irreplaceable: HashSet<ObjectId>,
    copies: BTreeMap<ObjectId, Aside>,
}

struct Aside {
    size_bytes: u64,
    checksum: Checksum,
    /// When it came, or was asked for since.
    asked: Instant,
    /// Size and time of the file when it was read last, in vain.
    read: Option<(i64, i64, i64)>,
    /// Found damaged at open, before it was known which objects matter.
    is_unsure: bool,
}

impl Damaged {
    /// Opens the folder, which is made if need be.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut shelf = Shelf::default();
        for file in fs::read_dir(folder)? {
            if let Some((id, size_bytes, checksum)) = file?.file_name().to_str().and_then(parse_file_name) {
                shelf.copies.insert(id, Aside::new(size_bytes, checksum, false));
            }
        }
        Ok(Damaged { folder: File::open(folder)?.into(), shelf: Mutex::new(shelf) })
    }

    /// Whether a damaged copy of the object is kept.
    pub fn is_kept(&self, id: ObjectId) -> bool {
        self.shelf().irreplaceable.contains(&id)
    }

    /// A damaged copy has come to the folder, under [`name`]. Deletes others if these are too many.
    pub fn add(&self, id: ObjectId, size_bytes: u64, checksum: Checksum, is_unsure: bool) {
        let mut shelf = self.shelf();
        let before = shelf.copies.insert(id, Aside::new(size_bytes, checksum, is_unsure));
        if let Some(before) = before.filter(|before| (before.size_bytes, before.checksum) != (size_bytes, checksum)) {
            self.delete(id, &before);
        }
        while shelf.copies.len() > MAX_DAMAGED || shelf.copies.len() > 1 && shelf.usage().bytes > MAX_DAMAGED_BYTES {
            let others = shelf.copies.iter().filter(|(other, _)| **other != id);
            let Some(oldest) = others.min_by_key(|(_, aside)| aside.asked).map(|(id, _)| *id) else { return };
            tracing::warn!(object = %oldest, "too many damaged copies are kept; this one is deleted");
            self.remove(&mut shelf, oldest);
        }
    }

    /// A good copy has come, or none is wanted.
    pub fn forget(&self, id: ObjectId) {
        self.remove(&mut self.shelf(), id);
    }

    fn remove(&self, shelf: &mut Shelf, id: ObjectId) {
        if let Some(aside) = shelf.copies.remove(&id) {
            self.delete(id, &aside);
        }
    }

    fn delete(&self, id: ObjectId, aside: &Aside) {
        // At worst the file stays until somebody looks at the folder.
        let _ = rustix::fs::unlinkat(&self.folder, name(id, aside.size_bytes, aside.checksum), AtFlags::empty());
    }

    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // No update of it can panic half-way.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Aside {
    fn new(size_bytes: u64, checksum: Checksum, is_unsure: bool) -> Self {
        Aside { size_bytes, checksum, asked: Instant::now(), read: None, is_unsure }
    }
}

impl Shelf {
    fn usage(&self) -> DamagedUsage {
        let bytes = self.copies.values().map(|aside| aside.size_bytes).sum();
        DamagedUsage { copies: self.copies.len() as u64, bytes }
    }
}

impl ObjectStore {
    /// These objects may have no other copy: damaged copies of them are kept aside from now on. What was found damaged at
    /// open, and is of no marked object, is deleted.
    pub fn mark_irreplaceable(&self, objects: impl IntoIterator<Item = ObjectId>) {
        let damaged = self.damaged_copies();
        let mut shelf = damaged.shelf();
        shelf.irreplaceable.extend(objects);
        let Shelf { irreplaceable, copies } = &mut *shelf;
        let unsure = copies.iter_mut().filter_map(|(id, aside)| std::mem::take(&mut aside.is_unsure).then_some(*id));
        let useless: Vec<_> = unsure.filter(|id| !irreplaceable.contains(id)).collect();
        useless.into_iter().for_each(|id| damaged.remove(&mut shelf, id));
    }

    /// Damaged copies of the object are deleted again from now on; one that is kept aside stays.
    pub fn mark_replaceable(&self, object: ObjectId) {
        self.damaged_copies().shelf().irreplaceable.remove(&object);
    }

    /// What is kept aside.
    pub fn damaged(&self) -> DamagedUsage {
        self.damaged_copies().shelf().usage()
    }

    /// Whether a damaged copy of the object is kept aside.
    pub fn has_damaged(&self, object: ObjectId) -> bool {
        self.damaged_copies().shelf().copies.contains_key(&object)
    }

    /// Deletes the damaged copy of an object, if one is kept aside.
    pub fn forget_damaged(&self, object: ObjectId) {
        self.damaged_copies().forget(object);
    }

    /// Deletes damaged copies that nobody has asked for since `moment`.
    pub fn forget_damaged_before(&self, moment: Instant) {
        let damaged = self.damaged_copies();
        let mut shelf = damaged.shelf();
        let stale = shelf.copies.iter().filter(|(_, aside)| aside.asked < moment).map(|(id, _)| *id);
        let stale: Vec<_> = stale.collect();
        stale.into_iter().for_each(|id| damaged.remove(&mut shelf, id));
    }

    /// Takes a copy that is kept aside back into the store, if its content matches its checksum after all: the disk reads it
    /// again, or somebody has put a good copy in its place. Reads it only if its file has changed since it was read last.
    /// Tells whether the object is in the store now. Blocks.
    ///
    /// # Errors
    /// `Io` as the disk says.
    pub fn restore(&self, object: ObjectId) -> Result<bool, StoreError> {
        let damaged = self.damaged_copies();
        let (size_bytes, checksum, read) = {
            let mut shelf = damaged.shelf();
            let Some(aside) = shelf.copies.get_mut(&object) else { return Ok(false) };
            aside.asked = Instant::now();
            (aside.size_bytes, aside.checksum, aside.read)
        };
        let name = name(object, size_bytes, checksum);
        let failed =
            |error: io::Error| StoreError::io(format!("cannot read the damaged copy of object {object}"), error);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(damaged.folder(), &name, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
        let mut file = File::from(file);
        let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
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
        seal(&file, false).map_err(|e| failed(e.into()))?;
        let partial = self.new_partial();
        rustix::fs::renameat(damaged.folder(), &name, self.partial(), &partial).map_err(|e| failed(e.into()))?;
        let entry = IndexEntry { size_bytes, checksum, executable: false, verified: true };
        match self.publish(&partial, object, entry)? {
            true => self.remembered().insert(object, &summing),
            // A good copy came meanwhile.
            false => self.discard_partial(&partial),
        }
        tracing::info!(%object, "a copy that had been damaged is good");
        Ok(true)
    }
}

/// The name that a damaged copy has in the folder.
pub(crate) fn name(id: ObjectId, size_bytes: u64, checksum: Checksum) -> String {
    // Without the folder that it has among the good ones.
    file_name(id, size_bytes, checksum)[3..].to_owned()
}
