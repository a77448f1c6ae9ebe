//! Turns to read and write persistent storage that other nodes use too, where a coordinator gives
//! them.

use std::pin::Pin;

use eyas_types::{Extent, Operation, StorageFileId, StorageLocation};

/// Bytes of a file that are read or written in one turn: what a disk reads in some 50 ms, while
/// others wait.
pub(crate) const TURN_BYTES: u64 = 8 << 20;
/// A smaller output is written without waiting. The file system writes many of them together, which
/// takes less time than one after the other.
pub(crate) const ORDERED_OUTPUT_BYTES: u64 = 256 << 10;

/// A read or write that waits for its turn.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// The storage.
    pub location: StorageLocation,
    /// The file.
    pub file: StorageFileId,
    /// Whether they are read or written.
    pub operation: Operation,
    /// Which bytes of the file.
    pub extent: Extent,
}

/// The permission to read or write. It ends when it is dropped.
pub type StorageTurn = Box<dyn Send>;

/// Gives turns to reads and writes of shared storage.
pub trait StorageOrder: Send + Sync {
    /// Resolves when the read or write may begin. It never holds one up for want of a coordinator:
    /// if none can be reached, it resolves at once, to `None`.
    fn turn(
        &self,
        request: TurnRequest,
    ) -> Pin<Box<dyn Future<Output = Option<StorageTurn>> + Send + '_>>;
}

/// Waits for a turn, on a thread that may block. `None`: the read or write proceeds unordered.
pub(crate) type WaitForTurn = dyn Fn(TurnRequest) -> Option<StorageTurn> + Send;
