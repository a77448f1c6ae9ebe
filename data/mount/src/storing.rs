//! Storing the content of drafts: as the next version of a file, as a file of its own, or at the
//! end of what another client has written.

use std::collections::BTreeSet;
use std::sync::Arc;

use eyas_files::{
    Change, DfsClient, DraftContent, DraftSnapshot, File, FilesError, FilesErrorKind, NewContent,
    NewFile, UnclaimedContent, WriteOptions, renamed,
};
use eyas_types::ObjectId;
use eyas_types::dfs::{Attributes, FileName};
use fuser::Errno;
use tokio::runtime::Handle;

use crate::failure::MountFailure;
use crate::inode::Inode;
use crate::namespace::creation;
use crate::new_files::NewFiles;

/// Maximum number of tries to append to a file that other clients change at the same time.
const MAX_TRIES: usize = 100;

/// Stores content in the cluster.
pub(crate) struct DraftStore {
    dfs: DfsClient,
    runtime: Handle,
    new_files: NewFiles,
}

/// A state of a draft that is to be published.
pub(crate) struct Publication<'a> {
    pub node: &'a Inode,
    pub snapshot: Arc<DraftSnapshot>,
    pub attributes: Attributes,
    /// Whether the content is to be on the disks of the nodes.
    pub is_durable: bool,
}

impl DraftStore {
    pub fn new(dfs: DfsClient, runtime: Handle, new_files: NewFiles) -> Self {
        DraftStore { dfs, runtime, new_files }
    }

    /// Stores the content of a draft, of which `early` is stored already. `ESTALE` if another
    /// client has changed the file.
    pub async fn store(
        &self,
        publication: &Publication<'_>,
        name: &FileName,
        early: Option<UnclaimedContent>,
    ) -> Result<File, MountFailure> {
        let Publication { node, snapshot, attributes, is_durable } = publication;
        let is_late = node.state().is_late();
        let content = self.content(snapshot);
        let format = content.format(name).await?;
        let mut stored = early.filter(|early| early.format() == format);
        let change = Change {
            content: &content,
            size_bytes: snapshot.size_bytes,
            changed: &snapshot.changed(),
            modified_ns: attributes.modified_ns,
            changed_ns: attributes.changed_ns,
            is_durable: *is_durable,
            format: Some(format),
        };
        if let Some(base) = &snapshot.base {
            // If the rewrite fails, it may have been done, and another client may have replaced it
            // and its chunks.
            let base = renamed(base, name);
            match self.dfs.rewrite(&base, change, stored.take(), &node.sent).await {
                Ok(file) => return Ok(file),
                // If the whole content is new, it does not matter what another client has written.
                Err(error)
                    if is_outdated(&error)
                        && snapshot.is_whole
                        && !snapshot.is_appended
                        && !is_late => {}
                Err(error) => return Err(self.failed(error, node, &base).await),
            }
        }
        if is_late && self.dfs.lookup(name).await.is_ok_and(|now| now.record.id != node.id) {
            return Err(Errno::ESTALE.into());
        }
        let options = WriteOptions {
            creation: creation(attributes),
            is_durable: *is_durable,
            ..self.new_files.options(format)
        };
        let of_base = || snapshot.base.as_ref().map(|base| base.record.named.clone());
        let named = node.state().named().cloned().or_else(of_base).unwrap_or_default();
        let file = NewFile { id: node.id, named };
        let is_there = snapshot.base.is_some();
        Ok(self.dfs.write_with_id(name, file, change, stored, options, is_there).await?)
    }

    fn content(&self, snapshot: &Arc<DraftSnapshot>) -> DraftContent {
        let (dfs, runtime) = (self.dfs.clone(), self.runtime.clone());
        DraftContent { dfs, snapshot: snapshot.clone(), runtime }
    }

    /// Why a version could not be replaced: `ESTALE` if another client has done so.
    async fn failed(&self, error: FilesError, node: &Inode, base: &File) -> MountFailure {
        let is_outdated = is_outdated(&error) || self.is_replaced(node, base).await;
        let failure = MountFailure::from(error);
        match is_outdated {
            true => MountFailure { errno: Errno::ESTALE, ..failure },
            false => failure,
        }
    }

    /// Whether another client has replaced the content of a version.
    async fn is_replaced(&self, node: &Inode, base: &File) -> bool {
        match self.dfs.lookup(&base.name).await {
            Ok(now) => !now.record.is_as_written(&base.record) && !node.sent.has(&now.record),
            Err(error) => error.kind == FilesErrorKind::NotFound,
        }
    }

    /// Appends the bytes of a draft from an offset on to the version that the cluster has. `None`
    /// if the file is no longer the one to which was appended, or may have the bytes already.
    pub async fn append(
        &self,
        publication: &Publication<'_>,
        name: &FileName,
        from: u64,
    ) -> Result<Option<File>, FilesError> {
        let Publication { node, snapshot, .. } = publication;
        let content = self.content(snapshot);
        let mut tries = 0;
        loop {
            let now = self.dfs.lookup(name).await?;
            if now.record.id != node.id || node.sent.has(&now.record) {
                return Ok(None);
            }
            match self.dfs.append(name, content.reader(from..snapshot.size_bytes), |_| {}).await {
                Err(error) if error.kind == FilesErrorKind::Changed && tries < MAX_TRIES => {
                    tries += 1
                }
                appended => return appended.map(Some),
            }
        }
    }

    /// The file of the cluster, if it is the result of an earlier publication of the draft whose
    /// answer was lost.
    pub async fn sent(&self, node: &Inode, name: &FileName) -> Option<File> {
        self.dfs.lookup(name).await.ok().filter(|now| node.sent.has(&now.record))
    }

    /// Forces these chunks of a file to the disks of their nodes.
    pub async fn make_durable(
        &self,
        file: &File,
        objects: &BTreeSet<ObjectId>,
    ) -> Result<File, MountFailure> {
        Ok(self.dfs.make_durable(file, objects).await?)
    }
}

/// Whether another client has changed or removed the file.
fn is_outdated(error: &FilesError) -> bool {
    matches!(error.kind, FilesErrorKind::Changed | FilesErrorKind::NotFound)
}
