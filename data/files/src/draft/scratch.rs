//! Where the bytes of a draft are: in memory while they are few, otherwise in a sparse file without
//! a name.
//!
//! Most files are small. A file in the scratch folder for each of them would cost more than all
//! else that a mount does for it.

use std::fs::File as ScratchFile;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

/// Largest draft in memory, bytes.
const MAX_IN_MEMORY: usize = 64 << 10;

/// Largest size of all drafts in memory. Further ones go to the scratch folder.
const MAX_ALL_IN_MEMORY: usize = 64 << 20;

/// Size of all drafts in memory.
static ALL_IN_MEMORY: AtomicUsize = AtomicUsize::new(0);

/// The bytes of a draft. Bytes that were not written are zeros.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    bytes: ScratchBytes,
}

/// A view of the bytes of a draft. Bytes in a file change when the draft changes.
#[derive(Clone, Debug)]
pub enum ScratchBytes {
    Memory(CountedBytes),
    File(Arc<ScratchFile>),
}

/// Bytes in memory, which are counted.
#[derive(Debug, Default)]
pub struct CountedBytes(Vec<u8>);

impl Scratch {
    /// An empty draft, which goes to this folder if it grows.
    pub fn new(folder: &Path) -> Self {
        Scratch { folder: folder.to_owned(), bytes: ScratchBytes::Memory(CountedBytes::default()) }
    }

    /// A file without a name in a folder.
    pub fn file_in(folder: &Path) -> io::Result<ScratchFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(file.into()),
            // Not every file system and kernel can do it.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Scratch::unlinked_in(folder),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A file in a folder that loses its name at once.
    fn unlinked_in(folder: &Path) -> io::Result<ScratchFile> {
        let mut number = [0; 16];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let path = folder.join(format!(".eyas-{:032x}", u128::from_le_bytes(number)));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        std::fs::remove_file(&path)?;
        Ok(file.into())
    }

    /// Writes bytes at an offset.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        if let ScratchBytes::Memory(bytes) = &mut self.bytes {
            if bytes.grow(end) {
                bytes.0[offset as usize..end as usize].copy_from_slice(data);
                return Ok(());
            }
            let file = Scratch::file_in(&self.folder)?;
            file.write_all_at(&bytes.0, 0)?;
            self.bytes = ScratchBytes::File(Arc::new(file));
        }
        match &self.bytes {
            ScratchBytes::File(file) => file.write_all_at(data, offset),
            ScratchBytes::Memory(_) => unreachable!("it was moved to a file above"),
        }
    }

    /// Drops all bytes from here on.
    pub fn truncate(&mut self, size_bytes: u64) -> io::Result<()> {
        match &mut self.bytes {
            ScratchBytes::Memory(bytes) => {
                bytes.truncate(size_bytes);
                Ok(())
            }
            ScratchBytes::File(file) => file.set_len(size_bytes),
        }
    }

    /// Replaces the bytes of a range by zeros.
    pub fn clear(&mut self, range: Range<u64>) -> io::Result<()> {
        match &mut self.bytes {
            ScratchBytes::Memory(bytes) => {
                let end = range.end.min(bytes.0.len() as u64);
                if range.start < end {
                    bytes.0[range.start as usize..end as usize].fill(0);
                }
                Ok(())
            }
            ScratchBytes::File(file) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(file, flags, range.start, range.end - range.start)?)
            }
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &ScratchBytes {
        &self.bytes
    }
}

