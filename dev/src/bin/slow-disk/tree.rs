//! Files of the folder, by the inode numbers that the kernel uses. Each file that the kernel
//! remembers is held by an `O_PATH` descriptor, so renaming and removing need no bookkeeping. The
//! numbers are those of the underlying files, so all mounts of a disk agree on them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo, Request, TimeOrNow};
use rustix::fs::{self, AtFlags, CWD, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::{Errno, Result};

/// Open flags that are passed on to the underlying file. The kernel handles the others or they
/// concern its cache.
const PASSED_ON: OFlags = OFlags::ACCMODE;

struct InodeHandle {
    name: Arc<OwnedFd>,
    lookups: u64,
}

/// Attributes to be changed.
pub struct Change {
    pub mode: Option<u32>,
    pub owner: Option<u32>,
    pub group: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

/// An entry of a folder.
pub struct Entry {
    pub number: INodeNo,
    pub kind: FileType,
    pub name: std::ffi::OsString,
}

pub struct Tree {
    root: Arc<OwnedFd>,
    device: u64,
    known: Mutex<BTreeMap<u64, InodeHandle>>,
}

impl Tree {
    pub fn new(folder: &Path) -> Result<Self> {
        let root =
            fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let device = fs::fstat(&root)?.st_dev;
        Ok(Self { root: Arc::new(root), device, known: Mutex::default() })
    }

    /// Descriptor of the underlying file.
    fn name(&self, number: INodeNo) -> Result<Arc<OwnedFd>> {
        if number == INodeNo::ROOT {
            return Ok(self.root.clone());
        }
        let known = self.known.lock().expect("nobody panics with it");
        known.get(&number.0).map(|known| known.name.clone()).ok_or(Errno::STALE)
    }

    /// Looks up a name. The kernel remembers the file from now on.
    pub fn look_up(&self, folder: INodeNo, name: &OsStr) -> Result<FileAttr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = fs::openat(self.name(folder)?, name, flags, Mode::empty())?;
        let stat = fs::fstat(&found)?;
        if stat.st_dev != self.device {
            // Its number could be that of another file here.
            return Err(Errno::XDEV);
        }
        let mut known = self.known.lock().expect("nobody panics with it");
        known
            .entry(stat.st_ino)
            .or_insert_with(|| InodeHandle { name: Arc::new(found), lookups: 0 })
            .lookups += 1;
        Ok(attributes(&stat))
    }

    /// The kernel has forgotten this many of its lookups.
    pub fn forget(&self, number: INodeNo, lookups: u64) {
        let mut known = self.known.lock().expect("nobody panics with it");
        if let Some(file) = known.get_mut(&number.0) {
            file.lookups = file.lookups.saturating_sub(lookups);
            if file.lookups == 0 {
                known.remove(&number.0);
            }
        }
    }

    pub fn attributes(&self, number: INodeNo) -> Result<FileAttr> {
        let mut attributes = attributes(&fs::fstat(self.name(number)?)?);
        attributes.ino = number;
        Ok(attributes)
    }

    pub fn change(&self, number: INodeNo, change: &Change) -> Result<FileAttr> {
        let name = self.name(number)?;
        if let Some(mode) = change.mode {
            fs::chmod(path(&name), Mode::from_raw_mode(mode))?;
        }
        if change.owner.is_some() || change.group.is_some() {
            let (owner, group) = (change.owner.map(Uid::from_raw), change.group.map(Gid::from_raw));
            fs::chownat(&name, "", owner, group, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = change.size {
            fs::ftruncate(
                fs::open(path(&name), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?,
                size,
            )?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            fs::utimensat(&name, "", &times, AtFlags::EMPTY_PATH)?;
        }
        self.attributes(number)
    }

    pub fn open(&self, number: INodeNo, flags: i32) -> Result<File> {
        let flags = OFlags::from_bits_retain(flags as u32) & PASSED_ON;
        Ok(fs::open(path(&*self.name(number)?), flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Creates a file owned by the caller, and opens it.
    pub fn create(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, File)> {
        let flags = OFlags::from_bits_retain(flags as u32);
        let made =
            OFlags::CREATE | OFlags::CLOEXEC | flags & (PASSED_ON | OFlags::EXCL | OFlags::TRUNC);
        let file = fs::openat(
            self.name(folder)?,
            name,
            made | OFlags::NOFOLLOW,
            Mode::from_raw_mode(mode),
        )?;
        self.give(asks, folder, name)?;
        Ok((self.look_up(folder, name)?, file.into()))
    }

    pub fn make_node(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
        device: u32,
    ) -> Result<FileAttr> {
        let kind = fs::FileType::from_raw_mode(mode);
        fs::mknodat(self.name(folder)?, name, kind, Mode::from_raw_mode(mode), u64::from(device))?;
        self.give(asks, folder, name)?;
        self.look_up(folder, name)
    }

    pub fn make_folder(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        mode: u32,
    ) -> Result<FileAttr> {
        fs::mkdirat(self.name(folder)?, name, Mode::from_raw_mode(mode))?;
        self.give(asks, folder, name)?;
        self.look_up(folder, name)
    }

    pub fn make_symlink(
        &self,
        asks: &Request,
        folder: INodeNo,
        name: &OsStr,
        target: &Path,
    ) -> Result<FileAttr> {
        fs::symlinkat(target, self.name(folder)?, name)?;
        self.give(asks, folder, name)?;
        self.look_up(folder, name)
    }

    pub fn make_link(&self, number: INodeNo, folder: INodeNo, name: &OsStr) -> Result<FileAttr> {
        fs::linkat(
            CWD,
            path(&*self.name(number)?),
            self.name(folder)?,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )?;
        self.look_up(folder, name)
    }

    /// Changes the owner of a new file from this process's user to the caller.
    fn give(&self, asks: &Request, folder: INodeNo, name: &OsStr) -> Result<()> {
        let (owner, group) = (Uid::from_raw(asks.uid()), Gid::from_raw(asks.gid()));
        fs::chownat(self.name(folder)?, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)
    }

    pub fn target(&self, number: INodeNo) -> Result<Vec<u8>> {
        Ok(fs::readlinkat(self.name(number)?, "", Vec::new())?.into_bytes())
    }

    pub fn remove(&self, folder: INodeNo, name: &OsStr, flags: AtFlags) -> Result<()> {
        fs::unlinkat(self.name(folder)?, name, flags)
    }

    pub fn rename(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr), flags: u32) -> Result<()> {
        let flags = fs::RenameFlags::from_bits_retain(flags);
        fs::renameat_with(self.name(from.0)?, from.1, self.name(to.0)?, to.1, flags)
    }

    pub fn entries(&self, number: INodeNo) -> Result<Vec<Entry>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::Dir::new(fs::open(path(&*self.name(number)?), flags, Mode::empty())?)?;
        let entry = |entry: Result<fs::DirEntry>| {
            let entry = entry?;
            let name =
                std::os::unix::ffi::OsStringExt::from_vec(entry.file_name().to_bytes().to_vec());
            Ok(Entry { number: INodeNo(entry.ino()), kind: kind(entry.file_type()), name })
        };
        folder.map(entry).collect()
    }

    pub fn room(&self) -> Result<fs::StatVfs> {
        fs::fstatvfs(&*self.root)
    }
}

/// A path to a descriptor's file, for calls that take no descriptor.
fn path(name: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", name.as_fd().as_raw_fd()))
}

fn attributes(stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec as u32),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as u32),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

fn kind(kind: fs::FileType) -> FileType {
    match kind {
        fs::FileType::Directory => FileType::Directory,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::NamedPipe,
        fs::FileType::Socket => FileType::Socket,
        fs::FileType::CharacterDevice => FileType::CharDevice,
        fs::FileType::BlockDevice => FileType::BlockDevice,
        fs::FileType::RegularFile | fs::FileType::Unknown => FileType::RegularFile,
    }
}

/// Times before 1970 become 1970.
fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds)
}

fn timespec(asked: Option<TimeOrNow>) -> Timespec {
    match asked {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) }
        }
    }
}
