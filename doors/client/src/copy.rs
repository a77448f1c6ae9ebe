//! A file of the cluster from a kept output: a node of the file system that has the output makes
//! the chunks.

use std::net::SocketAddr;

use eyas_files::{CopyOptions, DfsClient, File, FilesError};
use eyas_types::dfs::FileName;
use eyas_types::{Distribution, Name};
use eyas_wire::client::{FromClient, PushRequest, ToClient};
use eyas_wire::view::ExecutorView;
use thiserror::Error;

use crate::client::Client;
use crate::client_error::ClientError;
use crate::kept::kept_output;
use crate::kept_error::KeptError;

/// Why a kept output cannot be copied.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The output cannot be found.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The dispatcher does not answer, or refuses.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The file cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// No node of the file system could get the output.
    #[error("no node of the file system could get `{name}`: {why}")]
    NotPushed {
        /// The output.
        name: Name,
        /// The reason of the first failure.
        why: String,
    },
}

impl Client {
    /// Makes a file of a kept output, `eyas://JOB/TASK/FILE`. If a node of the file system has the
    /// output, that node makes the chunks of it; otherwise one of the nodes first gets the output
    /// from an executor that holds it.
    ///
    /// # Errors
    /// If there is no such output, a file has the name, or the file system does not answer. No file
    /// appears then.
    pub async fn copy_kept(
        &mut self,
        files: &DfsClient,
        name: &Name,
        to: &FileName,
        options: CopyOptions,
    ) -> Result<File, CopyError> {
        let object = kept_output(self, name).await?;
        let holders = match self
            .ask(FromClient::Catalog { object: Some(object.id()), source: Name::default() })
            .await?
        {
            ToClient::Objects(objects) => {
                objects.into_iter().flat_map(|object| object.holders).collect::<Vec<_>>()
            }
            _ => return Err(ClientError::Unexpected.into()),
        };
        let ToClient::Executors(executors) = self.ask(FromClient::Executors).await? else {
            return Err(ClientError::Unexpected.into());
        };
        let with_files = executors.iter().filter_map(|executor| Some((executor.files?, executor)));
        let nodes: Vec<(SocketAddr, &ExecutorView)> = with_files.collect();
        let mut having: Vec<_> =
            nodes.iter().filter(|(_, executor)| holders.contains(&executor.name)).collect();
        if having.is_empty() {
            let roomiest = nodes.iter().max_by_key(|(_, executor)| executor.free_disk_bytes);
            let (_, executor) = roomiest.ok_or(ClientError::FilesAway)?;
            self.push_kept(&object.source, &executor.name).await?;
            having.extend(roomiest);
        }
        let addresses: Vec<_> = having.into_iter().map(|(address, _)| *address).collect();
        Ok(files.copy_object(&object, &addresses, to, options).await?)
    }

    /// Has an executor fetch a kept output.
    async fn push_kept(&mut self, name: &Name, executor: &str) -> Result<(), CopyError> {
        let (kept, to) = (vec![name.clone()], vec![executor.to_owned()]);
        let distribution = Distribution::default();
        let pushed = self
            .push(PushRequest { objects: Vec::new(), kept, to, distribution, wait: true }, |_| {})
            .await?;
        match pushed.failures.into_iter().next() {
            Some(failure) => Err(CopyError::NotPushed { name: name.clone(), why: failure.reason }),
            None => Ok(()),
        }
    }
}
