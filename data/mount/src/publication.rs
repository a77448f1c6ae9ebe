//! Publishing drafts: when a file is closed or synced, the cluster gets the new content as a whole.
//!
//! A file may be renamed while it is published, another client may change it, and the answer of the
//! cluster may be lost. Programs of several mounts that append to one file each get their bytes to
//! the end, and none loses those of another.

use std::path::PathBuf;
use std::sync::Arc;

use eyas_files::{ContentDraft, DraftSnapshot, RenameOptions, UnclaimedContent};
use fuser::Errno;

use crate::entries::Entries;
use crate::failure::MountFailure;
use crate::inode::Inode;
use crate::kernel_cache::KernelCache;
use crate::namespace::file_name;
use crate::storing::{DraftStore, Publication};

/// Publishes drafts.
pub(crate) struct DraftPublisher {
    store: DraftStore,
    /// Folder for the content of drafts.
    scratch: PathBuf,
}

/// Where a publication is seen: the entries, and what the kernel has cached of them.
#[derive(Clone, Copy)]
pub(crate) struct ShownEntries<'a> {
    pub entries: &'a Entries,
    pub kernel_cache: &'a KernelCache,
}

impl DraftPublisher {
    pub fn new(store: DraftStore, scratch: PathBuf) -> Self {
        DraftPublisher { store, scratch }
    }

    /// Publishes the draft of a file, if it differs from the published version. With `is_durable`,
    /// the content is on the disks of the nodes when this returns.
    pub async fn publish(
        &self,
        node: &Inode,
        is_durable: bool,
        shown: ShownEntries<'_>,
    ) -> Result<(), MountFailure> {
        let _publishing = node.publishing.lock().await;
        self.publish_locked(node, is_durable, shown).await
    }

    /// Does the same for a caller that holds the lock `publishing` of the file.
    pub async fn publish_locked(
        &self,
        node: &Inode,
        is_durable: bool,
        shown: ShownEntries<'_>,
    ) -> Result<(), MountFailure> {
        let entries = shown.entries;
        let mut name = entries.inodes.name(node.number);
        loop {
            let tried = self.publish_once(node, name.as_deref(), is_durable, shown).await;
            // The folder of the file may be being renamed.
            entries.renames_done().await;
            let now = entries.inodes.name(node.number);
            match (&tried, &name, &now) {
                (_, before, now) if before == now => return tried,
                (Ok(()), Some(before), Some(now)) if node.state().is_published() => {
                    // It may have appeared under the old name.
                    let options =
                        RenameOptions { replaces: true, makes_parents: false, keeps_format: true };
                    let moved = entries.namespace.rename(before, now, options).await;
                    return moved.or_else(|failure| {
                        if failure.errno == Errno::ENOENT { Ok(()) } else { Err(failure) }
                    });
                }
                (Err(_), _, Some(_)) => name = now,
                _ => return tried,
            }
        }
    }

    async fn publish_once(
        &self,
        node: &Inode,
        name: Option<&str>,
        is_durable: bool,
        shown: ShownEntries<'_>,
    ) -> Result<(), MountFailure> {
        self.adopt_sent(node, shown.entries).await;
        let begun = {
            let mut state = node.state();
            if state.is_unlinked() {
                return Ok(());
            }
            let attributes = state.attributes();
            state.draft_mut().filter(|draft| draft.is_dirty()).map(|draft| {
                let early = draft.take_early();
                (Arc::new(draft.begin_publication()), early, attributes)
            })
        };
        let Some((snapshot, early, attributes)) = begun else {
            return if is_durable { self.make_durable(node).await } else { Ok(()) };
        };
        let early = match early {
            Some(early) => early.finish().await,
            None => None,
        };
        // An earlier try may have been done.
        let is_unsure = !node.sent.is_empty();
        let publication = Publication { node, snapshot, attributes, is_durable };
        let snapshot = &publication.snapshot;
        let file = match self.store(&publication, name, early).await {
            Ok(file) => Arc::new(file),
            Err(mut failure) => {
                if failure.errno == Errno::ESTALE && snapshot.is_appended && !is_unsure {
                    match self.append_again(&publication, shown).await {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(error) => failure = error,
                    }
                }
                // If the folder of the file is renamed meanwhile, the publication is tried again
                // under the new name.
                shown.entries.renames_done().await;
                let is_outdated = failure.errno == Errno::ESTALE
                    && shown.entries.inodes.name(node.number).as_deref() == name;
                not_published(node, snapshot, is_outdated, shown);
                return Err(failure);
            }
        };
        node.sent.clear();
        node.state().published(file, snapshot.size_bytes, is_durable);
        shown.entries.inodes.published(node);
        Ok(())
    }

