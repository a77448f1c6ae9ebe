//! Adoption: a file that a task has written becomes an object, if possible without copying.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use eyas_types::{FileMode, ObjectId, ObjectSpec};
use rustix::fs::{AtFlags, CWD};

use crate::checksum::Checksum;
use crate::error::StoreError;
use crate::holes::each_part;
use crate::index::IndexEntry;
use crate::objects::{ObjectStore, seal};
use crate::pieces::PieceHasher;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 20;

impl ObjectStore {
    /// Makes a file an object. `name` makes the id of the object from its size, its checksum and
    /// its mode. If the store is on the same file system and the file has no other link, the file's
    /// inode becomes the object; otherwise the file is copied. The file must not be written any
    /// longer, and may be removed afterwards. It is read once, or twice if it is copied. Blocks.
    ///
    /// # Errors
    /// `Full` or `Io` for failures of the disk; `WrongSize` if the file is still being written.
    pub fn adopt(
        &self,
        path: &Path,
        name: impl FnOnce(u64, Checksum, FileMode) -> ObjectSpec,
    ) -> Result<ObjectSpec, StoreError> {
        self.adopt_file(path, |entry| {
            let spec = name(entry.size_bytes, entry.checksum, entry.mode);
            (spec.id(), entry, spec)
        })
    }

    /// Makes a file the object with this id, as [`adopt`](Self::adopt) does. All may read it.
    /// Returns its size.
    ///
    /// # Errors
    /// As for `adopt`.
    pub fn adopt_as(&self, path: &Path, id: ObjectId) -> Result<u64, StoreError> {
        self.adopt_file(path, |entry| {
            let size_bytes = entry.size_bytes;
            (id, IndexEntry { mode: FileMode::READABLE, ..entry }, size_bytes)
        })
    }

    /// Makes a file an object. `name` makes the object's id and its entry from what was found.
    fn adopt_file<T>(
        &self,
        path: &Path,
        name: impl FnOnce(IndexEntry) -> (ObjectId, IndexEntry, T),
    ) -> Result<T, StoreError> {
        let failed =
            |error: io::Error| StoreError::io(format!("cannot keep `{}`", path.display()), error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mut summing = PieceHasher::of_size(metadata.len());
        let mut buffer = vec![0; BUFFER_BYTES];
        each_part(&file, 0..metadata.len(), &mut buffer, &failed, |part| {
            summing.take(part);
            Ok(())
        })?;
        summing.end();
        let (size_bytes, checksum) = (metadata.len(), summing.whole());
        let mode = FileMode::of(metadata.mode());
        let (id, entry, named) = name(IndexEntry { size_bytes, checksum, mode, verified: true });
        if self.adopt_inode(path, &file, id, entry)? {
            self.remembered().insert(id, &summing);
        } else {
            self.copy(&file, id, entry, &mut buffer, &failed)?;
        }
        Ok(named)
    }

    /// Links the file into the store. Returns `false` if this is not possible, or if the file has
    /// other links.
    fn adopt_inode(
        &self,
        path: &Path,
        file: &File,
        id: ObjectId,
        entry: IndexEntry,
    ) -> Result<bool, StoreError> {
        // A file must not be sealed if it can be written through another link, or if the path is a
        // symbolic link.
        let is_alone = fs::symlink_metadata(path)
            .and_then(|named| Ok((named, file.metadata()?)))
            .is_ok_and(|(named, opened)| {
                named.is_file() && named.ino() == opened.ino() && opened.nlink() == 1
            });
        let partial = self.new_partial();
        if !is_alone
            || rustix::fs::linkat(CWD, path, self.partial(), &partial, AtFlags::empty()).is_err()
        {
            return Ok(false);
        }
        let is_whole = || file.metadata().is_ok_and(|metadata| metadata.len() == entry.size_bytes);
        let published = match seal(file, entry.mode) {
            Ok(()) if is_whole() => self.publish(&partial, id, entry),
            _ => {
                self.discard_partial(&partial);
                return Ok(false);
            }
        };
        // A verified copy was in the store already.
        if !matches!(published, Ok(true)) {
            self.discard_partial(&partial);
        }
        published.map(|_| true)
    }

    fn copy(
        &self,
        file: &File,
        id: ObjectId,
        entry: IndexEntry,
        buffer: &mut [u8],
        failed: &dyn Fn(io::Error) -> StoreError,
    ) -> Result<(), StoreError> {
        let mut into = self.begin(id, entry.size_bytes, entry.mode)?;
        each_part(file, 0..entry.size_bytes, buffer, failed, |part| into.take(part))?;
        if into.checksum() != entry.checksum {
            return Err(failed(io::Error::other("it is still being written to")));
        }
        into.commit().map(drop)
    }
}
