//! Entries that the kernel knows, by its numbers for them.
//!
//! Each is held by an `O_PATH` descriptor, so entries that are renamed or removed are still found.
//! The number of an entry is that of the underlying file system, so hard links are one entry, and
//! programs see the numbers that they see without the mount. An entry gets another number if its
//! own is taken: by the root, which is always 1, or by an entry of another file system that is
//! mounted in the folder.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::INodeNo;
use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};

use crate::version::FileVersion;

/// Descriptors of entries have this number or a higher one. The library that is loaded into this
/// process orders calls on lower ones, which are left to open files.
const FIRST_DESCRIPTOR: i32 = 1 << 16;

/// Numbers of entries whose own number is taken begin here.
const FIRST_SPARE_NUMBER: u64 = 1 << 63;

/// Device and inode of a file.
type FileId = (u64, u64);

/// An entry that the kernel knows.
pub(crate) struct PassedNode {
    pub number: INodeNo,
    descriptor: OwnedFd,
    state: Mutex<NodeState>,
}

#[derive(Default)]
struct NodeState {
    /// Folder and name by which the entry was found last.
    place: Option<(INodeNo, OsString)>,
    /// Version whose attributes the kernel has.
    told: Option<FileVersion>,
    /// Version of which the kernel may have pages in its cache.
    cached: Option<FileVersion>,
}

/// All entries that the kernel knows.
pub(crate) struct PassedNodes {
    root: Arc<PassedNode>,
    known: Mutex<KnownNodes>,
}

struct KnownNodes {
    by_number: HashMap<INodeNo, KnownNode>,
    by_file: HashMap<FileId, INodeNo>,
    /// Device of the root, whose files keep their numbers.
    device: u64,
    next_spare: u64,
}

struct KnownNode {
    node: Arc<PassedNode>,
    file: FileId,
    /// Number of times that the kernel has been told of the entry, and has not forgotten.
    lookups: u64,
}

impl PassedNode {
    fn new(number: INodeNo, descriptor: OwnedFd) -> Self {
        PassedNode { number, descriptor, state: Mutex::default() }
    }

    pub fn stat(&self) -> Result<Stat> {
        fs::fstat(&self.descriptor)
    }

    /// A path to the entry itself, for calls that take no `O_PATH` descriptor.
    pub fn path(&self) -> PathBuf {
        descriptor_path(&self.descriptor)
    }

    /// The same to an entry of this folder.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path().join(name)
    }

    /// Folder and name by which the entry was found last.
    pub fn place(&self) -> Option<(INodeNo, OsString)> {
        self.state().place.clone()
    }

    /// The kernel is told the attributes of this version.
    pub fn tell(&self, version: FileVersion) {
        self.state().told = Some(version);
    }

    /// A program opens this version. Returns whether the kernel has its attributes, and whether its
    /// cached pages, if it has any, are of this version.
    pub fn open_version(&self, version: FileVersion) -> (bool, bool) {
        let mut state = self.state();
        let known = (state.told == Some(version), state.cached == Some(version));
        (state.told, state.cached) = (Some(version), Some(version));
        known
    }

    fn state(&self) -> MutexGuard<'_, NodeState> {
        // No update of the state panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for PassedNode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A path to the file of a descriptor.
pub(crate) fn descriptor_path(descriptor: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd()))
}

impl PassedNodes {
    /// The entries below a folder.
    pub fn new(folder: OwnedFd) -> Result<Self> {
        let device = fs::fstat(&folder)?.st_dev;
        Ok(PassedNodes {
            root: Arc::new(PassedNode::new(INodeNo::ROOT, folder)),
            known: Mutex::new(KnownNodes::new(device)),
        })
    }

    pub fn get(&self, number: INodeNo) -> Result<Arc<PassedNode>> {
        if number == INodeNo::ROOT {
            return Ok(self.root.clone());
        }
        let known = self.known();
        known.by_number.get(&number).map(|known| known.node.clone()).ok_or(Errno::STALE)
    }

