//! The interface to the owner of the object store. Chunks and cached objects share one store and
//! one account of its space.

use std::future::Future;
use std::pin::Pin;

use eyas_types::ObjectId;
use thiserror::Error;

/// A boxed future.
pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Space for a chunk could not be reserved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpaceError {
    /// There is no space: the reason that the owner of the store gives.
    #[error("{0}")]
    NoSpace(String),
    /// The owner of the store could not answer; a retry can help.
    #[error("the executor has just lost its dispatcher; try again")]
    Unavailable,
}

/// Accounts for the space of the store that chunks are in.
pub trait ChunkSpace: Send + Sync + 'static {
    /// Reserves space for a chunk, if necessary by evicting objects. The caller reports the outcome
    /// with [`arrived`](ChunkSpace::arrived).
    ///
    /// # Errors
    /// If there is no space, or the owner of the store cannot answer.
    fn reserve(&self, chunk: ObjectId, size_bytes: u64) -> BoxedFuture<Result<(), SpaceError>>;

    /// The chunk of a reservation is in the store, and stays until it is
    /// [released](ChunkSpace::release); or it has not arrived.
    fn arrived(&self, chunk: ObjectId, is_here: bool);

    /// The chunks of these reservations are all in the store.
    fn arrived_all(&self, chunks: &[ObjectId]) {
        chunks.iter().for_each(|chunk| self.arrived(*chunk, true));
    }

    /// A chunk need not stay any longer.
    fn release(&self, chunk: ObjectId);

    /// Free bytes for further chunks.
    fn free_bytes(&self) -> u64;
}
