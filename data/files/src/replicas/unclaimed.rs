//! Chunks that belong to no file yet. All that stores chunks before a file has them keeps them
//! here, so that they are deleted wherever the work ends before the file has them: by an error, a
//! refusal, or a caller that no longer waits.

use std::fmt;
use std::sync::Arc;

use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::ObjectId;
use eyas_types::dfs::NodeId;
use tokio::task::JoinSet;

use crate::error::FilesError;
use crate::names::Names;
use crate::protocol::RequestBody;
use crate::replicas::Replicas;

/// Chunks that a client has stored, or may have stored, for a version that no file has yet. When
/// this is dropped, the nodes delete them, unless an operation has given them to a file or may have
/// done so.
pub(crate) struct UnclaimedChunks {
    replicas: Arc<Replicas>,
    stored: Vec<Stored>,
    /// Whether the answer of an operation was lost: a file may have the chunks.
    pub is_unsure: bool,
}

struct Stored {
    object: ObjectId,
    /// The node of a further replica of a chunk that a file has; `None` if the whole chunk is new.
    only_on: Option<NodeId>,
}

impl UnclaimedChunks {
    /// No chunks yet.
    pub fn new(replicas: &Arc<Replicas>) -> Self {
        UnclaimedChunks { replicas: replicas.clone(), stored: Vec::new(), is_unsure: false }
    }

    /// A chunk is about to be stored. No other file or client may have its object.
    pub fn add(&mut self, object: ObjectId) {
        self.stored.push(Stored { object, only_on: None });
    }

    /// A further replica of a chunk that a file has is about to be stored on a node.
    pub fn add_replica(&mut self, object: ObjectId, node: NodeId) {
        self.stored.push(Stored { object, only_on: Some(node) });
    }

    /// The chunks of a part of the same version.
    pub fn join(&mut self, mut part: UnclaimedChunks) {
        self.stored.append(&mut part.stored);
    }

    /// Carries out an operation that gives the chunks to a file. They stay from then on, unless the
    /// leader refuses it.
    pub async fn give(
        &mut self,
        names: &Names,
        operation: FileOperation,
    ) -> Result<FileAnswer, FilesError> {
        // If the caller stops waiting, the operation may be done.
        let given = std::mem::take(&mut self.stored);
        let answer = names.operate_once(operation, &mut self.is_unsure).await;
        if answer.is_err() && !self.is_unsure {
            self.stored = given;
        }
        answer
    }

    /// Deletes the chunks. When this returns, there is room for others.
    pub async fn discard(&mut self) {
        let stored = std::mem::take(&mut self.stored);
        self.replicas.discard(&stored).await;
    }
}

impl Drop for UnclaimedChunks {
    fn drop(&mut self) {
        let stored = std::mem::take(&mut self.stored);
        if !stored.is_empty() {
            let replicas = self.replicas.clone();
            self.replicas.runtime.spawn(async move { replicas.discard(&stored).await });
        }
    }
}

impl fmt::Debug for UnclaimedChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnclaimedChunks")
            .field("stored", &self.stored.len())
            .finish_non_exhaustive()
    }
}

impl Replicas {
    /// Deletes chunks that this client has stored. Where a node does not answer, they are deleted
    /// when the client's connection to it has ended.
    async fn discard(&self, stored: &[Stored]) {
        let mut telling = JoinSet::new();
        for member in self.routes.known().members.values().copied() {
            let is_here = |stored: &&Stored| stored.only_on.is_none_or(|node| node == member.node);
            let objects: Vec<ObjectId> =
                stored.iter().filter(is_here).map(|stored| stored.object).collect();
            if !objects.is_empty() {
                let calls = self.routes.calls.clone();
                telling.spawn(async move {
                    calls.ask_once(member.address, RequestBody::Discard { objects }).await
                });
            }
        }
        while let Some(told) = telling.join_next().await {
            if let Ok(Err(error)) = told {
                tracing::debug!("chunks that no file has stay on a node: {error}");
            }
        }
    }
}
