//! The state of an entry, which changes only by what has happened: a program has opened, written or
//! removed it, a publication has ended, or the cluster has told news of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_files::{ContentDraft, DraftSnapshot, File, FileReader, RetainedFile};
use eyas_types::ObjectId;
use eyas_types::dfs::{
    AttributeChange, Attributes, FileKind, FileName, NamedAttributeError, NamedAttributes,
    NamedChange,
};
use fuser::Errno;

use super::attributes::EntryAttributes;
use super::uses::OpenUses;
use super::version::PublishedVersion;
use crate::cluster_entry::ClusterEntry;
use crate::failure::MountFailure;

/// Time for which the kernel trusts names and attributes.
pub(crate) const TRUSTED: Duration = Duration::from_secs(1);

/// The state of an entry.
#[derive(Debug)]
pub(crate) struct InodeState {
    kind: FileKind,
    attributes: EntryAttributes,
    version: PublishedVersion,
    draft: Option<ContentDraft>,
    uses: OpenUses,
    /// Whether the entry is in the cluster.
    is_published: bool,
    /// Whether the entry has no name any longer.
    is_removed: bool,
    /// Whether a program of this mount has removed the file or replaced it: its draft is not
    /// published.
    is_unlinked: bool,
    /// Whether the publication of the draft has failed, and no program has opened the file for
    /// writing since. The draft must not replace what other clients have written meanwhile.
    is_late: bool,
    /// When the cluster was last asked.
    checked: Instant,
}

/// What the kernel's cache is worth to a program that opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheAtOpen {
    /// It has the present content.
    Current,
    /// It has the content and the attributes of another version.
    Outdated,
    Empty,
}

impl InodeState {
    pub fn new(found: &ClusterEntry, is_published: bool) -> Self {
        InodeState {
            kind: found.kind.clone(),
            attributes: EntryAttributes::new(found, is_published),
            version: PublishedVersion::new(found),
            draft: None,
            uses: OpenUses::default(),
            is_published,
            is_removed: false,
            is_unlinked: false,
            is_late: false,
            checked: Instant::now(),
        }
    }

    // ---- what is known

    pub fn kind(&self) -> &FileKind {
        &self.kind
    }

    pub fn attributes(&self) -> Attributes {
        self.attributes.present()
    }

    pub fn named(&self) -> Option<&NamedAttributes> {
        self.attributes.named()
    }

    /// The published version, if it is known.
    pub fn file(&self) -> Option<&Arc<File>> {
        self.version.file()
    }

    pub fn draft(&self) -> Option<&ContentDraft> {
        self.draft.as_ref()
    }

    /// Chunks that may not be on the disks of their nodes yet.
    pub fn volatile(&self) -> &BTreeSet<ObjectId> {
        self.version.volatile()
    }

    pub fn is_published(&self) -> bool {
        self.is_published
    }

    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    pub fn is_unlinked(&self) -> bool {
        self.is_unlinked
    }

    pub fn is_late(&self) -> bool {
        self.is_late
    }

    pub fn is_open(&self) -> bool {
        self.uses.is_open()
    }

    pub fn has_writers(&self) -> bool {
        self.uses.has_writers()
    }

    pub fn is_retained(&self) -> bool {
        self.uses.retained().is_some()
    }

    /// Size of the content that programs of this mount see.
    pub fn size_bytes(&self) -> u64 {
        self.draft.as_ref().map_or(self.version.size_bytes(), ContentDraft::size_bytes)
    }

    /// Size of that content without its holes.
    pub fn stored_bytes(&self) -> u64 {
        self.draft.as_ref().map_or(self.version.stored_bytes(), ContentDraft::stored_bytes)
    }

    pub fn is_dirty(&self) -> bool {
        self.draft.as_ref().is_some_and(ContentDraft::is_dirty)
    }

    /// Time for which the kernel may still trust the attributes that are known here.
    pub fn trusted_for(&self) -> Duration {
        match self.kind == FileKind::File && self.file().is_none() && self.draft.is_none() {
            // Another client has changed the file.
            true => Duration::ZERO,
            false => TRUSTED.saturating_sub(self.checked.elapsed()),
        }
    }

