//! The receiver of bytes that are read from persistent storage. A retry continues after the bytes
//! that were received, since all tries read the same version.

use crate::checksum::Checksum;
use crate::error::StorageError;
use crate::incoming::Incoming;

/// Size of a range of a large object, and of a part of a multipart upload.
pub(super) const RANGE_BYTES: usize = 8 << 20;

/// Receives bytes in order. If it is dropped unfinished, it leaves nothing behind.
pub(super) trait Sink {
    /// Number of bytes expected.
    fn size_bytes(&self) -> u64;
    /// Number of bytes received so far.
    fn written_bytes(&self) -> u64;
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError>;
    /// Receives zeros that need no space.
    fn skip(&mut self, bytes: u64) -> Result<(), StorageError>;
    fn finish(self) -> Result<Checksum, StorageError>;

    /// Size of the ranges of a large object in a bucket that are read at the same time. Each comes
    /// as a whole. Without ranges, all bytes come one after the other, as they are received.
    fn range_bytes(&self) -> Option<usize> {
        Some(RANGE_BYTES)
    }
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

    fn skip(&mut self, bytes: u64) -> Result<(), StorageError> {
        Ok(Incoming::skip(self, bytes)?)
    }

    fn finish(self) -> Result<Checksum, StorageError> {
        Ok(self.commit()?)
    }
}
