//! The node-local object store: whole, immutable files, found by object id.
//!
//! ```text
//! DIR/lock                          held by one executor
//! DIR/objects/ab/ab…-SIZE-CHECKSUM  an object: one read-only inode, its metadata in the name
//! DIR/partial/N                     a file being written; removed at the next open
//! DIR/partial/handed-over-…         content from another process, see `handed_over.rs`
//! DIR/damaged/ab…-SIZE-CHECKSUM     a damaged copy that may be the last one, see `damaged.rs`
//! ```
//!
//! Content is published by rename, and synced only where the caller asks for it (`durable.rs`). A
//! crash of the process loses nothing; a power failure may leave zeros under a valid name of an
//! object that was not synced. So objects that are found at open count as unverified, and are read
//! once against their checksum before they are used. An object that does not match is removed and
//! reported as missing, since it can be fetched again. Damaged copies of objects that are marked as
//! irreplaceable are kept.
//!
//! Tasks reach an object through hard links to its inode, and a faulty program can write through
//! them. Every published object is sealed with a fixed modification time. Any write to the inode
//! breaks the seal, which one `stat` shows ([`ObjectStore::verify_seal`]), also after a restart.
//! (The change time does not help, since every link and unlink changes it.)

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_types::{FileMode, ObjectId, ObjectSpec};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::checksum::Checksum;
use crate::damaged::{self, Quarantine};
use crate::durable::{FailedSyncs, WholeSyncs};
use crate::error::{StoreError, StoreErrorKind};
use crate::holes::each_part;
use crate::incoming::Incoming;
use crate::index::{Index, IndexEntry, OBJECTS, PARTIAL, file_name, folder_name, parse_file_name};
use crate::partial_replica::{Arrivals, PartialReplica};
use crate::pieces::{PieceChecksums, PieceHasher};

/// Modification time of every published object, 2000-01-01 in seconds since 1970. A write changes
/// it, so writes are detected. Archivers refuse times before 1980, and accept this one.
const SEAL_S: i64 = 946_684_800;

/// Bytes read at a time when content is verified.
const VERIFY_BUFFER_BYTES: usize = 1 << 20;

/// The object store of one node. Clones share it.
#[derive(Clone)]
pub struct ObjectStore(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    objects: OwnedFd,
    partial: OwnedFd,
    damaged: Quarantine,
    index: Mutex<Index>,
    next_partial: AtomicU64,
    arrivals: Arrivals,
    remembered: PieceChecksums,
    whole_syncs: WholeSyncs,
    failed_syncs: FailedSyncs,
    /// Held as long as any clone lives. The kernel releases it when the process ends.
    _lock: File,
}

/// An object that is open for reading. It remains readable after its removal from the store.
#[derive(Debug)]
pub struct OpenObject {
    /// The file, positioned at its start.
    pub file: File,
    /// Size of the content.
    pub size_bytes: u64,
    /// Checksum of the whole content.
    pub checksum: Checksum,
    /// Checksums of its pieces, if there are several and they are known.
    pub pieces: Option<Arc<[Checksum]>>,
}

/// Whether an object is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object is not in the store.
    Absent,
    /// The object was found when the store was opened. Its first use, or [`ObjectStore::verify`],
    /// reads it once.
    Unverified,
    /// The object is in the store and can be used.
    Ready {
        /// Size of the content.
        size_bytes: u64,
        /// Whether it is executable.
        executable: bool,
    },
}

/// Whether an object is as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// No program has changed the object.
    Intact,
    /// A program has changed the object, so the object was removed from the store. Also the answer
    /// for an object that was removed before.
    Broken,
    /// The object's file has gone.
    Missing,
}

/// The free space of the file system under the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Free bytes.
    pub bytes: u64,
    /// Free inodes; `u64::MAX` if the file system does not count them.
    pub inodes: u64,
}