    /// Whether the entry changes only here: the cluster does not have it, or no longer.
    pub fn is_local(&self) -> bool {
        !self.is_published || self.is_removed
    }

    /// Whether there are changes to publish and no program will do so, as none has the file open
    /// for writing.
    pub fn is_abandoned(&self) -> bool {
        !self.has_writers() && self.is_dirty() && !self.is_unlinked
    }

    /// Whether something besides the kernel's references needs the entry.
    pub fn is_in_use(&self) -> bool {
        self.is_open() || (self.draft.is_some() && !self.is_removed)
    }

    /// The file from which a published version is read.
    pub fn readable(&self, version: Option<&Arc<File>>) -> Option<Arc<File>> {
        self.uses.retained().map(|retained| retained.file()).or(version).cloned()
    }

    // ---- what programs of this mount do

    /// A program has created the file. `file` is its version if it is in the cluster already.
    pub fn created(&mut self, mut draft: ContentDraft, file: Option<Arc<File>>) {
        if let Some(file) = file {
            draft.begin_publication();
            draft.published(file.clone());
            self.is_published = true;
            self.version.created(file);
        }
        self.draft = Some(draft);
    }

    /// A program opens the file.
    pub fn cache_at_open(&mut self) -> CacheAtOpen {
        let cache = if self.version.is_cached() || self.draft.is_some() {
            // A draft is changed by this mount alone, so the kernel's cache is as the draft.
            CacheAtOpen::Current
        } else if self.version.is_any_cached() {
            CacheAtOpen::Outdated
        } else {
            CacheAtOpen::Empty
        };
        self.version.cache();
        cache
    }

    pub fn opened(&mut self, may_write: bool) {
        self.uses.opened(may_write);
        self.is_late &= !may_write;
    }

    pub fn closed(&mut self, may_write: bool) {
        self.uses.closed(may_write);
    }

    /// The reader of a version, which `begin` makes if there is none.
    pub fn reader(
        &mut self,
        file: &Arc<File>,
        begin: impl FnOnce() -> FileReader,
    ) -> Arc<FileReader> {
        self.uses.reader(file, begin)
    }

    pub fn draft_mut(&mut self) -> Option<&mut ContentDraft> {
        self.draft.as_mut()
    }

    /// The draft, which begins as the present version.
    pub fn draft_or_begin(&mut self, scratch: &Path) -> Result<&mut ContentDraft, MountFailure> {
        match &mut self.draft {
            Some(draft) => Ok(draft),
            none => {
                let base = self.version.file().cloned().ok_or(Errno::ESTALE)?;
                Ok(none.insert(ContentDraft::new(scratch, Some(base))))
            }
        }
    }

    /// A program has changed the content.
    pub fn written_now(&mut self) {
        self.attributes.written_now();
    }

    /// A program has created, removed or renamed an entry of the folder.
    pub fn entries_changed(&mut self) {
        self.attributes.written_now();
    }

    /// A program has changed attributes of an entry that changes only here.
    pub fn change_here(&mut self, change: &AttributeChange) {
        self.attributes.change_here(change);
    }

    /// The same for a named attribute.
    pub fn change_named_here(
        &mut self,
        attribute: &str,
        change: &NamedChange,
    ) -> Result<(), NamedAttributeError> {
        self.attributes.change_named_here(attribute, change)
    }

    /// A program has removed the file or replaced it.
    pub fn unlinked(&mut self) {
        self.is_unlinked = true;
    }

    /// The entry has no name any longer.
    pub fn unnamed(&mut self) {
        self.is_removed = true;
    }

    /// The file has a new name.
    pub fn rename(&mut self, name: &FileName) {
        if let Some(draft) = &mut self.draft {
            draft.rename(name);
        }
        self.version.rename(name);
    }

    /// Copies of the content were made, as the file is about to be removed or replaced.
    pub fn retain(&mut self, retained: Arc<RetainedFile>) {
        self.uses.retain(retained);
    }

    pub fn take_retained(&mut self) -> Option<Arc<RetainedFile>> {
        self.uses.take_retained()
    }

