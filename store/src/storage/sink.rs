//! Where bytes read from persistent storage go. What was taken stays: a read that is tried again goes on behind it, as
//! all tries are held to one version.

use crate::checksum::Checksum;
use crate::error::StorageError;
use crate::incoming::Incoming;

/// Takes bytes in order; dropped unfinished, it leaves nothing behind.
pub(super) trait Sink {
    /// Bytes expected.
    fn size_bytes(&self) -> u64;
    /// Bytes taken so far.
    fn written_bytes(&self) -> u64;
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError>;
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

    fn finish(self) -> Result<Checksum, StorageError> {
        Ok(self.commit()?)
    }
}