impl ObjectStore {
    /// Opens the store in `dir` and creates it if it does not exist. Returns the objects in it, in
    /// no particular order. Blocks for about 2 us per object.
    ///
    /// # Errors
    /// [`StoreErrorKind::Locked`] if another executor uses it; `Full` or `Io` for failures of the
    /// disk.
    pub fn open(dir: impl AsRef<Path>) -> Result<(Self, Vec<(ObjectId, u64)>), StoreError> {
        let dir = dir.as_ref();
        let failed = |error: io::Error| {
            StoreError::io(format!("cannot open the store `{}`", dir.display()), error)
        };
        fs::create_dir_all(dir).map_err(failed)?;
        let dir = fs::canonicalize(dir).map_err(failed)?;
        let lock = lock(&dir)?;
        let (objects, partial) = (dir.join(OBJECTS), dir.join(PARTIAL));
        fs::create_dir_all(&objects).map_err(failed)?;
        fs::create_dir_all(&partial).map_err(failed)?;
        for leftover in fs::read_dir(&partial).map_err(failed)? {
            fs::remove_file(leftover.map_err(failed)?.path()).map_err(failed)?;
        }
        let damaged = Quarantine::open(&dir.join("damaged")).map_err(failed)?;
        let index = scan(&objects, &damaged).map_err(failed)?;
        let found = index.ids().collect();
        let folder = |path: &Path| File::open(path).map(OwnedFd::from).map_err(failed);
        let inner = Inner {
            objects: folder(&objects)?,
            partial: folder(&partial)?,
            damaged,
            dir,
            index: Mutex::new(index),
            next_partial: AtomicU64::new(0),
            arrivals: Arrivals::default(),
            remembered: PieceChecksums::default(),
            whole_syncs: WholeSyncs::default(),
            failed_syncs: FailedSyncs::default(),
            _lock: lock,
        };
        Ok((ObjectStore(Arc::new(inner)), found))
    }

    /// Starts to receive an object of `size_bytes`. Its space is reserved at once, so that a full
    /// disk is noticed early. Any number of objects can be received at a time, even several with
    /// the same id.
    ///
    /// # Errors
    /// `Full` or `Io` for failures of the disk.
    pub fn begin(
        &self,
        id: ObjectId,
        size_bytes: u64,
        mode: FileMode,
    ) -> Result<Incoming, StoreError> {
        let name = self.new_partial();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let failed = |errno| StoreError::io(format!("cannot store object {id}"), errno);
        let file = rustix::fs::openat(&self.0.partial, &name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed)?;
        // A file description of its own: a reader must not keep the object from being executed.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let to_read =
            rustix::fs::openat(&self.0.partial, &name, flags, Mode::empty()).inspect_err(|_| {
                self.discard_partial(&name);
            });
        Incoming::new(
            self.clone(),
            id,
            size_bytes,
            mode,
            name,
            file.into(),
            to_read.map_err(failed)?.into(),
        )
    }

