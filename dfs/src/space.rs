//! The interface to the owner of the object store. Chunks and cached objects share one store and one account of its
//! space.

use std::future::Future;
use std::pin::Pin;

use eyas_types::ObjectId;

/// A boxed future.
pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Accounts for the space of the store that chunks are in.
pub trait ChunkSpace: Send + Sync + 'static {
    /// Reserves space for a chunk, if necessary by evicting objects. The caller reports the outcome with
    /// [`arrived`](ChunkSpace::arrived).
    ///
    /// # Errors
    /// The reason why there is no space.
    fn reserve(&self, chunk: ObjectId, size_bytes: u64) -> BoxedFuture<Result<(), String>>;

    /// The chunk of a reservation is in the store, and stays until it is [released](ChunkSpace::release); or it has
    /// not arrived.
    fn arrived(&self, chunk: ObjectId, is_here: bool);

    /// A chunk need not stay any longer.
    fn release(&self, chunk: ObjectId);

    /// Free bytes for further chunks.
    fn free_bytes(&self) -> u64;
}
