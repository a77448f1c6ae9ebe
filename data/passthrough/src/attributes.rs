//! Attributes of entries, as system calls and the kernel's interface have them.

use std::time::UNIX_EPOCH;

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{self, AtFlags, Gid, Mode, Stat, Timestamps, Uid};
use rustix::io::Result;

use crate::nodes::PassedNode;
use crate::times::{time, timespec};

/// Attributes other than the size that a program changes.
pub(crate) struct MetadataChange {
    pub mode: Option<u32>,
    pub owner: Option<u32>,
    pub group: Option<u32>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

impl MetadataChange {
    /// Changes the attributes of an entry.
    pub fn make(&self, node: &PassedNode) -> Result<()> {
        if self.owner.is_some() || self.group.is_some() {
            let (owner, group) = (self.owner.map(Uid::from_raw), self.group.map(Gid::from_raw));
            fs::chownat(node, "", owner, group, AtFlags::EMPTY_PATH)?;
        }
        // After the owner, whose change takes rights from the mode.
        if let Some(mode) = self.mode {
            fs::chmod(node.path(), Mode::from_raw_mode(mode))?;
        }
        if self.accessed.is_some() || self.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(self.accessed),
                last_modification: timespec(self.modified),
            };
            fs::utimensat(node, "", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

/// The kernel's form of the attributes of the entry with this number.
pub(crate) fn attributes(number: INodeNo, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: number,
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        // The kernel's form has the low 20 bits of the minor number and 12 bits of the major one.
        rdev: stat.st_rdev as u32,
        blksize: u32::try_from(stat.st_blksize).unwrap_or(0),
        flags: 0,
    }
}

/// The kernel's form of a kind of entry.
pub(crate) fn kind(kind: fs::FileType) -> FileType {
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