    /// The same for an object with a specification. If its checksum is registered, other content is
    /// never published.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_object(&self, id: ObjectId, spec: &ObjectSpec) -> Result<Incoming, StoreError> {
        let into = self.begin(id, spec.size_bytes(), spec.mode)?;
        Ok(match spec.sha256() {
            Some(sha256) => into.expect(sha256),
            None => into,
        })
    }

    /// An object is to be received soon.
    pub fn expect(&self, id: ObjectId) {
        self.0.arrivals.expect(id);
    }

    /// An object will not be received after all: nobody waits for it any longer.
    pub fn give_up(&self, id: ObjectId) {
        self.0.arrivals.give_up(id);
    }

    /// Waits up to `patience` until the object is being received, and returns its partial replica.
    /// Returns `None` if the whole object is here already, or was [given up](Self::give_up).
    /// Blocks.
    pub fn arriving(&self, id: ObjectId, patience: Duration) -> Option<Arc<PartialReplica>> {
        self.0.arrivals.wait_for(id, patience, || self.contains(id))
    }

    pub(crate) fn remembered(&self) -> &PieceChecksums {
        &self.0.remembered
    }

    pub(crate) fn damaged_copies(&self) -> &Quarantine {
        &self.0.damaged
    }

    pub(crate) fn arrivals(&self) -> &Arrivals {
        &self.0.arrivals
    }

    /// Whether the object is here. Microseconds; touches no file.
    pub fn presence(&self, id: ObjectId) -> Presence {
        match self.index().get(id) {
            None => Presence::Absent,
            Some(IndexEntry { verified: false, .. }) => Presence::Unverified,
            Some(IndexEntry { size_bytes, mode, .. }) => {
                Presence::Ready { size_bytes, executable: mode.is_executable() }
            }
        }
    }

    /// Whether the object is here, verified or not. Microseconds.
    pub fn contains(&self, id: ObjectId) -> bool {
        self.presence(id) != Presence::Absent
    }

    /// Size of an object, if it is here. Microseconds.
    pub fn size_of(&self, id: ObjectId) -> Option<u64> {
        self.index().get(id).map(|entry| entry.size_bytes)
    }

    /// The objects in the store with their sizes, in no particular order.
    pub fn ids(&self) -> Vec<(ObjectId, u64)> {
        self.index().ids().collect()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.index().len()
    }

    /// Whether the store has no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sum of the sizes of all objects.
    pub fn total_bytes(&self) -> u64 {
        self.index().total_bytes()
    }

    /// The free space on the disk.
    ///
    /// # Errors
    /// `Io` if the disk fails.
    pub fn free_space(&self) -> Result<FreeSpace, StoreError> {
        let stat = rustix::fs::fstatvfs(&self.0.objects).map_err(|errno| {
            StoreError::io(
                format!("cannot ask for free space of `{}`", self.0.dir.display()),
                errno,
            )
        })?;
        // Some file systems (btrfs) create inodes as needed and report none.
        let inodes = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
        Ok(FreeSpace { bytes: stat.f_bavail.saturating_mul(stat.f_frsize), inodes })
    }

    /// The folder of the store.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Opens an object for reading. An object that is not verified yet is read once first.
    ///
    /// # Errors
    /// `NotHere`, also if it turns out to be damaged; `Io` if the disk fails.
    pub fn open_object(&self, id: ObjectId) -> Result<OpenObject, StoreError> {
        let (entry, file) = self.ready(id)?;
        let file = match file {
            Some(file) => file,
            None => self.open_entry(id, entry)?,
        };
        let pieces = self.0.remembered.get(id, entry.checksum);
        Ok(OpenObject { file, size_bytes: entry.size_bytes, checksum: entry.checksum, pieces })
    }

    /// Verifies the object against its checksum unless that was done already. Returns whether it is
    /// here and good.
    ///
    /// # Errors
    /// `Io` if the disk fails.
    pub fn verify(&self, id: ObjectId) -> Result<bool, StoreError> {
        match self.ready(id) {
            Ok(_) => Ok(true),
            Err(error) if error.kind == StoreErrorKind::NotHere => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The same, but reads the object in any case, because there is reason to doubt it.
    ///
    /// # Errors
    /// `Io` if the disk fails.
    pub fn verify_again(&self, id: ObjectId) -> Result<bool, StoreError> {
        if let Some(entry) = self.index().get_mut(id) {
            entry.verified = false;
        }
        self.verify(id)
    }

    /// Removes an object. Processes that have it open or staged keep it. Returns whether it was
    /// here.
    ///
    /// # Errors
    /// `Io` if the disk fails.
    pub fn remove(&self, id: ObjectId) -> Result<bool, StoreError> {
        self.remove_if(id, |_| true)
    }

    /// The numbers of the present copies of these objects, all of them verified; `None` if one is
    /// missing. A copy that replaces another one has another number. Touches no file.
    pub fn copies(&self, ids: &[ObjectId]) -> Option<Vec<u64>> {
        let index = self.index();
        ids.iter().map(|id| index.insertion(*id)).collect()
    }

    /// Whether no task has changed the object through its links; costs one `stat`. A changed or
    /// missing object is removed.
    pub fn verify_seal(&self, id: ObjectId) -> Seal {
        let (entry, seal) = {
            let index = self.index();
            let Some(entry) = index.get(id) else { return Seal::Broken };
            let name = file_name(id, entry.size_bytes, entry.checksum);
            match rustix::fs::statat(&self.0.objects, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat)
                    if is_sealed(&stat, entry.size_bytes)
                        && stat.st_mode & 0o7777 == sealed(entry.mode).bits() =>
                {
                    return Seal::Intact;
                }
                Err(Errno::NOENT) => (entry, Seal::Missing),
                _ => (entry, Seal::Broken),
            }
        };
        let why = match seal {
            Seal::Missing => "its file has gone",
            _ => "a task wrote to its input, and so changed it in the store",
        };
        self.tell_damaged(id, &why);
        self.drop_damaged(id, entry);
        seal
    }

    /// The entry of an object that is here and verified, with its file if verification has opened
    /// it.
    pub(crate) fn ready(&self, id: ObjectId) -> Result<(IndexEntry, Option<File>), StoreError> {
        let entry = self.index().get(id).ok_or_else(|| not_here(id))?;
        if entry.verified {
            return Ok((entry, None));
        }
        let mut file = self.open_entry(id, entry)?;
        match sum_up(&mut file, entry.size_bytes) {
            Ok(Some(summing)) if summing.whole() == entry.checksum => {
                self.0.remembered.insert(id, &summing)
            }
            Ok(_) => {
                self.tell_damaged(id, &"it does not match its checksum");
                self.drop_damaged(id, entry);
                return Err(not_here(id));
            }
            Err(error) => {
                self.tell_damaged(id, &error);
                self.drop_damaged(id, entry);
                return Err(not_here(id));
            }
        }
        let verified = IndexEntry { verified: true, ..entry };
        if let Some(now) = self.index().get_mut(id)
            && *now == entry
        {
            *now = verified;
        }
        Ok((verified, Some(file)))
    }

    fn open_entry(&self, id: ObjectId, entry: IndexEntry) -> Result<File, StoreError> {
        let name = file_name(id, entry.size_bytes, entry.checksum);
        match rustix::fs::openat(
            &self.0.objects,
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(file) => Ok(file.into()),
            Err(Errno::NOENT) => {
                self.drop_damaged(id, entry);
                Err(not_here(id))
            }
            Err(errno) => Err(StoreError::io(format!("cannot open object {id}"), errno)),
        }
    }

    /// Publishes a written file as the object `id`. Returns `false` if a verified copy is here
    /// already.
    pub(crate) fn publish(
        &self,
        partial: &str,
        id: ObjectId,
        entry: IndexEntry,
    ) -> Result<bool, StoreError> {
        let mut index = self.index();
        let before = index.get(id);
        let same = |before: IndexEntry| {
            (before.size_bytes, before.checksum) == (entry.size_bytes, entry.checksum)
        };
        let stays = |before: IndexEntry| {
            let has_mode =
                [entry.mode, with_execution(entry.mode)].map(sealed).contains(&sealed(before.mode));
            before.verified && same(before) && has_mode && !self.0.failed_syncs.contain(id)
        };
        if before.is_some_and(stays) {
            return Ok(false);
        }
        let name = file_name(id, entry.size_bytes, entry.checksum);
        let rename = || rustix::fs::renameat(&self.0.partial, partial, &self.0.objects, &name);
        let renamed = match rename() {
            // This is the first object in its folder. Creating all 256 folders at open would take
            // longer than a short job.
            Err(Errno::NOENT) => {
                let _ = rustix::fs::mkdirat(
                    &self.0.objects,
                    folder_name(id),
                    Mode::from_bits_truncate(0o777),
                );
                rename()
            }
            other => other,
        };
        renamed.map_err(|errno| StoreError::io(format!("cannot store object {id}"), errno))?;
        index.insert(id, entry);
        self.0.damaged.forget(id);
        self.0.failed_syncs.forget(id);
        if let Some(before) = before.filter(|before| !same(*before)) {
            let old = file_name(id, before.size_bytes, before.checksum);
            // If this fails, the file stays until the next open, which keeps one of the two.
            let _ = rustix::fs::unlinkat(&self.0.objects, old, AtFlags::empty());
        }
        Ok(true)
    }

    pub(crate) fn discard_partial(&self, partial: &str) {
        if let Err(errno) = rustix::fs::unlinkat(&self.0.partial, partial, AtFlags::empty()) {
            tracing::warn!(
                partial, %errno,
                "cannot remove a partial object; the next start of the executor will"
            );
        }
    }

    /// Removes an object that was found damaged, unless a good copy has replaced it in the
    /// meantime. The damaged copy is kept if it may be the last one.
    pub(crate) fn drop_damaged(&self, id: ObjectId, seen: IndexEntry) {
        let dropped = if self.0.damaged.is_kept(id) {
            self.set_aside(id, seen)
        } else {
            self.remove_if(id, |entry| entry == seen).map(drop)
        };
        if let Err(error) = dropped {
            tracing::warn!(object = %id, %error, "cannot remove a damaged object");
        }
    }

    fn tell_damaged(&self, id: ObjectId, why: &dyn std::fmt::Display) {
        let then = if self.0.damaged.is_kept(id) { "its copy is kept aside" } else { "dropped" };
        tracing::warn!(object = %id, %why, "an object is damaged; {then}");
    }

    fn set_aside(&self, id: ObjectId, seen: IndexEntry) -> Result<(), StoreError> {
        let mut index = self.index();
        if index.get(id) != Some(seen) {
            return Ok(());
        }
        index.remove(id);
        self.0.remembered.remove(id);
        let (size_bytes, checksum) = (seen.size_bytes, seen.checksum);
        let (from, to) =
            (file_name(id, size_bytes, checksum), damaged::name(id, size_bytes, checksum));
        match rustix::fs::renameat(&self.0.objects, &from, self.0.damaged.folder(), &to) {
            Ok(()) => self.0.damaged.add(id, size_bytes, checksum, false),
            // The file is gone, so there is nothing to keep.
            Err(Errno::NOENT) => {}
            Err(errno) => {
                return Err(StoreError::io(
                    format!("cannot keep the damaged copy of object {id}"),
                    errno,
                ));
            }
        }
        Ok(())
    }

    fn remove_if(
        &self,
        id: ObjectId,
        condition: impl Fn(IndexEntry) -> bool,
    ) -> Result<bool, StoreError> {
        // The file is moved away under the lock, so that a new copy can take its name at once.
        // Deleting it may take long, and happens outside the lock.
        let aside = self.new_partial();
        {
            let mut index = self.index();
            let Some(entry) = index.get(id).filter(|entry| condition(*entry)) else {
                return Ok(false);
            };
            index.remove(id);
            self.0.remembered.remove(id);
            let name = file_name(id, entry.size_bytes, entry.checksum);
            match rustix::fs::renameat(&self.0.objects, &name, &self.0.partial, &aside) {
                Ok(()) => {}
                Err(Errno::NOENT) => return Ok(true),
                // A full disk may refuse to move a file, but not to delete it.
                Err(_) => {
                    return rustix::fs::unlinkat(&self.0.objects, &name, AtFlags::empty())
                        .map(|()| true)
                        .map_err(|errno| {
                            StoreError::io(format!("cannot remove object {id}"), errno)
                        });
                }
            }
        }
        self.discard_partial(&aside);
        Ok(true)
    }

    pub(crate) fn objects(&self) -> &OwnedFd {
        &self.0.objects
    }

    pub(crate) fn whole_syncs(&self) -> &WholeSyncs {
        &self.0.whole_syncs
    }

    pub(crate) fn failed_syncs(&self) -> &FailedSyncs {
        &self.0.failed_syncs
    }

    pub(crate) fn partial(&self) -> &OwnedFd {
        &self.0.partial
    }

    /// An unused name in the folder of temporary files.
    pub(crate) fn new_partial(&self) -> String {
        self.0.next_partial.fetch_add(1, Ordering::Relaxed).to_string()
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        // No update of the table can panic half-way, so a poisoned lock still guards a valid table.
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn not_here(id: ObjectId) -> StoreError {
    StoreError::new(StoreErrorKind::NotHere, format!("object {id} is not in this node's store"))
}

/// The mode of an object's file: its own, but no user may write, and this process may read, and
/// execute what any user may execute.
pub(crate) fn sealed(mode: FileMode) -> Mode {
    let of_owner = if mode.is_executable() { 0o500 } else { 0o400 };
    Mode::from_bits_truncate(mode.bits() & 0o555 | of_owner)
}

/// The same mode, but who may read may also execute.
pub(crate) fn with_execution(mode: FileMode) -> FileMode {
    let readers = sealed(mode).bits() & 0o444;
    FileMode::of(readers | readers >> 2)
}

/// Marks a written file as complete and unchanged.
pub(crate) fn seal(file: &impl AsFd, mode: FileMode) -> Result<(), Errno> {
    rustix::fs::fchmod(file, sealed(mode))?;
    let time = Timespec { tv_sec: SEAL_S, tv_nsec: 0 };
    rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })
}