    /// The same, unless a program still reads the copies of a file that was removed.
    pub fn take_unneeded_retained(&mut self) -> Option<Arc<RetainedFile>> {
        let is_needed = self.is_open() && self.is_unlinked;
        if is_needed { None } else { self.take_retained() }
    }

    /// Drops a draft that is published and that no program writes to.
    pub fn drop_unneeded_draft(&mut self) {
        let is_needed = match self.is_removed {
            true => self.is_open(),
            false => self.has_writers() || self.is_dirty(),
        };
        if !is_needed {
            self.draft = None;
        }
    }

    // ---- how publications end

    /// The content of these bytes was published as a version. With `is_durable`, all of its chunks
    /// are on the disks.
    pub fn published(&mut self, file: Arc<File>, size_bytes: u64, is_durable: bool) {
        if let Some(draft) = &mut self.draft {
            draft.published(file.clone());
        }
        if !self.is_dirty() {
            self.attributes.set(file.record.attributes);
        }
        self.attributes.set_named(&file);
        self.version.published(file, size_bytes, is_durable);
        (self.is_published, self.is_late) = (true, false);
    }

    /// What programs have appended was published at the end of the version of another client.
    /// `draft` has what they have appended since.
    pub fn appended(&mut self, draft: ContentDraft, file: Arc<File>) {
        self.draft = Some(draft);
        self.attributes.learn(file.record.attributes, &file.record.kind, self.is_dirty());
        self.attributes.set_named(&file);
        self.version.appended(file);
        (self.is_published, self.is_late) = (true, false);
    }

    /// The publication of a snapshot of the draft has failed.
    pub fn not_published(&mut self, snapshot: &DraftSnapshot) {
        self.is_late = true;
        if let Some(draft) = &mut self.draft {
            draft.not_published(snapshot);
        }
    }

    /// Another client has changed or removed the file: its content stands.
    pub fn outdated(&mut self) {
        self.give_up();
        self.version.outdated();
    }

    /// The changes of programs of this mount are dropped.
    pub fn give_up(&mut self) {
        (self.draft, self.is_late) = (None, false);
    }

    /// These chunks are on the disks of their nodes. `file` is the version that says so.
    pub fn durable(&mut self, objects: &BTreeSet<ObjectId>, file: File) {
        self.version.durable(objects);
        if self.file().is_some_and(|known| known.record.is_as_written(&file.record)) {
            self.renew(Arc::new(file));
        }
    }

    /// The kernel forgets what it has cached.
    pub fn forget_cached(&mut self) {
        self.version.forget_cached();
    }

    /// What the kernel caches from now on is of the present version.
    pub fn cache(&mut self) {
        self.version.cache();
    }

    // ---- news of the cluster

    /// Takes the news that the cluster has of the entry. The changes of programs of this mount
    /// remain.
    pub fn learn(&mut self, found: &ClusterEntry) {
        self.checked = Instant::now();
        if self.draft.is_some() {
            return;
        }
        self.attributes.learn(found.attributes, &found.kind, false);
        match &found.file {
            Some(file) => self.attributes.set_named(file),
            None => self.attributes.forget_named(),
        }
        self.kind.clone_from(&found.kind);
        self.version.learn(found);
    }

    /// The same of an entry that was looked up by its name.
    pub fn looked_up(&mut self, found: &ClusterEntry) {
        self.is_removed = false;
        self.learn(found);
    }

    /// An attribute or the name was changed in the cluster, and the entry is then as it was found.
    /// With `sets_modified`, the time of the last write was changed, too.
    pub fn changed(&mut self, found: ClusterEntry, sets_modified: bool) {
        match sets_modified {
            true => self.attributes.set(found.attributes),
            false => self.attributes.learn(found.attributes, &found.kind, self.is_dirty()),
        }
        if let Some(file) = found.file {
            self.renew(file);
        }
    }

    /// Takes a version with the content that is known.
    fn renew(&mut self, file: Arc<File>) {
        self.attributes.set_named(&file);
        if let Some(draft) = &mut self.draft {
            draft.rebase(&file);
            if draft.base().is_some_and(|base| !base.record.is_as_written(&file.record)) {
                // Another client has changed the content. The publication of the draft will say so.
                return;
            }
        }
        self.version.renew(file);
    }
}
