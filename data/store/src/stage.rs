//! Staging: an object of the store appears under a path in a task's folder, if possible without
//! copying.

use std::fs::{File, Permissions};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use eyas_types::{FileMode, ObjectId};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::holes::copy_range;
use crate::index::{IndexEntry, file_name};
use crate::objects::{ObjectStore, OpenObject, not_here, sealed};

/// How an object was staged, from cheapest to most expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StagedBy {
    /// A hard link to the object's inode; see [`ObjectStore::verify_seal`].
    HardLink,
    /// A new inode that shares the blocks of the object until one of the two is written.
    Reflink,
    /// A symbolic link, which dangles once the object is removed from the store: pin the object
    /// while the task runs.
    Symlink,
    /// A private copy.
    Copy,
}

impl ObjectStore {
    /// Makes the object appear as `dest`. `dest` must not exist, and its folder must. Takes a few
    /// microseconds where hard links work. An object that is not verified yet is read once.
    ///
    /// # Errors
    /// `NotHere`, also if it turns out to be damaged; `Full` or `Io` for failures of the disk.
    pub fn stage(&self, id: ObjectId, dest: &Path) -> Result<StagedBy, StoreError> {
        let (entry, _) = self.ready(id)?;
        let name = file_name(id, entry.size_bytes, entry.checksum);
        match rustix::fs::linkat(self.objects(), &name, CWD, dest, AtFlags::empty()) {
            Ok(()) => Ok(StagedBy::HardLink),
            Err(Errno::NOENT)
                if rustix::fs::accessat(
                    self.objects(),
                    &name,
                    rustix::fs::Access::EXISTS,
                    AtFlags::empty(),
                )
                .is_err() =>
            {
                self.drop_damaged(id, entry);
                Err(not_here(id))
            }
            // Another file system, too many links, or no support for hard links.
            Err(
                Errno::XDEV
                | Errno::MLINK
                | Errno::PERM
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::ACCESS,
            ) => self.stage_without_hard_link(id, entry, &name, dest),
            Err(errno) => Err(failed(id, dest, errno)),
        }
    }

    /// Makes a copy of some bytes of the object appear as `dest`. `dest` must not exist, and its
    /// folder must. `bytes` must be inside the object.
    ///
    /// # Errors
    /// `NotHere`, also if it turns out to be damaged; `Full` or `Io` for failures of the disk.
    pub fn stage_part(
        &self,
        id: ObjectId,
        dest: &Path,
        bytes: Range<u64>,
    ) -> Result<(), StoreError> {
        let (IndexEntry { mode, .. }, _) = self.ready(id)?;
        let OpenObject { file, size_bytes, .. } = self.open_object(id)?;
        let bytes = bytes.start..bytes.end.min(size_bytes).max(bytes.start);
        let copy = || -> std::io::Result<()> {
            if copy_range(&file, bytes.clone(), &create(dest, mode.without_execution())?)?
                != bytes.end - bytes.start
            {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            Ok(())
        };
        copy().map_err(|error| {
            // An incomplete file must not look like an input. If it cannot be removed, the error
            // below says enough.
            let _ = std::fs::remove_file(dest);
            failed(id, dest, error)
        })
    }

    /// Makes a private copy of the object appear as `dest`, which its task may write. `dest` must
    /// not exist, and its folder must.
    ///
    /// # Errors
    /// `NotHere`, also if it turns out to be damaged; `Full` or `Io` for failures of the disk.
    pub fn stage_copy(&self, id: ObjectId, dest: &Path) -> Result<(), StoreError> {
        let (IndexEntry { mode, .. }, _) = self.ready(id)?;
        let OpenObject { file, size_bytes, .. } = self.open_object(id)?;
        let copy = || -> std::io::Result<()> {
            let staged = create(dest, mode)?;
            if rustix::fs::ioctl_ficlone(&staged, file.as_fd()).is_err() {
                copy_range(&file, 0..size_bytes, &staged)?;
            }
            let mode = staged.metadata()?.permissions().mode();
            staged.set_permissions(Permissions::from_mode(mode | 0o200))
        };
        copy().map_err(|error| {
            // An incomplete file must not look like an input. If it cannot be removed, the error
            // below says enough.
            let _ = std::fs::remove_file(dest);
            failed(id, dest, error)
        })
    }

    fn stage_without_hard_link(
        &self,
        id: ObjectId,
        entry: IndexEntry,
        name: &str,
        dest: &Path,
    ) -> Result<StagedBy, StoreError> {
        let OpenObject { file: object, size_bytes, .. } = self.open_object(id)?;
        if let Ok(copy) = create(dest, entry.mode) {
            if rustix::fs::ioctl_ficlone(&copy, object.as_fd()).is_ok() {
                return Ok(StagedBy::Reflink);
            }
            std::fs::remove_file(dest).map_err(|error| failed(id, dest, error))?;
        }
        match rustix::fs::symlink(self.dir().join("objects").join(name), dest) {
            Ok(()) => return Ok(StagedBy::Symlink),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(errno) => return Err(failed(id, dest, errno)),
        }
        let staged = create(dest, entry.mode).map_err(|error| failed(id, dest, error))?;
        copy_range(&object, 0..size_bytes, &staged).map_err(|error| {
            // An incomplete file must not look like an input. If it cannot be removed, the error
            // below says enough.
            let _ = std::fs::remove_file(dest);
            failed(id, dest, error)
        })?;
        Ok(StagedBy::Copy)
    }
}

fn create(dest: &Path, mode: FileMode) -> std::io::Result<File> {
    File::options().write(true).create_new(true).mode(sealed(mode).bits()).open(dest)
}

fn failed(id: ObjectId, dest: &Path, error: impl Into<std::io::Error>) -> StoreError {
    StoreError::io(format!("cannot stage object {id} as `{}`", dest.display()), error)
}
