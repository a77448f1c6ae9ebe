//! Handing over: another process of this machine and user writes content into the folder of a
//! store, and the owner of the store makes it an object. No byte passes through a connection.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use eyas_types::{FileMode, ObjectId};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::checksum::Checksum;
use crate::error::StoreError;
use crate::index::{IndexEntry, PARTIAL};
use crate::objects::{ObjectStore, seal, sum_up};

/// Bytes written at a time. The page cache takes areas of memory as large as a write, and a virtual
/// machine may have to wait for its host before it can use large ones: there, writes of 4 MiB took
/// 10 times as long.
const WRITE_BYTES: usize = 256 << 10;

/// A file in the folder of a store, which the owner of the store has not taken. Dropping it removes
/// the file.
#[derive(Debug)]
pub struct HandedOver {
    path: PathBuf,
}

impl HandedOver {
    /// Writes content to a file in the folder of a store, under a name made of a random number. A
    /// process that is killed while it writes leaves no file; files that were named and not taken
    /// are removed when the store is opened again. Blocks.
    ///
    /// # Errors
    /// If the store belongs to another user, if the file system has no files without names, or if
    /// the disk fails.
    pub fn write(store: &Path, number: u128, content: &[u8]) -> io::Result<Self> {
        let folder = store.join(PARTIAL);
        if std::fs::metadata(&folder)?.uid() != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM.into());
        }
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mut file =
            File::from(rustix::fs::openat(CWD, &folder, flags, Mode::RUSR | Mode::WUSR)?);
        for piece in content.chunks(WRITE_BYTES) {
            file.write_all(piece)?;
        }
        let path = folder.join(name(number));
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, unnamed, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
        Ok(HandedOver { path })
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        // The owner of the store has usually taken it.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn name(number: u128) -> String {
    format!("handed-over-{number:032x}")
}

impl ObjectStore {
    /// Makes the content that a process has [handed over](HandedOver) with this number the object
    /// `id`. The file is gone afterwards, whatever the result. `false` if the content has another
    /// size or checksum. Blocks.
    ///
    /// # Errors
    /// `Full` or `Io` for failures of the disk; `Io` also if there is no such file, or if it
    /// belongs to another user.
    pub fn take_handed_over(
        &self,
        number: u128,
        id: ObjectId,
        size_bytes: u64,
        checksum: Checksum,
    ) -> Result<bool, StoreError> {
        let name = name(number);
        let failed = |error: io::Error| StoreError::io(format!("cannot take object {id}"), error);
        // A symbolic link would lead out of the store, and a FIFO would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.partial(), &name, flags, Mode::empty());
        let file = opened.map_err(|errno| failed(errno.into()))?;
        let taken = self.take(&name, file.into(), id, size_bytes, checksum);
        if !matches!(taken, Ok(Some(true))) {
            self.discard_partial(&name);
        }
        taken.map(|taken| taken.is_some()).map_err(failed)
    }

    /// `None` if the content is not the one that was announced, `false` if the store has the object
    /// already.
    fn take(
        &self,
        name: &str,
        mut file: File,
        id: ObjectId,
        size_bytes: u64,
        checksum: Checksum,
    ) -> io::Result<Option<bool>> {
        let stat = rustix::fs::fstat(&file)?;
        let is_file = stat.st_mode & 0o170_000 == 0o100_000;
        // A file with another name could be changed through it.
        if !is_file || stat.st_nlink != 1 || stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM.into());
        }
        let Some(summing) =
            sum_up(&mut file, size_bytes)?.filter(|summing| summing.whole() == checksum)
        else {
            return Ok(None);
        };
        seal(&file, FileMode::READABLE)?;
        let entry = IndexEntry { size_bytes, checksum, mode: FileMode::READABLE, verified: true };
        let published = self.publish(name, id, entry).map_err(io::Error::other)?;
        if published {
            self.remembered().insert(id, &summing);
        }
        Ok(Some(published))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ObjectId = ObjectId([7; 16]);

    fn partial_files(store: &ObjectStore) -> usize {
        std::fs::read_dir(store.dir().join(PARTIAL)).unwrap().count()
    }

    #[test]
    fn a_handed_over_file_becomes_an_object() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(folder.path()).unwrap();
        let content = vec![3; 3_000_000];
        let sum = Checksum::of(&content);
        for number in [1, 2] {
            let handed_over = HandedOver::write(store.dir(), number, &content).unwrap();
            assert!(store.take_handed_over(number, ID, content.len() as u64, sum).unwrap());
            drop(handed_over);
            assert!(store.content(ID).unwrap() == content);
            assert!(store.verify_again(ID).unwrap());
        }
        assert_eq!(partial_files(&store), 0);
    }

    #[test]
    fn wrong_handed_over_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(folder.path()).unwrap();
        let (content, sum) = (b"content", Checksum::of(b"content"));
        let take = |number, size_bytes, sum| store.take_handed_over(number, ID, size_bytes, sum);
        assert!(take(1, 7, sum).is_err(), "there is none");
        let dropped = HandedOver::write(store.dir(), 2, content).unwrap();
        drop(dropped);
        assert!(take(2, 7, sum).is_err(), "it was withdrawn");
        for (number, size_bytes, sum) in [(3, 6, sum), (4, 8, sum), (5, 7, Checksum::of(b"other"))]
        {
            let _handed_over = HandedOver::write(store.dir(), number, content).unwrap();
            assert!(!take(number, size_bytes, sum).unwrap());
        }
        let linked = HandedOver::write(store.dir(), 6, content).unwrap();
        std::fs::hard_link(&linked.path, folder.path().join("other")).unwrap();
        assert!(take(6, 7, sum).is_err(), "it has another name");
        std::os::unix::fs::symlink(
            folder.path().join("other"),
            folder.path().join(PARTIAL).join(name(7)),
        )
        .unwrap();
        assert!(take(7, 7, sum).is_err(), "it is a symbolic link");
        drop(linked);
        assert!(!store.contains(ID));
    }
}
