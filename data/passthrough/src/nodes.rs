//! Entries that the kernel knows, by its numbers for them.
//!
//! An entry is found by an `O_PATH` descriptor. The kernel may know more entries than a process may
//! have descriptors, so the descriptors of entries that were used long ago are closed, unless a
//! program has the entry open. An entry without a descriptor is looked up again where it was found
//! last. If it is not there, the answer is `ESTALE`, and the kernel looks the path up again.
//!
//! The number of an entry is that of the underlying file system, so hard links are one entry, and
//! programs see the numbers that they see without the mount. An entry gets another number if its
//! own is taken: by the root, which is always 1, or by an entry of another file system that is
//! mounted in the folder.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use fuser::INodeNo;
use lru::LruCache;
use rustix::fs::{self, AtFlags, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};
use rustix::process::{Resource, getrlimit};

use crate::version::FileVersion;

/// Descriptors of entries have this number or a higher one. The library that is loaded into this
/// process orders calls on lower ones, which are left to open files.
const FIRST_DESCRIPTOR: i32 = 1 << 16;

/// Maximum number of descriptors of entries that no program has open. There are fewer if the limit
/// of open files is low: they are at most half of it.
const MAX_HELD_ENTRIES: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Maximum number of names in a path: Linux's longest path has 4096 bytes.
const MAX_PATH_NAMES: usize = 2048;

/// Numbers of entries whose own number is taken begin here.
const FIRST_SPARE_NUMBER: u64 = 1 << 63;

/// Device and inode of a file.
type FileId = (u64, u64);

/// An entry that the kernel knows, with a descriptor that finds it also after it was renamed or
/// removed.
#[derive(Clone)]
pub(crate) struct PassedNode {
    pub number: INodeNo,
    descriptor: Arc<OwnedFd>,
}

/// All entries that the kernel knows.
pub(crate) struct PassedNodes {
    root: PassedNode,
    known: Mutex<KnownNodes>,
}

struct KnownNodes {
    by_number: HashMap<INodeNo, KnownNode>,
    by_file: HashMap<FileId, INodeNo>,
    /// Descriptors of the entries that were used last.
    held: LruCache<INodeNo, Arc<OwnedFd>>,
    /// Device of the root, whose files keep their numbers.
    device: u64,
    next_spare: u64,
}

struct KnownNode {
    file: FileId,
    /// Folder and name by which the entry was found last.
    place: (INodeNo, OsString),
    /// The descriptor, if it is held or a program has the entry open.
    descriptor: Weak<OwnedFd>,
    /// Number of times that the kernel has been told of the entry, and has not forgotten.
    lookups: u64,
    /// Version whose attributes the kernel has.
    told: Option<FileVersion>,
    /// Version of which the kernel may have pages in its cache.
    cached: Option<FileVersion>,
}

