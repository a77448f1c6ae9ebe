//! Files get and lose their names: they are created, removed and renamed.

use std::sync::Arc;

use eyas_files::new_file_id;
use eyas_types::dfs::{FileKind, RecordFormat};
use fuser::{Errno, OpenAccMode, OpenFlags};

use super::Mounted;
use crate::cluster_entry::ClusterEntry;
use crate::failure::MountFailure;
use crate::inode::Inode;
use crate::namespace::file_name;
use crate::new_files::NewEntry;

impl Mounted {
    /// Creates a file and opens it. A file that others may create and extend at the same time
    /// appears at once, empty: of two programs that append to a new file, the second one opens that
    /// of the first.
    pub async fn create_and_open(
        &self,
        folder: u64,
        name: &str,
        new: NewEntry,
        flags: OpenFlags,
    ) -> Result<(Arc<Inode>, u64), MountFailure> {
        let path = self.entries.path(folder, name)?;
        let (is_exclusive, appends) = (flags.0 & libc::O_EXCL != 0, flags.0 & libc::O_APPEND != 0);
        let may_write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.create(folder, &path, new, is_exclusive || appends || !may_write).await {
            Err(failure) if failure.errno == Errno::EEXIST && !is_exclusive => {
                let node = self.entries.lookup(folder, name).await?;
                match self.open(node.clone(), flags).await {
                    Ok((handle, _)) => Ok((node, handle)),
                    Err(failure) => {
                        self.entries.inodes.forget(node.number, 1);
                        Err(failure)
                    }
                }
            }
            created => {
                let node = created?;
                let handle = self.handles.open_file(node.clone(), may_write);
                Ok((node, handle))
            }
        }
    }

    /// Creates a file, which appears in the cluster when it is closed or synced.
    /// One that must be new (`is_exclusive`) appears at once, empty, as other mounts may create it
    /// as well.
    pub async fn create(
        &self,
        folder: u64,
        path: &str,
        new: NewEntry,
        is_exclusive: bool,
    ) -> Result<Arc<Inode>, MountFailure> {
        let Mounted { entries, drafts, new_files, .. } = self;
        let found = ClusterEntry {
            id: new_file_id()?,
            kind: FileKind::File,
            size_bytes: 0,
            hole_bytes: 0,
            attributes: new.attributes(entries.attributes(folder), false),
            file: None,
        };
        let draft = drafts.new_draft();
        let file = if is_exclusive {
            let format = RecordFormat::guess(file_name(path)?.base_name(), &[]);
            let created = entries.namespace.create_empty(path, &found, new_files.options(format));
            Some(Arc::new(created.await?))
        } else {
            entries.namespace.check_may_write(path).await?;
            None
        };
        let node = entries.inodes.created(path, &found);
        node.state().created(draft, file);
        entries.inodes.published(&node);
        entries.touch(folder);
        Ok(node)
    }

    /// Removes a file or a link.
    pub async fn remove(&self, folder: u64, path: &str) -> Result<(), MountFailure> {
        let Mounted { entries, removed, drafts, .. } = self;
        if let Some(node) = entries.inodes.named(path) {
            let _publishing = node.publishing.lock().await;
            let is_published = node.state().is_published();
            if is_published {
                removed.keep(&node, drafts).await?;
                let done = entries.namespace.remove(path, node.file().as_deref()).await;
                if done.is_err() {
                    removed.release(&node).await;
                }
                done?;
            }
            node.state().unlinked();
            entries.inodes.removed(path);
        } else {
            entries.namespace.remove(path, None).await?;
        }
        entries.touch(folder);
        Ok(())
    }

    pub async fn rename(
        &self,
        folders: (u64, u64),
        from: &str,
        to: &str,
        replaces: bool,
    ) -> Result<(), MountFailure> {
        if from == to {
            return Ok(());
        }
        let Mounted { entries, removed, drafts, publisher, .. } = self;
        let (moved, over) = (entries.inodes.named(from), entries.inodes.named(to));
        if over.is_some() && !replaces {
            return Err(Errno::EEXIST.into());
        }
        entries.check_is_empty(to)?;
        // Locks are taken in one order.
        let mut nodes: Vec<_> = moved.iter().chain(&over).collect();
        nodes.sort_by_key(|node| node.number);
        nodes.dedup_by_key(|node| node.number);
        let mut publishing = Vec::new();
        for node in nodes {
            publishing.push(node.publishing.lock().await);
        }
        if let Some(moved) = &moved {
            publisher.publish_locked(moved, false, self.shown()).await?;
        }
        if let Some(over) = &over {
            let is_published = over.state().is_published();
            if is_published {
                removed.keep(over, drafts).await?;
            }
        }
        let renamed = entries.rename((from, to), moved.as_deref(), over.as_deref(), replaces).await;
        if renamed.is_err()
            && let Some(over) = &over
        {
            removed.release(over).await;
        }
        renamed?;
        entries.touch(folders.0);
        entries.touch(folders.1);
        if let Some(moved) = &moved
            && let Ok(found) = entries.namespace.lookup(to).await
            && found.id == moved.id
        {
            moved.state().changed(found, false);
        }
        Ok(())
    }
}
