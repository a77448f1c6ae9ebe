//! Output of a task that exceeds what its result may have: the whole stream in a file on the node's
//! disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How much output of a task is captured, and where.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    /// Bytes of each stream that the result has.
    pub inline_bytes: u64,
    /// The file for a longer stream, and the most bytes of it.
    pub spool: Option<(PathBuf, u64)>,
}

impl From<u64> for Capture {
    fn from(inline_bytes: u64) -> Self {
        Capture { inline_bytes, spool: None }
    }
}

/// A whole stream in a file, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Spool {
    path: PathBuf,
    file: File,
    most_bytes: u64,
    written_bytes: u64,
}

impl Spool {
    /// Begins the file with what the result has.
    pub fn begin(path: PathBuf, most_bytes: u64, first: &[u8]) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let mut spool = Spool { path, file, most_bytes, written_bytes: 0 };
        spool.add(first)?;
        Ok(spool)
    }

    /// Adds the next bytes, as far as the file may have them.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = usize::try_from(self.most_bytes - self.written_bytes).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        self.file.write_all(bytes)?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that the file has.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// The bytes from `start` on, up to `most_bytes` of them. None if they cannot be read: the
    /// whole stream comes with the result.
    pub fn piece(&self, start: u64, most_bytes: usize) -> Vec<u8> {
        let left = self.written_bytes.saturating_sub(start);
        let mut piece = vec![0; most_bytes.min(usize::try_from(left).unwrap_or(usize::MAX))];
        match self.file.read_exact_at(&mut piece, start) {
            Ok(()) => piece,
            Err(_) => Vec::new(),
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // It may have become an object of the store.
        let _ = fs::remove_file(&self.path);
    }
}
