//! The entries of this mount: those of the cluster together with those that exist only here. Looks
//! them up, makes and renames them, and changes their attributes.

mod attributes;

use std::sync::Arc;
use std::time::Duration;

use eyas_files::{DfsClient, RenameOptions};
use eyas_types::dfs::{Attributes, FileName};
use fuser::Errno;
use tokio::sync::RwLock;

use crate::cluster_entry::ClusterEntry;
use crate::failure::{MountFailure, shown};
use crate::inode::{Inode, ROOT, TRUSTED};
use crate::inodes::Inodes;
use crate::namespace::{Namespace, file_name};
use crate::new_files::NewEntry;

/// All entries.
pub(crate) struct Entries {
    /// Those of the cluster.
    pub namespace: Namespace,
    /// Those that the kernel knows.
    pub inodes: Inodes,
    /// Held while an entry is renamed. An entry that was not found meanwhile is looked for again.
    naming: RwLock<()>,
}

impl Entries {
    pub fn new(dfs: DfsClient) -> Self {
        let namespace = Namespace::new(dfs);
        let inodes = Inodes::new(&namespace.root());
        Entries { namespace, inodes, naming: RwLock::default() }
    }

    // ---- names

    /// The path of an entry in a folder.
    pub fn path(&self, folder: u64, name: &str) -> Result<String, MountFailure> {
        let folder = self.inodes.name(folder).ok_or(Errno::ENOENT)?;
        let path = format!("{folder}/{name}");
        file_name(&path)?;
        Ok(path)
    }

    /// The present name of an entry, if it has one.
    pub fn file_name(&self, node: &Inode) -> Option<FileName> {
        self.inodes.name(node.number).and_then(|name| file_name(&name).ok())
    }

    /// The name of an entry as it is shown in the log.
    pub fn shown_name(&self, node: &Inode) -> String {
        shown(&self.inodes.name(node.number).unwrap_or_default())
    }

    /// Returns when the renames that are under way are done.
    pub async fn renames_done(&self) {
        drop(self.naming.read().await);
    }

    // ---- what is there

