//! The executor's access to the cluster's files, as inputs and outputs of tasks. Every executor has
//! it, also one without a node of the file system.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_files::{DfsClient, FilesOrigin, FilesStorage, NearNode};
use eyas_session::Access;
use eyas_store::{StorageError, StorageErrorKind};

/// An operation on files that is temporarily impossible is retried for this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes of the file system that this executor knows.
#[derive(Default)]
pub(crate) struct KnownFilesNodes(Mutex<BTreeSet<SocketAddr>>);

impl KnownFilesNodes {
    /// The dispatcher has named nodes.
    pub fn learn(&self, nodes: impl IntoIterator<Item = SocketAddr>) {
        self.lock().extend(nodes);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<SocketAddr>> {
        // No update can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of the cluster of `access`. `near` is this executor's own node.
pub(crate) fn storage(
    access: Access,
    nodes: Arc<KnownFilesNodes>,
    near: Option<NearNode>,
) -> FilesStorage {
    FilesStorage::new(move || {
        let (access, near) = (access.clone(), near.clone());
        let seeds: Vec<_> = nodes.lock().iter().copied().collect();
        async move {
            if seeds.is_empty() {
                let why = "no executor of this cluster keeps files: start some with `eyas start \
                           executor --dfs`, or a cluster on this machine with `eyas start local \
                           --dfs`";
                return Err(StorageError::new(StorageErrorKind::NotFound, why));
            }
            let files = DfsClient::connect(access, seeds, near, PATIENCE).await?;
            files.set_door(FilesOrigin::Task);
            Ok(files)
        }
    })
}