    /// Looks up a name. The kernel knows the entry from now on.
    pub fn look_up(&self, folder: &PassedNode, name: &OsStr) -> Result<(Arc<PassedNode>, Stat)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = fs::openat(folder, name, flags, Mode::empty())?;
        self.remember(found, folder, name)
    }

    /// The kernel knows this entry from now on, which was found or created at this place.
    pub fn remember(
        &self,
        found: OwnedFd,
        folder: &PassedNode,
        name: &OsStr,
    ) -> Result<(Arc<PassedNode>, Stat)> {
        let stat = fs::fstat(&found)?;
        let node = self.known().find_or_add(&stat, found);
        node.state().place = Some((folder.number, name.to_owned()));
        Ok((node, stat))
    }

    /// The kernel has forgotten this many of its lookups.
    pub fn forget(&self, number: INodeNo, lookups: u64) {
        let forgotten = self.known().forget(number, lookups);
        // Its descriptor is closed without the lock.
        drop(forgotten);
    }

    fn known(&self) -> MutexGuard<'_, KnownNodes> {
        // No update of the table panics half-way.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownNodes {
    fn new(device: u64) -> Self {
        KnownNodes {
            by_number: HashMap::new(),
            by_file: HashMap::new(),
            device,
            next_spare: FIRST_SPARE_NUMBER,
        }
    }

    fn find_or_add(&mut self, stat: &Stat, found: OwnedFd) -> Arc<PassedNode> {
        let file = (stat.st_dev, stat.st_ino);
        if let Some(known) =
            self.by_file.get(&file).and_then(|number| self.by_number.get_mut(number))
        {
            // A file system may give the number of a removed file, which a program still has open,
            // to a new one.
            let is_it = |before: Stat| before.st_nlink > 0 || stat.st_nlink == 0;
            if known.node.stat().is_ok_and(is_it) {
                known.lookups += 1;
                return known.node.clone();
            }
        }
        let number = self.free_number(file);
        let node = Arc::new(PassedNode::new(number, moved_up(found)));
        self.by_file.insert(file, number);
        self.by_number.insert(number, KnownNode { node: node.clone(), file, lookups: 1 });
        node
    }

    /// The file's own number, unless it is taken.
    fn free_number(&mut self, (device, inode): FileId) -> INodeNo {
        let own = INodeNo(inode);
        if device == self.device && inode > INodeNo::ROOT.0 && !self.by_number.contains_key(&own) {
            return own;
        }
        loop {
            let number = INodeNo(self.next_spare);
            self.next_spare = self.next_spare.checked_add(1).unwrap_or(FIRST_SPARE_NUMBER);
            if !self.by_number.contains_key(&number) {
                return number;
            }
        }
    }

    fn forget(&mut self, number: INodeNo, lookups: u64) -> Option<KnownNode> {
        let known = self.by_number.get_mut(&number)?;
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return None;
        }
        let forgotten = self.by_number.remove(&number)?;
        // The number of a removed file may belong to another entry by now.
        if self.by_file.get(&forgotten.file) == Some(&number) {
            self.by_file.remove(&forgotten.file);
        }
        Some(forgotten)
    }
}

/// The same descriptor with a number that is left to entries, if the limit of open files permits.
fn moved_up(descriptor: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST_DESCRIPTOR).unwrap_or(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of a file in the table.
    fn number(known: &mut KnownNodes, (device, inode): FileId) -> u64 {
        let found = fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mut stat = fs::fstat(&found).unwrap();
        (stat.st_dev, stat.st_ino) = (device, inode);
        known.find_or_add(&stat, found).number.0
    }

    #[test]
    fn files_keep_their_numbers_unless_these_are_taken() {
        let mut known = KnownNodes::new(7);
        for (file, expected, why) in [
            ((7, 20), 20, "its own"),
            ((7, 20), 20, "it is the same file"),
            ((7, 1), FIRST_SPARE_NUMBER, "the root has its number"),
            ((8, 20), FIRST_SPARE_NUMBER + 1, "it is of another file system"),
            ((8, 20), FIRST_SPARE_NUMBER + 1, "it is the same file"),
            ((7, FIRST_SPARE_NUMBER + 2), FIRST_SPARE_NUMBER + 2, "its own"),
            ((8, 21), FIRST_SPARE_NUMBER + 3, "the next one is taken"),
        ] {
            assert_eq!(number(&mut known, file), expected, "{file:?}: {why}");
        }
    }

    #[test]
    fn entries_are_forgotten_with_their_last_lookup() {
        let mut known = KnownNodes::new(7);
        number(&mut known, (7, 20));
        number(&mut known, (7, 20));
        assert!(known.forget(INodeNo(20), 1).is_none());
        assert!(known.forget(INodeNo(20), 1).is_some());
        assert!(known.forget(INodeNo(20), 1).is_none(), "it is gone");
        assert!(known.by_file.is_empty() && known.by_number.is_empty());
    }

    #[test]
    fn a_new_file_with_the_number_of_a_removed_one_is_another_entry() {
        let mut known = KnownNodes::new(7);
        let removed = tempfile::tempfile().unwrap();
        let mut stat = fs::fstat(&removed).unwrap();
        (stat.st_dev, stat.st_ino) = (7, 20);
        assert_eq!(known.find_or_add(&stat, removed.into()).number.0, 20);
        assert_eq!(number(&mut known, (7, 20)), FIRST_SPARE_NUMBER);
        assert!(known.forget(INodeNo(20), 1).is_some());
        assert_eq!(number(&mut known, (7, 20)), FIRST_SPARE_NUMBER, "it is still known");
    }
}
