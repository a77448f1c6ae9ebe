//! Files that are removed or replaced while programs of this mount have them open: their content
//! stays readable.
//!
//! The nodes make copies of the chunks, which take no time and no space. The content of small
//! files, and of files whose nodes cannot do that, is copied to the scratch folder.

use std::sync::Arc;

use eyas_files::{DfsClient, RetainedFile};
use eyas_types::dfs::FileKind;

use crate::drafts::Drafts;
use crate::failure::MountFailure;
use crate::inode::Inode;
use crate::inodes::Inodes;

/// The content of a smaller file is copied to the scratch folder.
const MIN_RETAINED_BYTES: u64 = 1 << 20;

/// Keeps the content of removed files.
pub(crate) struct RemovedContent(DfsClient);

impl RemovedContent {
    pub fn new(dfs: DfsClient) -> Self {
        RemovedContent(dfs)
    }

    /// Keeps the content of a file that is about to be removed for the programs that have it open.
    pub async fn keep(&self, node: &Inode, drafts: &Drafts) -> Result<(), MountFailure> {
        let base = {
            let state = node.state();
            if !state.is_open() || *state.kind() != FileKind::File || state.is_retained() {
                return Ok(());
            }
            match state.draft() {
                Some(draft) if draft.missing(0..draft.size_bytes()).is_empty() => return Ok(()),
                Some(draft) => draft.base().cloned(),
                None => state.file().cloned(),
            }
        };
        if let Some(base) = base.filter(|base| base.record.size_bytes() >= MIN_RETAINED_BYTES) {
            match self.0.retain(&base).await {
                Ok(retained) => {
                    node.state().retain(retained);
                    return Ok(());
                }
                Err(error) => tracing::info!(
                    "the content of a removed file is copied to the scratch folder: {error}"
                ),
            }
        }
        drafts.complete(node).await
    }

    /// Deletes the copies of the content of a file that was removed, if no program has it open, or
    /// that was not removed after all.
    pub async fn release(&self, node: &Inode) {
        let retained = node.state().take_unneeded_retained();
        self.release_copies(retained).await;
    }

    /// Deletes all copies at the end of the mount.
    pub async fn release_all(&self, inodes: &Inodes) {
        for node in inodes.all() {
            let retained = node.state().take_retained();
            self.release_copies(retained).await;
        }
    }

    /// Deletes the copies that a killed mount has left.
    pub async fn remove_left_copies(&self) {
        if let Err(error) = self.0.remove_left_copies().await {
            tracing::info!("copies that a killed mount has left are not removed now: {error}");
        }
    }

    async fn release_copies(&self, retained: Option<Arc<RetainedFile>>) {
        let Some(retained) = retained else { return };
        if let Err(error) = self.0.release(&retained).await {
            tracing::info!("the nodes delete the content of a removed file after a day: {error}");
        }
    }
}
