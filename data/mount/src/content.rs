//! The content of files: opening, reading, writing, and publishing what was written.
//!
//! A program that writes changes a draft, which all programs of this mount see at once. When a file
//! is closed or synced, its draft is published: the cluster then has the new content as a whole.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use eyas_files::{
    Change, ContentDraft, DraftContent, DraftSnapshot, File, FilesError, FilesErrorKind, NewFile,
    RenameOptions, UnclaimedContent, WriteOptions, renamed,
};
use eyas_types::ObjectId;
use eyas_types::dfs::{Attributes, FileKind, FileName, MAX_CHUNKS, PROBED_BYTES, RecordFormat};
use fuser::{Errno, FopenFlags, OpenAccMode, OpenFlags};

use crate::failure::{MountFailure, shown};
use crate::handles::{OpenContent, OpenHandle};
use crate::mounted::Mounted;
use crate::namespace::{creation, file_name};
use crate::nodes::{Found, Inode, NodeState};

/// A program that extends a file gets `EDQUOT` from the write that enters the next part of this
/// size, if the growth of the file exceeds what is known of a quota. Until then, and if nothing is
/// known, closing the file fails.
const QUOTA_CHECK_BYTES: u64 = 1 << 20;

impl Mounted {
    /// Opens a file. Asks the cluster for its present version, so that a program that opens a file
    /// after another one has closed it sees its content.
    pub async fn open(
        &self,
        node: Arc<Inode>,
        flags: OpenFlags,
    ) -> Result<(u64, FopenFlags), MountFailure> {
        self.refresh(&node).await?;
        let may_write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if may_write && let Some(name) = self.nodes.name(node.number) {
            self.namespace.dfs.check_may_write(&file_name(&name)?).await?;
        }
        let mut opened = FopenFlags::empty();
        let is_news = {
            let mut state = node.state();
            if state.kind != FileKind::File {
                return Err(Errno::EINVAL.into());
            }
            let is_same = match (&state.cached, &state.file) {
                (Some(cached), Some(file)) => cached.record.is_as_written(&file.record),
                _ => false,
            };
            // A draft is changed by this mount alone, so the kernel's cache is as the draft.
            if is_same || state.draft.is_some() {
                opened |= FopenFlags::FOPEN_KEEP_CACHE;
            }
            let is_news = !is_same && state.cached.is_some() && state.draft.is_none();
            state.cached = state.file.clone();
            is_news
        };
        if is_news {
            self.invalidate_attributes(&node);
        }
        Ok((self.open_file(node, may_write), opened))
    }

    /// Gives the kernel a handle of a file.
    pub fn open_file(&self, node: Arc<Inode>, may_write: bool) -> u64 {
        {
            let mut state = node.state();
            state.handles += 1;
            state.writers += u32::from(may_write);
            state.is_late &= !may_write;
        }
        self.open_handle(OpenHandle::File(OpenContent { node, may_write }))
    }

