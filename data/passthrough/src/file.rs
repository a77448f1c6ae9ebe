//! An open file. Its content is read, written, synced and closed by calls of the C library, which
//! the library of `eyas io run` intercepts.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, fstatfs};

use crate::nodes::{PassedNode, descriptor_path};

/// Flags that are passed on to the underlying file, beside those that create it.
const PASSED_ON: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::DIRECT)
    .union(OFlags::DSYNC)
    .union(OFlags::SYNC)
    .union(OFlags::NOATIME);

/// The same for a file that may have to be created.
const CREATED_WITH: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::TRUNC);

/// File systems whose `close` waits until the storage has all written bytes, by their magic number
/// in `statfs(2)`, as in `data/coordinator/preload/src/shared_files.rs`.
const TILL_CLOSE: &[u32] = &[
    0x6969,      // NFS
    0x1983_0326, // BeeGFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and later
    0x5346_414f, // AFS
];

/// Alignment in memory and in the file that `O_DIRECT` needs at most.
const DIRECT_ALIGNMENT: usize = 4096;

thread_local! {
    /// Memory for the content of one request. It grows to the largest request.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An open file.
pub(crate) struct PassedFile {
    file: File,
    flags: OFlags,
    /// Whether something was written that may not be flushed.
    is_written: AtomicBool,
    /// Whether closing the file waits until the storage has it.
    is_flushed_by_close: bool,
}

impl PassedFile {
    /// Opens the entry with this path, with the flags of `open(2)`.
    pub fn open(path: &Path, flags: OFlags) -> io::Result<Self> {
        PassedFile::with(path, flags & PASSED_ON, Mode::empty())
    }

    /// The same where another entry may be by now: a link is not followed, and a pipe does not
    /// wait.
    pub fn open_found(path: &Path, flags: OFlags) -> io::Result<Self> {
        let flags = flags & PASSED_ON | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        PassedFile::with(path, flags, Mode::empty())
    }

    /// Opens a file, and creates it if it does not exist.
    pub fn create(path: &Path, flags: OFlags, mode: Mode) -> io::Result<Self> {
        let flags = flags & (PASSED_ON | CREATED_WITH) | OFlags::CREATE | OFlags::NOFOLLOW;
        PassedFile::with(path, flags, mode)
    }

    fn with(path: &Path, flags: OFlags, mode: Mode) -> io::Result<Self> {
        let access = flags & OFlags::ACCMODE;
        let may_write = access != OFlags::RDONLY;
        let mut options = File::options();
        options.read(access != OFlags::WRONLY).write(may_write).mode(mode.as_raw_mode());
        options.custom_flags((flags - OFlags::ACCMODE).bits().cast_signed());
        let file = options.open(path)?;
        let is_flushed_by_close =
            may_write && TILL_CLOSE.contains(&(fstatfs(&file)?.f_type as u32));
        Ok(PassedFile { file, flags, is_written: AtomicBool::new(false), is_flushed_by_close })
    }

    /// Whether programs may write to it.
    pub fn may_write(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::RDONLY
    }

    /// Whether reads and writes go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.flags.contains(OFlags::DIRECT)
    }

    /// Gives the content to `reply`, up to the end of the file or of the request.
    pub fn read<R>(
        &self,
        offset: u64,
        bytes: usize,
        reply: impl FnOnce(io::Result<&[u8]>) -> R,
    ) -> R {
        with_room(bytes, |room| {
            let mut length = 0;
            while length < bytes {
                match self.file.read_at(&mut room[length..], offset + length as u64) {
                    Ok(0) => break,
                    Ok(read) => length += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if length == 0 => return reply(Err(error)),
                    // The next read reports the failure.
                    Err(_) => break,
                }
                // Past the page cache, a read may only begin at a whole block.
                if self.is_direct() && !length.is_multiple_of(DIRECT_ALIGNMENT) {
                    break;
                }
            }
            reply(Ok(&room[..length]))
        })
    }

    /// Writes, and returns the number of bytes that were written. `from_cache`: the kernel writes
    /// changed pages back, by any handle of the file.
    pub fn write(&self, offset: u64, content: &[u8], from_cache: bool) -> io::Result<usize> {
        self.is_written.store(true, Ordering::Relaxed);
        if from_cache && self.flags.intersects(OFlags::APPEND | OFlags::DIRECT) {
            // Pages belong to an offset, wherever the file ends, and have any length.
            let plain = File::options().write(true).open(descriptor_path(&self.file))?;
            return write_pages(&plain, offset, content);
        }
        if from_cache {
            return write_pages(&self.file, offset, content);
        }
        if self.is_direct() {
            return with_room(content.len(), |room| {
                room.copy_from_slice(content);
                write_at(&self.file, offset, room)
            });
        }
        write_at(&self.file, offset, content)
    }

    /// Does what closing a descriptor of the file does, and reports the failures that it reports.
    pub fn flush(&self) -> io::Result<()> {
        if !self.is_written.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // The library of `eyas io run` knows the unflushed bytes of this descriptor, not of a copy.
        if self.is_flushed_by_close {
            self.file.sync_data()?;
        }
        Ok(nix::unistd::close(self.file.try_clone()?)?)
    }

    /// Has the storage store the file; only its content, if that is enough.
    pub fn sync(&self, is_content_enough: bool) -> io::Result<()> {
        if is_content_enough { self.file.sync_data() } else { self.file.sync_all() }
    }

    pub fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    /// An `O_PATH` descriptor of the file.
    pub fn entry(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::open(descriptor_path(&self.file), flags, Mode::empty())
    }
}