    async fn store(
        &self,
        publication: &Publication<'_>,
        name: Option<&str>,
        early: Option<UnclaimedContent>,
    ) -> Result<eyas_files::File, MountFailure> {
        let name = file_name(name.ok_or(Errno::ESTALE)?)?;
        self.store.store(publication, &name, early).await
    }

    /// Forces the chunks of a file to the disks of their nodes that may not be there.
    async fn make_durable(&self, node: &Inode) -> Result<(), MountFailure> {
        let (file, volatile) = {
            let state = node.state();
            (state.file().cloned(), state.volatile().clone())
        };
        if let Some(file) = file.filter(|_| !volatile.is_empty()) {
            let file = self.store.make_durable(&file, &volatile).await?;
            node.state().durable(&volatile, file);
        }
        Ok(())
    }

    /// Appends what programs of this mount have appended to a version that another client has
    /// replaced since. `false` if they have changed other bytes, too, or if the file was replaced
    /// by another one.
    async fn append_again(
        &self,
        publication: &Publication<'_>,
        shown: ShownEntries<'_>,
    ) -> Result<bool, MountFailure> {
        let Publication { node, snapshot, .. } = publication;
        let is_appended = || node.state().draft().is_some_and(ContentDraft::is_appended);
        let Some(base) = snapshot.base.as_ref().filter(|_| is_appended()) else { return Ok(false) };
        let Some(name) = shown.entries.file_name(node) else { return Ok(false) };
        let from = base.record.size_bytes();
        let Some(file) = self.store.append(publication, &name, from).await? else {
            return Ok(false);
        };
        let file = Arc::new(file);
        node.sent.clear();
        {
            let mut state = node.state();
            let mut draft = ContentDraft::new(&self.scratch, Some(file.clone()));
            // What was appended meanwhile comes after that.
            let more = match state.draft() {
                Some(draft) => draft.read(snapshot.size_bytes..draft.size_bytes())?,
                None => Vec::new(),
            };
            if !more.is_empty() {
                draft.write(file.record.size_bytes(), &more, true)?;
            }
            state.appended(draft, file);
        }
        shown.entries.inodes.published(node);
        shown.kernel_cache.invalidate(node);
        // The next program that opens another version must not trust the attributes of this one.
        node.state().cache();
        Ok(true)
    }

    /// Bases the draft on the file of the cluster, if that is the result of an earlier publication
    /// of the draft whose answer was lost. Returns whether it is.
    pub async fn adopt_sent(&self, node: &Inode, entries: &Entries) -> bool {
        if node.sent.is_empty() {
            return false;
        }
        let Some(name) = entries.file_name(node) else { return false };
        let Some(now) = self.store.sent(node, &name).await else { return false };
        node.sent.clear();
        let mut state = node.state();
        let draft = state.draft_mut();
        draft.map(|draft| draft.published(Arc::new(now))).is_some()
    }

    /// Drops the changes of a file that no program has open for writing.
    pub async fn give_up(&self, node: &Inode, why: &str, shown: ShownEntries<'_>) {
        let _publishing = node.publishing.lock().await;
        {
            let mut state = node.state();
            if !state.is_abandoned() {
                return;
            }
            state.give_up();
        }
        dropped(node, why, shown);
    }
}

/// A publication has failed. `is_outdated` means that another client has changed the file: its
/// content stands, and that of this mount is dropped.
fn not_published(
    node: &Inode,
    snapshot: &DraftSnapshot,
    is_outdated: bool,
    shown: ShownEntries<'_>,
) {
    if !is_outdated {
        return node.state().not_published(snapshot);
    }
    node.state().outdated();
    dropped(node, "another client has changed or removed the file meanwhile", shown);
}

/// The changes of a file are dropped: the file of the cluster is visible again.
fn dropped(node: &Inode, why: &str, ShownEntries { entries, kernel_cache }: ShownEntries<'_>) {
    tracing::warn!("changes of {} are dropped: {why}", entries.shown_name(node));
    let is_new = !node.state().is_published();
    match entries.inodes.name(node.number).filter(|_| is_new) {
        Some(name) => drop(entries.inodes.removed(&name)),
        None => kernel_cache.invalidate(node),
    }
}
