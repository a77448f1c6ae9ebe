//! The files of a cluster as sources of inputs, for drafts.

use std::fmt::Display;

use eyas_files::FilesStorage;
use eyas_store::{StorageError, StorageErrorKind};

use crate::client::Client;
use crate::clusters::Cluster;

/// The files of a cluster, as sources of inputs. The dispatcher is dialled when the first of them
/// is used.
pub(crate) fn files_storage(cluster: Cluster) -> FilesStorage {
    fn failed(error: impl Display) -> StorageError {
        StorageError::new(StorageErrorKind::NotFound, error.to_string())
    }
    FilesStorage::new(move || {
        let cluster = cluster.clone();
        async move {
            let access = cluster.access().map_err(failed)?;
            let mut client = Client::connect(&access).await.map_err(failed)?;
            client.files().await.map_err(failed)
        }
    })
}
