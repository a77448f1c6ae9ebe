//! Files that are removed or replaced while programs of this mount have them open: their content
//! stays readable.
//!
//! The nodes make copies of the chunks, which take no time and no space. The content of small
//! files, and of files whose nodes cannot do that, is copied to the scratch folder.

use std::sync::Arc;

use eyas_files::{ContentDraft, READ_BYTES, RetainedFile};
use eyas_types::dfs::FileKind;

use crate::failure::MountFailure;
use crate::mounted::Mounted;
use crate::nodes::Inode;

/// The content of a smaller file is copied to the scratch folder.
const MIN_RETAINED_BYTES: u64 = 1 << 20;

impl Mounted {
    /// Keeps the content of a file that is about to be removed for the programs that have it open.
    pub async fn keep_content(&self, node: &Inode) -> Result<(), MountFailure> {
        let base = {
            let state = node.state();
            if state.handles == 0 || state.kind != FileKind::File || state.retained.is_some() {
                return Ok(());
            }
            match &state.draft {
                Some(draft) if draft.missing(0..draft.size_bytes()).is_empty() => return Ok(()),
                Some(draft) => draft.base().cloned(),
                None => state.file.clone(),
            }
        };
        if let Some(base) = base.filter(|base| base.record.size_bytes() >= MIN_RETAINED_BYTES) {
            match self.namespace.dfs.retain(&base).await {
                Ok(retained) => {
                    node.state().retained = Some(retained);
                    return Ok(());
                }
                Err(error) => tracing::info!(
                    "the content of a removed file is copied to the scratch folder: {error}"
                ),
            }
        }
        self.copy_to_scratch(node).await
    }

    /// Deletes the copies of the content of a file that was removed, if no program has it open, or
    /// that was not removed after all.
    pub async fn release_content(&self, node: &Inode) {
        let retained = {
            let mut state = node.state();
            let is_needed = state.handles > 0 && state.is_unlinked;
            if is_needed { None } else { state.retained.take() }
        };
        self.release_copies(retained).await;
    }

    /// Deletes all copies at the end of the mount.
    pub async fn release_all(&self) {
        for node in self.nodes.all() {
            let retained = node.state().retained.take();
            self.release_copies(retained).await;
        }
    }

    /// Deletes the copies that a killed mount has left.
    pub async fn remove_left_copies(self: Arc<Self>) {
        if let Err(error) = self.namespace.dfs.remove_left_copies().await {
            tracing::info!("copies that a killed mount has left are not removed now: {error}");
        }
    }

    async fn release_copies(&self, retained: Option<Arc<RetainedFile>>) {
        let Some(retained) = retained else { return };
        if let Err(error) = self.namespace.dfs.release(&retained).await {
            tracing::info!("the nodes delete the content of a removed file after a day: {error}");
        }
    }

    /// Copies what is missing in the draft of a file to the scratch folder.
    async fn copy_to_scratch(&self, node: &Inode) -> Result<(), MountFailure> {
        let size_bytes = {
            let mut state = node.state();
            self.draft(&mut state)?.size_bytes()
        };
        let mut at = 0;
        while at < size_bytes {
            let end = (at + 4 * READ_BYTES as u64).min(size_bytes);
            let missing = {
                let state = node.state();
                let part = |draft: &ContentDraft| {
                    Some((draft.missing(at..end), draft.base()?.clone(), draft.generation()))
                };
                state.draft.as_ref().and_then(part)
            };
            if let Some((missing, base, generation)) = missing {
                self.fetch(node, &base, missing, generation).await?;
            }
            at = end;
        }
        Ok(())
    }
}
