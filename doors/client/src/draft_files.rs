//! What a cluster knows of files, as sources of inputs for drafts: its own files, and names of
//! files at several places.

use std::collections::HashMap;
use std::fmt::Display;

use eyas_files::FilesStorage;
use eyas_store::{FileNames, StorageError, StorageErrorKind};
use eyas_types::named::{NAMED, name_in};
use eyas_types::{Name, NamedFile};
use eyas_wire::view::NamedFileView;
use tokio::sync::Mutex;

use crate::client::Client;
use crate::clusters::Cluster;

fn failed(error: impl Display) -> StorageError {
    StorageError::new(StorageErrorKind::NotFound, error.to_string())
}

/// The files of a cluster, as sources of inputs. The dispatcher is dialled when the first of them
/// is used.
pub(crate) fn files_storage(cluster: Cluster) -> FilesStorage {
    FilesStorage::new(move || {
        let cluster = cluster.clone();
        async move {
            let access = cluster.access().map_err(failed)?;
            let mut client = Client::connect(&access).await.map_err(failed)?;
            client.files().await.map_err(failed)
        }
    })
}

/// The names of a cluster's files, for inputs. The dispatcher is dialled when the first of them is
/// looked up.
pub(crate) struct ClusterNames {
    cluster: Cluster,
    client: Mutex<Option<Client>>,
}

impl ClusterNames {
    pub fn of(cluster: Cluster) -> Self {
        ClusterNames { cluster, client: Mutex::default() }
    }

    /// Dials the dispatcher unless that was done before.
    async fn dialled<'a>(
        &self,
        client: &'a mut Option<Client>,
    ) -> Result<&'a mut Client, StorageError> {
        if client.is_none() {
            let access = self.cluster.access().map_err(failed)?;
            *client = Some(Client::connect(&access).await.map_err(failed)?);
        }
        Ok(client.as_mut().expect("it was dialled"))
    }
}

#[async_trait::async_trait]
impl FileNames for ClusterNames {
    async fn look_up(&self, sources: &[Name]) -> Result<Vec<NamedFile>, StorageError> {
        let mut client = self.client.lock().await;
        let client = self.dialled(&mut client).await?;
        let names: Vec<_> = sources.iter().filter_map(|source| name_in(source)).collect();
        let names: Vec<_> = names.into_iter().map(Name::from).collect();
        let found = client.look_up_names(&names).await.map_err(failed)?;
        let file = |view: NamedFileView| NamedFile {
            places: view.places.into_iter().map(|place| place.url).collect(),
            size_bytes: view.size_bytes,
            sha256: view.sha256,
            registered_us: view.registered_us,
        };
        let found: HashMap<_, _> =
            found.into_iter().map(|view| (view.name.clone(), file(view))).collect();
        let known = |name: &Name| {
            found.get(name).cloned().ok_or_else(|| {
                let message = format!(
                    "`{NAMED}{name}` is not registered in the cluster: register its places first, \
                     with `eyas catalog register {name} URL`; `eyas catalog query` lists the names"
                );
                StorageError::new(StorageErrorKind::NotFound, message)
            })
        };
        names.iter().map(known).collect()
    }

    async fn list(&self, prefix: &Name) -> Result<Vec<Name>, StorageError> {
        let mut client = self.client.lock().await;
        let client = self.dialled(&mut client).await?;
        let prefix = Name::from(name_in(prefix).unwrap_or(prefix));
        let mut found = Vec::new();
        let url = |file: NamedFileView| Name::concat(&[NAMED.as_bytes(), &file.name]);
        let see = |part: Vec<NamedFileView>| found.extend(part.into_iter().map(url));
        client.each_name_part(&prefix, see).await.map_err(failed)?;
        Ok(found)
    }
}