impl ScratchBytes {
    /// Reads bytes; those after the last one are zeros.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut read = vec![0; length];
        self.read_into(offset, &mut read)?;
        Ok(read)
    }

    /// Fills the buffer with the bytes from `offset`; those after the last one are zeros.
    pub fn read_into(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        match self {
            ScratchBytes::Memory(CountedBytes(bytes)) => {
                let from = bytes.get(offset as usize..).unwrap_or_default();
                filled = from.len().min(buffer.len());
                buffer[..filled].copy_from_slice(&from[..filled]);
            }
            ScratchBytes::File(file) => {
                while filled < buffer.len() {
                    match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        buffer[filled..].fill(0);
        Ok(())
    }

    /// Whether no byte of a range was written, as far as that is known.
    pub fn is_hole(&self, range: Range<u64>) -> bool {
        match self {
            ScratchBytes::Memory(CountedBytes(bytes)) => range.start >= bytes.len() as u64,
            ScratchBytes::File(file) => eyas_store::is_hole(file, range),
        }
    }
}

impl CountedBytes {
    /// Makes the bytes at least this long. Returns whether they may be in memory then.
    fn grow(&mut self, size_bytes: u64) -> bool {
        let more = size_bytes.saturating_sub(self.0.len() as u64) as usize;
        if size_bytes > MAX_IN_MEMORY as u64 {
            return false;
        }
        if ALL_IN_MEMORY.fetch_add(more, Ordering::Relaxed) + more > MAX_ALL_IN_MEMORY {
            ALL_IN_MEMORY.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.0.resize(self.0.len() + more, 0);
        true
    }

    fn truncate(&mut self, size_bytes: u64) {
        let before = self.0.len();
        self.0.truncate(size_bytes.min(before as u64) as usize);
        ALL_IN_MEMORY.fetch_sub(before - self.0.len(), Ordering::Relaxed);
    }
}

impl Clone for CountedBytes {
    fn clone(&self) -> Self {
        ALL_IN_MEMORY.fetch_add(self.0.len(), Ordering::Relaxed);
        CountedBytes(self.0.clone())
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.truncate(0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_draft_is_the_same_in_memory_and_in_a_file() {
        for is_large in [false, true] {
            let (mut scratch, mut model) = (Scratch::new(&std::env::temp_dir()), Vec::new());
            if is_large {
                scratch.write(MAX_IN_MEMORY as u64, b"x").unwrap();
                scratch.truncate(0).unwrap();
            }
            assert_eq!(matches!(scratch.bytes(), ScratchBytes::File(_)), is_large);
            for (offset, data) in [(0, "0123456789"), (5, "abc"), (20, "later")] {
                scratch.write(offset, data.as_bytes()).unwrap();
                model.resize(model.len().max(offset as usize + data.len()), 0);
                model[offset as usize..][..data.len()].copy_from_slice(data.as_bytes());
            }
            scratch.clear(3..6).unwrap();
            model[3..6].fill(0);
            scratch.clear(23..30).unwrap();
            model[23..].fill(0);
            scratch.truncate(24).unwrap();
            model.truncate(24);
            model.resize(40, 0);
            assert_eq!(scratch.bytes().read(0, 40).unwrap(), model);
            assert_eq!(scratch.bytes().read(22, 4).unwrap(), model[22..26]);
            assert_eq!(scratch.bytes().read(50, 2).unwrap(), [0, 0]);
        }
    }

    #[test]
    fn where_files_must_have_a_name_it_is_taken_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = Scratch::unlinked_in(folder.path()).unwrap();
        file.write_all_at(b"content", 10).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!((metadata.len(), metadata.nlink(), metadata.mode() & 0o777), (17, 0, 0o600));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_growing_draft_moves_to_a_file() {
        let mut scratch = Scratch::new(&std::env::temp_dir());
        scratch.write(0, b"begin").unwrap();
        let before = scratch.bytes().clone();
        scratch.write(MAX_IN_MEMORY as u64 - 1, b"end").unwrap();
        assert!(matches!(scratch.bytes(), ScratchBytes::File(_)));
        assert_eq!(scratch.bytes().read(0, 6).unwrap(), b"begin\0");
        assert_eq!(scratch.bytes().read(MAX_IN_MEMORY as u64 - 1, 4).unwrap(), b"end\0");
        assert_eq!(before.read(0, 5).unwrap(), b"begin");
    }
}
