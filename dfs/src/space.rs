//! What a node of the file system asks of the store's owner: chunks and cached objects share one store, and one account of
//! its room.

use std::future::Future;
use std::pin::Pin;

use eyas_types::ObjectId;

/// A future with whatever is behind it.
pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Who accounts for the room of the store that chunks are in.
pub trait ChunkSpace: Send + Sync + 'static {
    /// Makes room for a chunk, if need be by evicting objects. Whoever gets it says with [`arrived`](Room::arrived) what
    /// came of it.
    ///
    /// # Errors
    /// Why there is none, for a person.
    fn reserve(&self, chunk: ObjectId, size_bytes: u64) -> BoxedFuture<Result<(), String>>;

    /// A chunk that room was made for is in the store, and stays until it is [released](Room::release); or it has not come.
    fn arrived(&self, chunk: ObjectId, is_here: bool);

    /// A chunk need not stay any longer.
    fn release(&self, chunk: ObjectId);

    /// Bytes that there are for further chunks.
    fn free_bytes(&self) -> u64;
}
