//! Turns to read persistent storage that other nodes read too, where a coordinator gives them.

use std::pin::Pin;

use eyas_types::{Extent, StorageFileId, StorageLocation};

/// Bytes of a file that are read in one turn: what a disk reads in some 50 ms, while others wait.
pub(crate) const TURN_BYTES: u64 = 8 << 20;

/// A read that waits for its turn.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// The storage.
    pub location: StorageLocation,
    /// The file.
    pub file: StorageFileId,
    /// Which bytes of the file.
    pub extent: Extent,
}

/// The permission to read. It ends when it is dropped.
pub type ReadTurn = Box<dyn Send>;

/// Gives turns to reads of shared storage.
pub trait ReadOrder: Send + Sync {
    /// Resolves when the read may begin. It never holds up a read for want of a coordinator: if
    /// none can be reached, it resolves at once.
    fn turn(&self, request: TurnRequest) -> Pin<Box<dyn Future<Output = ReadTurn> + Send + '_>>;
}