    /// The draft of a file, which begins as the present version.
    pub fn draft<'a>(
        &self,
        state: &'a mut NodeState,
    ) -> Result<&'a mut ContentDraft, MountFailure> {
        if state.draft.is_none() {
            let base = state.file.clone().ok_or(Errno::ESTALE)?;
            state.draft = Some(ContentDraft::new(&self.scratch, Some(base)));
        }
        // It was set just now, if it was not set before.
        state.draft.as_mut().ok_or_else(|| Errno::EIO.into())
    }

    /// Writes to the draft of a file, at its end if `appends` is set. Blocks.
    pub fn write(
        &self,
        node: &Inode,
        offset: u64,
        data: &[u8],
        appends: bool,
    ) -> Result<(), MountFailure> {
        let mut state = node.state();
        let draft = self.draft(&mut state)?;
        let end = draft.size_bytes();
        let is_misplaced = appends && offset != end;
        let offset = if is_misplaced { end } else { offset };
        let new_end = self.fits(draft.base(), offset.saturating_add(data.len() as u64))?;
        if new_end / QUOTA_CHECK_BYTES > end / QUOTA_CHECK_BYTES {
            self.check_growth(node, draft, new_end)?;
        }
        draft.write(offset, data, appends)?;
        let has_first_chunk = end < self.chunk_bytes && draft.size_bytes() >= self.chunk_bytes;
        state.written_now();
        drop(state);
        if has_first_chunk {
            self.store_early(node);
        }
        if is_misplaced {
            // The kernel did not know the present size, and has cached the bytes at the wrong
            // place.
            self.invalidate(node);
        }
        Ok(())
    }

    /// The size, if a file can have it. Files with larger chunks can be larger.
    fn fits(&self, base: Option<&Arc<File>>, size_bytes: u64) -> Result<u64, MountFailure> {
        let chunk_bytes = base.map_or(self.chunk_bytes, |base| base.record.chunk_bytes);
        let is_larger = size_bytes > chunk_bytes.saturating_mul(MAX_CHUNKS as u64);
        if is_larger { Err(Errno::EFBIG.into()) } else { Ok(size_bytes) }
    }

    /// Fails if a quota does not permit the draft to grow to a size, as far as that is known.
    fn check_growth(
        &self,
        node: &Inode,
        draft: &ContentDraft,
        size_bytes: u64,
    ) -> Result<(), MountFailure> {
        // While the draft is published, its size may be counted already.
        let Ok(_publishing) = node.publishing.try_lock() else { return Ok(()) };
        let Some(name) = self.nodes.name(node.number).and_then(|name| file_name(&name).ok()) else {
            return Ok(());
        };
        let published_bytes = draft.base().map_or(0, |base| base.record.size_bytes());
        let more_bytes = size_bytes.saturating_sub(published_bytes);
        Ok(self.namespace.dfs.may_grow(&name, more_bytes, &self.runtime)?)
    }

    /// Begins to store the content of a draft, if its bytes are written one after the other.
    fn store_early(&self, node: &Inode) {
        let Some(name) = self.nodes.name(node.number).and_then(|name| file_name(&name).ok()) else {
            return;
        };
        let mut state = node.state();
        let Some(draft) = &mut state.draft else { return };
        let Some(scratch) = draft.to_store_early().cloned() else { return };
        let (base, size_bytes) = (draft.base().cloned(), draft.size_bytes());
        let beginning = || draft.read(0..size_bytes.min(PROBED_BYTES as u64));
        let format = match base.as_deref() {
            Some(base) if !base.record.format.is_guessed => Ok(base.record.format),
            _ => beginning().map(|beginning| RecordFormat::guess(name.base_name(), &beginning)),
        };
        let Ok(format) = format else { return };
        let files = (&self.namespace.dfs, &self.runtime);
        let replaced_bytes = base.map_or(0, |base| base.record.size_bytes());
        let begun = self.early.begin(
            files,
            name,
            self.options(format),
            scratch,
            size_bytes,
            replaced_bytes,
        );
        if let Some(early) = begun {
            draft.store_early(early);
        }
    }

    /// Changes the size of a file. If no program has the file open for writing, the change is
    /// published at once.
    pub async fn set_size(&self, node: &Arc<Inode>, size_bytes: u64) -> Result<(), MountFailure> {
        // `open` with `O_TRUNC` asks for size 0 just after it has asked for the present version.
        let needs_present = {
            let state = node.state();
            state.draft.is_none() && (size_bytes > 0 || state.writers == 0)
        };
        if needs_present {
            self.refresh(node).await?;
        }
        let is_open = {
            let mut state = node.state();
            if state.kind != FileKind::File {
                return Err(
                    if state.kind.is_folder() { Errno::EISDIR } else { Errno::EINVAL }.into()
                );
            }
            self.fits(state.file.as_ref(), size_bytes)?;
            if state.size_bytes() != size_bytes {
                self.draft(&mut state)?.set_size(size_bytes)?;
            }
            state.written_now();
            state.writers > 0
        };
        if is_open {
            return Ok(());
        }
        let published = self.publish(node, false).await;
        if let Err(failure) = &published {
            self.not_closed(node, failure).await;
        }
        self.drop_draft(node);
        published
    }

    /// Reserves space, or replaces a range by zeros.
    pub async fn allocate(
        &self,
        node: &Inode,
        range: Range<u64>,
        mode: i32,
    ) -> Result<(), MountFailure> {
        let (keeps_size, makes_zeros) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE);
        let mut state = node.state();
        state.written_now();
        let draft = self.draft(&mut state)?;
        if mode & keeps_size == 0 {
            self.fits(draft.base(), range.end)?;
        }
        match mode {
            0 if draft.size_bytes() < range.end => Ok(draft.set_size(range.end)?),
            0 => Ok(()),
            mode if mode == keeps_size => Ok(()),
            mode if mode == keeps_size | makes_zeros => Ok(draft.clear(range)?),
            libc::FALLOC_FL_ZERO_RANGE => {
                if draft.size_bytes() < range.end {
                    draft.set_size(range.end)?;
                }
                Ok(draft.clear(range)?)
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// Reads up to `length` bytes.
    pub async fn read(
        &self,
        node: &Inode,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, MountFailure> {
        loop {
            let (missing, base, generation) = {
                let state = node.state();
                let Some(draft) = &state.draft else { break };
                let range = offset..offset.saturating_add(length).min(draft.size_bytes());
                let missing = draft.missing(range.clone());
                match state.readable(draft.base()) {
                    Some(base) if !missing.is_empty() => (missing, base, draft.generation()),
                    _ => return Ok(draft.read(range)?),
                }
            };
            if let Err(failure) = self.fetch(node, &base, missing, generation).await
                && !self.adopt_sent(node).await
            {
                return Err(failure);
            }
        }
        let file = {
            let state = node.state();
            state.readable(state.file.as_ref())
        };
        let file = match file {
            Some(file) => file,
            None => {
                self.refresh(node).await?;
                node.state().file.clone().ok_or(Errno::ESTALE)?
            }
        };
        match self.read_version(node, &file, offset, length).await {
            Ok(read) => Ok(read),
            // Another client may have replaced the version, and its chunks are gone.
            Err(failure) => {
                self.refresh(node).await?;
                let now =
                    node.state().file.clone().filter(|now| !now.record.is_as_written(&file.record));
                match now {
                    Some(now) => self.read_version(node, &now, offset, length).await,
                    None => Err(failure),
                }
            }
        }
    }

    /// Fetches parts of a draft from the version that it is based on.
    pub async fn fetch(
        &self,
        node: &Inode,
        base: &Arc<File>,
        missing: Vec<Range<u64>>,
        generation: u64,
    ) -> Result<(), MountFailure> {
        for range in missing {
            let data =
                self.namespace.dfs.read_at(base, range.start, range.end - range.start).await?;
            let mut state = node.state();
            if let Some(draft) =
                state.draft.as_mut().filter(|draft| draft.generation() == generation)
            {
                draft.fetched(range.start, &data)?;
            }
        }
        Ok(())
    }

    /// A program has closed a descriptor of a file.
    pub async fn flush(&self, file: &OpenContent) -> Result<(), MountFailure> {
        match file.may_write {
            true => self.publish(&file.node, false).await,
            false => Ok(()),
        }
    }

    /// The last descriptor of a handle was closed.
    pub async fn release(&self, file: &OpenContent) -> Result<(), MountFailure> {
        let published = self.flush(file).await;
        {
            let mut state = file.node.state();
            state.handles -= 1;
            state.writers -= u32::from(file.may_write);
            if state.handles == 0 {
                state.reader = None;
            }
        }
        if let Err(failure) = &published {
            self.not_closed(&file.node, failure).await;
        }
        self.drop_draft(&file.node);
        self.nodes.published(&file.node);
        self.release_content(&file.node).await;
        published
    }

    /// Drops a draft that is published and that no program writes to.
    pub fn drop_draft(&self, node: &Inode) {
        // The publication that is under way drops it.
        let Ok(_publishing) = node.publishing.try_lock() else { return };
        let mut state = node.state();
        let is_needed = if state.is_removed {
            state.handles > 0
        } else {
            state.writers > 0 || state.is_dirty()
        };
        if !is_needed {
            state.draft = None;
        }
    }

    /// Publishes the draft of a file, if it differs from the published version. With `is_durable`,
    /// the content is on the disks of the nodes when this returns.
    pub async fn publish(&self, node: &Inode, is_durable: bool) -> Result<(), MountFailure> {
        let _publishing = node.publishing.lock().await;
        self.publish_locked(node, is_durable).await
    }

    /// Does the same for a caller that holds the lock `publishing` of the file.
    pub async fn publish_locked(&self, node: &Inode, is_durable: bool) -> Result<(), MountFailure> {
        let mut name = self.nodes.name(node.number);
        loop {
            let tried = self.publish_once(node, name.as_deref(), is_durable).await;
            // The folder of the file may be being renamed.
            drop(self.naming.read().await);
            let now = self.nodes.name(node.number);
            match (&tried, &name, &now) {
                (_, before, now) if before == now => return tried,
                (Ok(()), Some(before), Some(now)) if node.state().is_published => {
                    // It may have appeared under the old name.
                    let options =
                        RenameOptions { replaces: true, makes_parents: false, keeps_format: true };
                    let moved = self.namespace.rename(before, now, options).await;
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
    ) -> Result<(), MountFailure> {
        self.adopt_sent(node).await;
        let (snapshot, early, published, volatile, attributes) = {
            let mut state = node.state();
            if state.is_unlinked {
                return Ok(());
            }
            let mut draft = state.draft.as_mut().filter(|draft| draft.is_dirty());
            let early = draft.as_mut().and_then(|draft| draft.take_early());
            let snapshot = draft.map(ContentDraft::begin_publication);
            (snapshot, early, state.file.clone(), state.volatile.clone(), state.attributes)
        };
        let Some(snapshot) = snapshot else {
            return match published.filter(|_| is_durable) {
                Some(file) => self.make_durable(node, &file, &volatile).await,
                None => Ok(()),
            };
        };
        let early = match early {
            Some(early) => early.finish().await,
            None => None,
        };
        // An earlier try may have been done.
        let is_unsure = !node.sent.is_empty();
        let written = self.store_draft(node, name, &snapshot, early, attributes, is_durable).await;
        let written = match written {
            Err(failure)
                if failure.errno == Errno::ESTALE && snapshot.is_appended && !is_unsure =>
            {
                match self.append_again(node, &snapshot).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => Err(failure),
                    Err(failure) => Err(failure),
                }
            }
            written => written,
        };
        let file = match written {
            Ok(file) => {
                node.sent.clear();
                Arc::new(file)
            }
            Err(failure) => {
                // If the folder of the file is renamed meanwhile, the publication is tried again
                // under the new name.
                drop(self.naming.read().await);
                let is_final = failure.errno == Errno::ESTALE
                    && self.nodes.name(node.number).as_deref() == name;
                self.not_published(node, &snapshot, is_final);
                return Err(failure);
            }
        };
        node.state().published(file, snapshot.size_bytes, is_durable);
        self.nodes.published(node);
        Ok(())
    }

    /// A publication has failed. `is_outdated` means that another client has changed the file: its
    /// content stands, and that of this mount is dropped.
    fn not_published(&self, node: &Inode, snapshot: &DraftSnapshot, is_outdated: bool) {
        let is_new = {
            let mut state = node.state();
            state.is_late = !is_outdated;
            if !is_outdated {
                if let Some(draft) = &mut state.draft {
                    draft.not_published(snapshot);
                }
                return;
            }
            (state.draft, state.file) = (None, None);
            !state.is_published
        };
        let name = self.nodes.name(node.number).unwrap_or_default();
        let why = "another client has changed or removed the file meanwhile";
        tracing::warn!("changes of {} are dropped: {why}", shown(&name));
        match is_new {
            true => drop(self.nodes.removed(&name)),
            false => self.invalidate(node),
        }
    }

    /// Forces the chunks of a file to the disks of their nodes that may not be there.
    async fn make_durable(
        &self,
        node: &Inode,
        file: &File,
        volatile: &BTreeSet<ObjectId>,
    ) -> Result<(), MountFailure> {
        if !volatile.is_empty() {
            let file = self.namespace.dfs.make_durable(file, volatile).await?;
            let mut state = node.state();
            state.volatile.retain(|object| !volatile.contains(object));
            if state.file.as_ref().is_some_and(|known| known.record.is_as_written(&file.record)) {
                state.renew(Arc::new(file));
            }
        }
        Ok(())
    }

    /// Stores the content of a draft. `ESTALE` if another client has changed the file.
    async fn store_draft(
        &self,
        node: &Inode,
        name: Option<&str>,
        snapshot: &DraftSnapshot,
        early: Option<UnclaimedContent>,
        attributes: Attributes,
        is_durable: bool,
    ) -> Result<File, MountFailure> {
        let dfs = &self.namespace.dfs;
        let name = file_name(name.ok_or(Errno::ESTALE)?)?;
        let (snapshot, runtime) = (Arc::new(snapshot.clone()), self.runtime.clone());
        let content = DraftContent { dfs: dfs.clone(), snapshot: snapshot.clone(), runtime };
        let (changed, size_bytes): (Vec<_>, _) = (snapshot.changed(), snapshot.size_bytes);
        let is_late = node.state().is_late;
        let Attributes { modified_ns, changed_ns, .. } = attributes;
        let format = content.format(&name).await?;
        let mut stored = early.filter(|early| early.format() == format);
        let content = &content;
        let change = Change {
            content,
            size_bytes,
            changed: &changed,
            modified_ns,
            changed_ns,
            is_durable,
            format: Some(format),
        };
        if let Some(base) = &snapshot.base {
            // If the rewrite fails, it may have been done, and another client may have replaced it
            // and its chunks.
            match dfs.rewrite(&renamed(base, &name), change, stored.take(), &node.sent).await {
                Ok(file) => return Ok(file),
                // If the whole content is new, it does not matter what another client has written.
                Err(error)
                    if is_outdated(&error)
                        && snapshot.is_whole
                        && !snapshot.is_appended
                        && !is_late => {}
                Err(error) => {
                    let is_outdated =
                        is_outdated(&error) || self.is_replaced(node, base, &name).await;
                    let failure = MountFailure::from(error);
                    return Err(if is_outdated {
                        MountFailure { errno: Errno::ESTALE, ..failure }
                    } else {
                        failure
                    });
                }
            }
        }
        if is_late && dfs.lookup(&name).await.is_ok_and(|now| now.record.id != node.id) {
            return Err(Errno::ESTALE.into());
        }
        let options =
            WriteOptions { creation: creation(&attributes), is_durable, ..self.options(format) };
        let of_base = || snapshot.base.as_ref().map(|base| base.record.named.clone());
        let named = node.state().named.clone().or_else(of_base).unwrap_or_default();
        let file = NewFile { id: node.id, named };
        let is_there = snapshot.base.is_some();
        Ok(dfs.write_with_id(&name, file, change, stored, options, is_there).await?)
    }

    /// Whether another client has replaced the content of a version.
    async fn is_replaced(&self, node: &Inode, base: &File, name: &FileName) -> bool {
        match self.namespace.dfs.lookup(name).await {
            Ok(now) => !now.record.is_as_written(&base.record) && !node.sent.has(&now.record),
            Err(error) => error.kind == FilesErrorKind::NotFound,
        }
    }

    /// Bases the draft on the file of the cluster, if that is the result of an earlier publication
    /// of the draft whose answer was lost. Returns whether it is.
    async fn adopt_sent(&self, node: &Inode) -> bool {
        if node.sent.is_empty() {
            return false;
        }
        let Some(name) = self.nodes.name(node.number).and_then(|name| file_name(&name).ok()) else {
            return false;
        };
        let now = self.namespace.dfs.lookup(&name).await;
        let Some(now) = now.ok().filter(|now| node.sent.has(&now.record)) else { return false };
        node.sent.clear();
        let mut state = node.state();
        let draft = state.draft.as_mut();
        draft.map(|draft| draft.published(Arc::new(now))).is_some()
    }

    /// Creates an empty file in the cluster, if there is none of this name.
    pub async fn create_empty(&self, path: &str, found: &Found) -> Result<File, MountFailure> {
        let name = file_name(path)?;
        let options = self.options(RecordFormat::guess(name.base_name(), &[]));
        let options = WriteOptions { creation: creation(&found.attributes), ..options };
        Ok(self.namespace.dfs.create_empty(&name, found.id, options).await?)
    }

    fn options(&self, format: RecordFormat) -> WriteOptions {
        let (chunk_bytes, replication) = (self.chunk_bytes, self.replication);
        WriteOptions { chunk_bytes, replication, ..WriteOptions::of(format) }
    }
}

/// Whether another client has changed or removed the file.
fn is_outdated(error: &FilesError) -> bool {
    matches!(error.kind, FilesErrorKind::Changed | FilesErrorKind::NotFound)
}