    /// Looks an entry up. The kernel gets a reference to it.
    pub async fn lookup(&self, folder: u64, name: &str) -> Result<Arc<Inode>, MountFailure> {
        loop {
            let changes = self.inodes.changes();
            let path = self.path(folder, name)?;
            match self.lookup_path(folder, &path).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) => {}
                Err(failure) if failure.errno == Errno::ENOENT => {
                    // A folder that is being renamed has its entries under both names.
                    self.renames_done().await;
                    if self.inodes.changes() == changes || self.path(folder, name)? == path {
                        return Err(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Looks a path up; `None` if its folder was renamed meanwhile.
    async fn lookup_path(
        &self,
        folder: u64,
        path: &str,
    ) -> Result<Option<Arc<Inode>>, MountFailure> {
        if let Some(node) = self.unpublished(path) {
            self.inodes.refer(&node);
            return Ok(Some(node));
        }
        match self.namespace.lookup(path).await {
            Ok(found) => Ok(self.inodes.looked_up(folder, path, &found)),
            Err(failure) => {
                // A file may have been created meanwhile.
                if let Some(node) = self.unpublished(path) {
                    self.inodes.refer(&node);
                    return Ok(Some(node));
                }
                Err(failure)
            }
        }
    }

    /// The file with this name, if it was created here and never published, or has changes here
    /// whose publication has failed.
    fn unpublished(&self, path: &str) -> Option<Arc<Inode>> {
        self.inodes.named(path).filter(|node| {
            let state = node.state();
            !state.is_published() || state.is_late()
        })
    }

    /// An entry that is listed. The kernel gets a reference to it.
    pub fn listed(&self, path: &str, found: &ClusterEntry, is_pending: bool) -> Arc<Inode> {
        if is_pending && let Some(node) = self.inodes.named(path) {
            self.inodes.refer(&node);
            return node;
        }
        self.inodes.remember(path, found, true)
    }

    /// Asks the cluster for the present state of an entry, unless its changes are here.
    pub async fn refresh(&self, node: &Inode) -> Result<(), MountFailure> {
        {
            let state = node.state();
            if state.is_local() || state.draft().is_some() {
                return Ok(());
            }
        }
        let mut again = true;
        loop {
            let Some(name) = self.inodes.name(node.number) else { return Ok(()) };
            match self.namespace.lookup(&name).await {
                Ok(found) if found.id == node.id || node.number == ROOT => {
                    node.state().learn(&found);
                    return Ok(());
                }
                Err(failure) if failure.errno != Errno::ENOENT => return Err(failure),
                // It may have been renamed or removed here meanwhile.
                _ if again => self.renames_done().await,
                _ => return Err(Errno::ESTALE.into()),
            }
            again = self.inodes.name(node.number).is_some_and(|now| now != name);
        }
    }

    /// Time for which the kernel may trust the attributes of an entry. Asks the cluster for them if
    /// that is over.
    pub async fn trusted_for(&self, node: &Inode) -> Result<Duration, MountFailure> {
        let trusted = node.state().trusted_for();
        if trusted.is_zero() {
            self.refresh(node).await?;
            return Ok(TRUSTED);
        }
        Ok(trusted)
    }

    // ---- changes

    pub async fn make_folder(
        &self,
        folder: u64,
        path: &str,
        new: NewEntry,
    ) -> Result<Arc<Inode>, MountFailure> {
        self.check_is_free(path)?;
        let attributes = new.attributes(self.attributes(folder), true);
        let found = self.namespace.make_folder(path, attributes).await?;
        self.touch(folder);
        Ok(self.inodes.remember(path, &found, true))
    }

    pub async fn make_link(
        &self,
        folder: u64,
        path: &str,
        target: &str,
        new: NewEntry,
    ) -> Result<Arc<Inode>, MountFailure> {
        self.check_is_free(path)?;
        let attributes = new.attributes(self.attributes(folder), false);
        let found = self.namespace.make_link(path, target, attributes).await?;
        self.touch(folder);
        Ok(self.inodes.remember(path, &found, true))
    }

    /// Fails if a file has the name of which the cluster does not know.
    fn check_is_free(&self, path: &str) -> Result<(), MountFailure> {
        match self.unpublished(path) {
            Some(_) => Err(Errno::EEXIST.into()),
            None => Ok(()),
        }
    }

    pub async fn remove_folder(&self, folder: u64, path: &str) -> Result<(), MountFailure> {
        self.check_is_empty(path)?;
        self.namespace.remove_folder(path).await?;
        self.inodes.removed(path);
        self.touch(folder);
        Ok(())
    }

    /// Fails if files in the folder have never been published.
    pub fn check_is_empty(&self, path: &str) -> Result<(), MountFailure> {
        match self.inodes.pending_in(path).is_empty() {
            true => Ok(()),
            false => Err(Errno::ENOTEMPTY.into()),
        }
    }

    /// Renames an entry, which is `moved` if the kernel knows it, and replaces `over`.
    pub async fn rename(
        &self,
        (from, to): (&str, &str),
        moved: Option<&Inode>,
        over: Option<&Inode>,
        replaces: bool,
    ) -> Result<(), MountFailure> {
        let _naming = self.naming.write().await;
        // A draft is based on the chunks that the file has.
        let keeps_format = moved.is_some_and(|node| node.state().draft().is_some());
        let options = RenameOptions { replaces, makes_parents: false, keeps_format };
        self.namespace.rename(from, to, options).await?;
        if let Some(over) = over {
            over.state().unlinked();
        }
        self.inodes.renamed(from, to);
        Ok(())
    }

    /// The attributes of an entry that the kernel knows.
    pub fn attributes(&self, number: u64) -> Option<Attributes> {
        self.inodes.get(number).map(|(node, _)| node.state().attributes())
    }

    /// An entry of a folder was created, removed or renamed.
    pub fn touch(&self, folder: u64) {
        if let Some((node, _)) = self.inodes.get(folder) {
            node.state().entries_changed();
        }
    }
}