fn is_sealed(stat: &Stat, size_bytes: u64) -> bool {
    let is_file = stat.st_mode & 0o170_000 == 0o100_000;
    is_file
        && stat.st_size as u64 == size_bytes
        && stat.st_mtime == SEAL_S
        && stat.st_mtime_nsec == 0
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let failed =
        |error: io::Error| StoreError::io(format!("cannot lock `{}`", path.display()), error);
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let message = format!(
                "the store `{}` is in use by another executor (process {}); stop it, or give this \
                 one its own folder",
                dir.display(),
                if holder.trim().is_empty() { "unknown" } else { holder.trim() }
            );
            return Err(StoreError::new(StoreErrorKind::Locked, message));
        }
        Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    // The process id is only used in the message above.
    rustix::io::pwrite(&file, std::process::id().to_string().as_bytes(), 0)
        .map_err(|errno| failed(errno.into()))?;
    Ok(file)
}

/// Lists the objects whose file has the size in its name and an unbroken seal. All others are moved
/// to the damaged copies, until the irreplaceable objects are marked.
fn scan(objects: &Path, damaged: &Quarantine) -> io::Result<Index> {
    let mut index = Index::default();
    for folder in fs::read_dir(objects)? {
        let folder = folder?.path();
        for file in fs::read_dir(&folder)? {
            let file = file?;
            let Some((id, size_bytes, checksum)) =
                file.file_name().to_str().and_then(parse_file_name)
            else {
                tracing::warn!(path = %file.path().display(), "not an object; left alone");
                continue;
            };
            let stat = rustix::fs::statat(CWD, file.path(), AtFlags::SYMLINK_NOFOLLOW)?;
            if !is_sealed(&stat, size_bytes) || index.get(id).is_some() {
                tracing::warn!(object = %id, "an object is incomplete or was changed; dropped");
                let aside = damaged::name(id, size_bytes, checksum);
                rustix::fs::renameat(CWD, file.path(), damaged.folder(), &aside)?;
                damaged.add(id, size_bytes, checksum, true);
                continue;
            }
            let mode = FileMode::of(stat.st_mode);
            index.insert(id, IndexEntry { size_bytes, checksum, mode, verified: false });
        }
    }
    Ok(index)
}

/// Checksums a whole file; `None` if it does not have that size.
pub(crate) fn sum_up(file: &mut File, size_bytes: u64) -> io::Result<Option<PieceHasher>> {
    if file.metadata()?.len() != size_bytes {
        return Ok(None);
    }
    let mut buffer = vec![0; VERIFY_BUFFER_BYTES.min(size_bytes as usize)];
    let (mut summing, mut read_bytes) = (PieceHasher::of_size(size_bytes), 0);
    each_part(file, 0..size_bytes, &mut buffer, &|error| error, |part| {
        read_bytes += part.size_bytes();
        summing.take(part);
        Ok(())
    })?;
    io::Seek::rewind(file)?;
    summing.end();
    Ok((read_bytes == size_bytes).then_some(summing))
}
