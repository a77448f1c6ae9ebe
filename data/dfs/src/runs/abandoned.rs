//! Cleans up after clients that opened a run and died: removes the output of their programs.

use std::net::SocketAddr;
use std::time::Duration;

use eyas_files::protocol::FilesOrigin;
use eyas_files::{BlockRunId, DfsClient, FilesError, FilesErrorKind, NearNode};
use eyas_session::Access;
use eyas_types::dfs::NodeId;
use tokio::sync::mpsc::Receiver;

/// Files that cannot be removed within this time stay.
const PATIENCE: Duration = Duration::from_secs(60);

/// Removes the folders of runs that this node has forgotten.
pub(crate) async fn remove(
    access: Access,
    (node, address): (NodeId, SocketAddr),
    mut abandoned: Receiver<BlockRunId>,
) {
    while let Some(run) = abandoned.recv().await {
        if let Err(error) = empty(&access, node, address, run).await {
            tracing::warn!(%run, "cannot remove what a run has left in {}: {error}", run.folder());
        }
    }
}

async fn empty(
    access: &Access,
    node: NodeId,
    address: SocketAddr,
    run: BlockRunId,
) -> Result<(), FilesError> {
    let files = DfsClient::connect(
        access.clone(),
        vec![address],
        Some(NearNode { node, store: None }),
        PATIENCE,
    )
    .await?;
    files.set_door(FilesOrigin::Map);
    for listing in files.list(&run.folder()).await? {
        match files.remove(&listing.name).await {
            Err(error) if error.kind == FilesErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}
