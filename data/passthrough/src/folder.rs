//! An open folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use fuser::{INodeNo, ReplyDirectory};
use rustix::fs::{self, AtFlags, Dir, DirEntry, FileType, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::attributes::kind;
use crate::nodes::PassedNode;

/// An open folder, which is read in steps.
pub(crate) struct PassedFolder {
    steps: Mutex<FolderSteps>,
}

struct FolderSteps {
    entries: Dir,
    /// The kernel's offset of the entry that follows: the underlying file system's own.
    next: u64,
    /// The entry that had no room in the last step.
    left: Option<DirEntry>,
    /// The failure after the entries of the last step.
    failure: Option<Errno>,
}

impl PassedFolder {
    pub fn open(node: &PassedNode) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = Dir::new(fs::openat(node, ".", flags, Mode::empty())?)?;
        Ok(PassedFolder {
            steps: Mutex::new(FolderSteps { entries, next: 0, left: None, failure: None }),
        })
    }

    /// Adds the entries from this offset on to the reply, as far as there is room.
    pub fn read(&self, offset: u64, reply: &mut ReplyDirectory) -> Result<()> {
        // No step panics half-way.
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if offset != steps.next {
            steps.left = None;
            steps.entries.seek(offset.cast_signed())?;
            steps.next = offset;
        }
        if let Some(failure) = steps.failure.take() {
            return Err(failure);
        }
        let mut is_empty = true;
        loop {
            let entry = match steps.left.take().map(Ok).or_else(|| steps.entries.read()) {
                None => return Ok(()),
                Some(Err(failure)) if !is_empty => {
                    steps.failure = Some(failure);
                    return Ok(());
                }
                Some(entry) => entry?,
            };
            let (next, name) = (entry.offset().cast_unsigned(), entry.file_name().to_bytes());
            let name = OsStr::from_bytes(name);
            if reply.add(INodeNo(entry.ino()), next, kind(steps.kind(&entry)), name) {
                steps.left = Some(entry);
                return Ok(());
            }
            steps.next = next;
            is_empty = false;
        }
    }

    /// Has the storage store the folder.
    pub fn sync(&self) -> Result<()> {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        fs::fsync(steps.entries.fd()?)
    }
}

impl FolderSteps {
    /// Kind of an entry. Some file systems, such as NFSv3, do not tell it while a folder is read.
    fn kind(&self, entry: &DirEntry) -> FileType {
        match entry.file_type() {
            FileType::Unknown => {
                let folder = self.entries.fd();
                let stat = folder.and_then(|folder| {
                    fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                });
                stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
            }
            known => known,
        }
    }
}