impl AsFd for PassedFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Changes the size of a file that no program has open for this.
pub(crate) fn set_size(node: &PassedNode, bytes: u64) -> io::Result<()> {
    File::options().write(true).open(node.path())?.set_len(bytes)
}

/// Writes changed pages. The kernel takes them to be written unless that fails.
fn write_pages(file: &File, offset: u64, content: &[u8]) -> io::Result<usize> {
    file.write_all_at(content, offset)?;
    Ok(content.len())
}

/// Writes until a write fails.
fn write_at(file: &File, offset: u64, content: &[u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < content.len() {
        match file.write_at(&content[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(written) => length += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if length == 0 => return Err(error),
            // The next write reports the failure.
            Err(_) => break,
        }
    }
    Ok(length)
}

/// Lends this thread's memory for the content of a request, aligned for `O_DIRECT`.
fn with_room<R>(bytes: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    ROOM.with_borrow_mut(|room| {
        if room.len() < bytes + DIRECT_ALIGNMENT {
            room.resize(bytes + DIRECT_ALIGNMENT, 0);
        }
        let begin = room.as_ptr().align_offset(DIRECT_ALIGNMENT);
        work(&mut room[begin..begin + bytes])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_aligned_and_as_large_as_asked_for() {
        for bytes in [1, 5000, 100, 1 << 20] {
            with_room(bytes, |room| {
                assert_eq!(room.len(), bytes);
                assert_eq!(room.as_ptr().align_offset(DIRECT_ALIGNMENT), 0);
            });
        }
    }

    #[test]
    fn pages_that_the_kernel_writes_back_are_not_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let flags = OFlags::RDWR | OFlags::APPEND;
        let file = PassedFile::create(&path, flags, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(file.write(0, b"1234", false).unwrap(), 4);
        assert_eq!(file.write(0, b"56", false).unwrap(), 2, "the offset is that of the end");
        assert_eq!(file.write(1, b"xy", true).unwrap(), 2);
        file.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1xy456");
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "content").unwrap();
        let file = PassedFile::open(&path, OFlags::RDONLY).unwrap();
        let read = |offset, bytes| file.read(offset, bytes, |content| content.unwrap().to_vec());
        assert_eq!(read(0, 100), b"content");
        assert_eq!(read(3, 2), b"te");
        assert_eq!(read(7, 10), b"");
        assert!(!file.may_write());
        assert_eq!(file.write(0, b"x", false).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
