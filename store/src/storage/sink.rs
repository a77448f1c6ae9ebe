//! Where bytes read from persistent storage go: into the store, or into one task's own file.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::checksum::{Checksum, Hasher};
use crate::error::StorageError;
use crate::incoming::{Incoming, reserve};
use crate::objects::mode;

/// Takes bytes in order; dropped unfinished, it leaves nothing behind.
pub(super) trait Sink {
    /// Bytes expected.
    fn size_bytes(&self) -> u64;
    /// Bytes taken so far.
    fn written_bytes(&self) -> u64;
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError>;
    /// Back to the first byte.
    fn restart(&mut self) -> Result<(), StorageError>;
    fn finish(self) -> Result<Checksum, StorageError>;
}

impl Sink for Incoming {
    fn size_bytes(&self) -> u64 {
        Incoming::size_bytes(self)
    }

    fn written_bytes(&self) -> u64 {
        Incoming::written_bytes(self)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        Ok(Incoming::write(self, bytes)?)
    }

    fn restart(&mut self) -> Result<(), StorageError> {
        Ok(Incoming::restart(self)?)
    }

    fn finish(self) -> Result<Checksum, StorageError> {
        Ok(self.commit()?)
    }
}

/// A file of one task.
pub(super) struct PrivateFile {
    path: PathBuf,
    file: File,
    size_bytes: u64,
    written_bytes: u64,
    hasher: Hasher,
    finished: bool,
}

impl PrivateFile {
    pub fn create(path: PathBuf, size_bytes: u64, executable: bool) -> Result<Self, StorageError> {
        let failed = |error: std::io::Error| StorageError::local(format!("cannot create `{}`", path.display()), error);
        let mode = mode(executable).bits() | 0o200;
        let file = File::options().write(true).create_new(true).mode(mode).open(&path).map_err(failed)?;
        let created = PrivateFile { path, file, size_bytes, written_bytes: 0, hasher: Hasher::new(), finished: false };
        reserve(&created.file, size_bytes).map_err(|errno| created.failed(errno))?;
        Ok(created)
    }

    fn failed(&self, error: impl Into<std::io::Error>) -> StorageError {
        StorageError::local(format!("cannot write `{}`", self.path.display()), error)
    }
}

impl Sink for PrivateFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        if let Err(error) = self.file.write_all(bytes) {
            return Err(self.failed(error));
        }
        self.hasher.update(bytes);
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn restart(&mut self) -> Result<(), StorageError> {
        if let Err(error) = self.file.rewind() {
            return Err(self.failed(error));
        }
        (self.hasher, self.written_bytes) = (Hasher::new(), 0);
        Ok(())
    }

    fn finish(mut self) -> Result<Checksum, StorageError> {
        assert_eq!(self.written_bytes, self.size_bytes, "a read that came short was taken for whole");
        self.finished = true;
        Ok(self.hasher.finish())
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        if !self.finished {
            // Its folder is the task's own and goes away with it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