impl PassedNode {
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
            root: PassedNode { number: INodeNo::ROOT, descriptor: Arc::new(folder) },
            known: Mutex::new(KnownNodes::new(device, max_held())),
        })
    }

    pub fn get(&self, number: INodeNo) -> Result<PassedNode> {
        let mut missing = Vec::new();
        let mut node = self.nearest(number, &mut missing)?;
        while let Some((number, name, file)) = missing.pop() {
            let found = open_entry(&node, &name).map_err(|error| match error {
                Errno::NOENT | Errno::NOTDIR => Errno::STALE,
                error => error,
            })?;
            if file_id(&fs::fstat(&found)?) != file {
                return Err(Errno::STALE);
            }
            node = self.known().hold(number, Arc::new(moved_up(found)));
        }
        Ok(node)
    }

    /// The entry, or else the nearest folder on the way to it that has a descriptor. The entries
    /// without one are added to `missing`, the one in that folder last.
    fn nearest(
        &self,
        number: INodeNo,
        missing: &mut Vec<(INodeNo, OsString, FileId)>,
    ) -> Result<PassedNode> {
        let mut known = self.known();
        let mut at = number;
        while at != INodeNo::ROOT {
            let node = known.by_number.get(&at).ok_or(Errno::STALE)?;
            if let Some(descriptor) = node.descriptor.upgrade() {
                known.held.promote(&at);
                return Ok(PassedNode { number: at, descriptor });
            }
            // Folders that others have moved into each other may form a circle.
            if missing.len() == MAX_PATH_NAMES {
                return Err(Errno::STALE);
            }
            let (folder, name) = node.place.clone();
            missing.push((at, name, node.file));
            at = folder;
        }
        Ok(self.root.clone())
    }

    /// Looks up a name. The kernel knows the entry from now on.
    pub fn look_up(&self, folder: &PassedNode, name: &OsStr) -> Result<(PassedNode, Stat)> {
        self.remember(open_entry(folder, name)?, folder, name)
    }

    /// The kernel knows this entry from now on, which was found or created at this place.
    pub fn remember(
        &self,
        found: OwnedFd,
        folder: &PassedNode,
        name: &OsStr,
    ) -> Result<(PassedNode, Stat)> {
        let stat = fs::fstat(&found)?;
        let node = self.known().find_or_add(&stat, found, (folder.number, name.to_owned()));
        Ok((node, stat))
    }

    /// An entry was moved to this place.
    pub fn moved(&self, folder: &PassedNode, name: &OsStr) {
        let Ok(stat) = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        if let Some(known) = self.known().of_file(file_id(&stat)) {
            known.place = (folder.number, name.to_owned());
        }
    }

    /// An entry is about to be removed. Its descriptor is closed unless a program has it open: an
    /// NFS client would give an entry that is in use another name instead.
    pub fn let_go(&self, folder: &PassedNode, name: &OsStr) {
        let Ok(stat) = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let mut known = self.known();
        let number = known.by_file.get(&file_id(&stat)).copied();
        let held = number.and_then(|number| known.held.pop(&number));
        // Closed without the lock.
        drop(known);
        drop(held);
    }

    /// Folder and name by which an entry was found last.
    pub fn place(&self, number: INodeNo) -> Option<(INodeNo, OsString)> {
        self.known().by_number.get(&number).map(|known| known.place.clone())
    }

    /// The kernel is told the attributes of this version of an entry.
    pub fn tell(&self, number: INodeNo, version: FileVersion) {
        if let Some(known) = self.known().by_number.get_mut(&number) {
            known.told = Some(version);
        }
    }

    /// A program opens this version. Returns whether the kernel has its attributes, and whether its
    /// cached pages, if it has any, are of this version. That is not known of a version that has
    /// just appeared: the next one may have the same times.
    pub fn open_version(&self, number: INodeNo, version: FileVersion) -> (bool, bool) {
        let mut known = self.known();
        let Some(known) = known.by_number.get_mut(&number) else { return (false, false) };
        let has = (known.told == Some(version), known.cached == Some(version));
        known.told = Some(version);
        known.cached = version.is_settled(SystemTime::now()).then_some(version);
        has
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
    fn new(device: u64, max_held: NonZeroUsize) -> Self {
        KnownNodes {
            by_number: HashMap::new(),
            by_file: HashMap::new(),
            held: LruCache::new(max_held),
            device,
            next_spare: FIRST_SPARE_NUMBER,
        }
    }

    fn find_or_add(
        &mut self,
        stat: &Stat,
        found: OwnedFd,
        place: (INodeNo, OsString),
    ) -> PassedNode {
        let file = file_id(stat);
        if let Some(&number) = self.by_file.get(&file)
            && let Some(known) = self.by_number.get_mut(&number)
        {
            let held = known.descriptor.upgrade();
            // A file system may give the number of a removed file, which a program still has open,
            // to a new one.
            let is_it = |before: Stat| before.st_nlink > 0 || stat.st_nlink == 0;
            if held.as_ref().is_none_or(|held| fs::fstat(held).is_ok_and(is_it)) {
                (known.lookups, known.place) = (known.lookups + 1, place);
                return self.hold(number, held.unwrap_or_else(|| Arc::new(moved_up(found))));
            }
        }
        let number = self.free_number(file);
        let descriptor = Weak::new();
        let known = KnownNode { file, place, descriptor, lookups: 1, told: None, cached: None };
        self.by_file.insert(file, number);
        self.by_number.insert(number, known);
        self.hold(number, Arc::new(moved_up(found)))
    }

    /// Keeps a descriptor of an entry, instead of the one that was not used for the longest time.
    /// The entry keeps one that it has already.
    fn hold(&mut self, number: INodeNo, descriptor: Arc<OwnedFd>) -> PassedNode {
        let Some(known) = self.by_number.get_mut(&number) else {
            return PassedNode { number, descriptor };
        };
        let descriptor = known.descriptor.upgrade().unwrap_or(descriptor);
        known.descriptor = Arc::downgrade(&descriptor);
        self.held.put(number, descriptor.clone());
        PassedNode { number, descriptor }
    }

    fn of_file(&mut self, file: FileId) -> Option<&mut KnownNode> {
        self.by_file.get(&file).and_then(|number| self.by_number.get_mut(number))
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

    fn forget(
        &mut self,
        number: INodeNo,
        lookups: u64,
    ) -> Option<(KnownNode, Option<Arc<OwnedFd>>)> {
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
        Some((forgotten, self.held.pop(&number)))
    }
}

fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

fn open_entry(folder: &PassedNode, name: &OsStr) -> Result<OwnedFd> {
    fs::openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Maximum number of descriptors of entries, with this process's limit of open files.
fn max_held() -> NonZeroUsize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    NonZeroUsize::new(limit).map_or(NonZeroUsize::MIN, |limit| limit.min(MAX_HELD_ENTRIES))
}

/// The same descriptor with a number that is left to entries, if the limit of open files permits.
fn moved_up(descriptor: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST_DESCRIPTOR).unwrap_or(descriptor)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const HELD: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    fn table() -> KnownNodes {
        KnownNodes::new(7, NonZeroUsize::new(100).unwrap())
    }

    fn add(known: &mut KnownNodes, found: OwnedFd, (device, inode): FileId) -> u64 {
        let mut stat = fs::fstat(&found).unwrap();
        (stat.st_dev, stat.st_ino) = (device, inode);
        known.find_or_add(&stat, found, (INodeNo::ROOT, "file".into())).number.0
    }

    /// Number of a file in the table.
    fn number(known: &mut KnownNodes, file: FileId) -> u64 {
        add(known, fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap(), file)
    }

    #[test]
    fn files_keep_their_numbers_unless_these_are_taken() {
        let mut known = table();
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
        let mut known = table();
        number(&mut known, (7, 20));
        number(&mut known, (7, 20));
        assert!(known.forget(INodeNo(20), 1).is_none());
        assert!(known.forget(INodeNo(20), 1).is_some());
        assert!(known.forget(INodeNo(20), 1).is_none(), "it is gone");
        assert!(known.by_file.is_empty() && known.by_number.is_empty() && known.held.is_empty());
    }

    #[test]
    fn a_new_file_with_the_number_of_a_removed_one_is_another_entry() {
        let mut known = table();
        assert_eq!(add(&mut known, tempfile::tempfile().unwrap().into(), (7, 20)), 20);
        assert_eq!(number(&mut known, (7, 20)), FIRST_SPARE_NUMBER);
        assert!(known.forget(INodeNo(20), 1).is_some());
        assert_eq!(number(&mut known, (7, 20)), FIRST_SPARE_NUMBER, "it is still known");
    }

    /// A folder `a/b` with files 0 to 9. All its entries are known, two of them have descriptors.
    struct Tree {
        folder: tempfile::TempDir,
        nodes: PassedNodes,
        known: Vec<PassedNode>,
    }

    impl Tree {
        fn new() -> Tree {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let root = fs::open(folder.path(), flags, Mode::empty()).unwrap();
            let nodes = PassedNodes::new(root).unwrap();
            nodes.known().held.resize(HELD);
            let look_up = |folder: &PassedNode, name: &str| {
                nodes.look_up(folder, OsStr::new(name)).unwrap().0
            };
            let a = look_up(&nodes.root, "a");
            let b = look_up(&a, "b");
            let mut known = vec![a, b.clone()];
            for name in 0..10 {
                let name = name.to_string();
                std::fs::write(folder.path().join("a/b").join(&name), &name).unwrap();
                known.push(look_up(&b, &name));
            }
            Tree { folder, nodes, known }
        }

        /// The numbers of `a`, `b` and the files. No descriptor is in use.
        fn unused(&mut self) -> Vec<INodeNo> {
            self.known.drain(..).map(|node| node.number).collect()
        }

        fn content(&self, number: INodeNo) -> Result<String> {
            Ok(std::fs::read_to_string(self.nodes.get(number)?.path()).unwrap())
        }

        fn descriptors(&self) -> usize {
            let known = self.nodes.known();
            known.by_number.values().filter(|known| known.descriptor.strong_count() > 0).count()
        }
    }

    #[test]
    fn entries_without_descriptors_are_found_where_they_were() {
        let mut tree = Tree::new();
        assert_eq!(tree.descriptors(), 12, "all are in use");
        let numbers = tree.unused();
        assert_eq!(tree.descriptors(), HELD.get());
        for (name, &number) in numbers[2..].iter().enumerate() {
            assert_eq!(tree.content(number), Ok(name.to_string()));
            assert_eq!(tree.descriptors(), HELD.get());
        }
        assert_eq!(tree.nodes.get(numbers[0]).unwrap().stat().unwrap().st_ino, numbers[0].0);
    }

    #[test]
    fn an_entry_in_use_keeps_its_descriptor_when_it_is_removed() {
        let mut tree = Tree::new();
        let open = tree.known.remove(5);
        tree.unused();
        std::fs::remove_file(tree.folder.path().join("a/b/3")).unwrap();
        assert_eq!(tree.nodes.get(open.number).unwrap().stat().unwrap().st_nlink, 0);
    }

    #[test]
    fn an_entry_that_is_removed_keeps_no_descriptor() {
        let mut tree = Tree::new();
        let numbers = tree.unused();
        let folder = tree.nodes.get(numbers[1]).unwrap();
        tree.nodes.look_up(&folder, OsStr::new("3")).unwrap();
        let has_descriptor =
            |tree: &Tree| tree.nodes.known().by_number[&numbers[5]].descriptor.strong_count() > 0;
        assert!(has_descriptor(&tree));
        tree.nodes.let_go(&folder, OsStr::new("3"));
        assert!(!has_descriptor(&tree));
        assert_eq!(tree.content(numbers[5]), Ok("3".to_owned()));
    }

    #[test]
    fn an_entry_that_others_have_moved_or_replaced_is_stale() {
        let mut tree = Tree::new();
        let numbers = tree.unused();
        let path = |name: &str| tree.folder.path().join(name);
        std::fs::rename(path("a/b/0"), path("a/b/moved")).unwrap();
        assert_eq!(tree.content(numbers[2]), Err(Errno::STALE));
        std::fs::write(path("a/b/0"), "another").unwrap();
        assert_eq!(tree.content(numbers[2]), Err(Errno::STALE));
        tree.nodes.moved(&tree.nodes.get(numbers[1]).unwrap(), OsStr::new("moved"));
        assert_eq!(tree.content(numbers[2]), Ok("0".to_owned()), "the mount has moved it");
    }

    #[test]
    fn folders_that_others_have_moved_into_each_other_are_stale() {
        let mut tree = Tree::new();
        let numbers = tree.unused();
        tree.nodes.known().by_number.get_mut(&numbers[0]).unwrap().place = (numbers[1], "a".into());
        assert_eq!(tree.content(numbers[2]), Err(Errno::STALE));
        let inode = std::fs::metadata(tree.folder.path().join("a")).unwrap().ino();
        assert_eq!(numbers[0].0, inode);
    }
}
