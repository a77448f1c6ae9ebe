//! Drafts: what programs have written and read of it. All programs of this mount see a draft at
//! once; the cluster has the content when the draft is published.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use eyas_files::{ContentDraft, DfsClient, EarlyUploads, File, READ_BYTES};
use eyas_types::dfs::{FileKind, FileName, MAX_CHUNKS, PROBED_BYTES, RecordFormat};
use fuser::Errno;
use tokio::runtime::Handle;

use crate::entries::Entries;
use crate::failure::MountFailure;
use crate::inode::{Inode, InodeState};
use crate::new_files::NewFiles;

/// A program that extends a file gets `EDQUOT` from the write that enters the next part of this
/// size, if the growth of the file exceeds what is known of a quota. Until then, and if nothing is
/// known, closing the file fails.
const QUOTA_CHECK_BYTES: u64 = 1 << 20;

/// Changes drafts, and reads them.
pub(crate) struct Drafts {
    dfs: DfsClient,
    runtime: Handle,
    /// Folder for the content of drafts.
    scratch: PathBuf,
    new_files: NewFiles,
    /// The content that is stored before it is published.
    early: EarlyUploads,
}

/// Bytes of a draft that are only in the version on which it is based.
pub(crate) struct MissingPart {
    ranges: Vec<Range<u64>>,
    base: Arc<File>,
    /// The state of the draft that lacks them.
    generation: u64,
}

/// What a draft has of a range.
pub(crate) enum DraftPart {
    Content(Vec<u8>),
    Missing(MissingPart),
}

impl Drafts {
    pub fn new(dfs: DfsClient, runtime: Handle, scratch: PathBuf, new_files: NewFiles) -> Self {
        Drafts { dfs, runtime, scratch, new_files, early: EarlyUploads::default() }
    }

    // ---- changes

    /// The draft of a file that programs create.
    pub fn new_draft(&self) -> ContentDraft {
        ContentDraft::new(&self.scratch, None)
    }

    /// Writes to the draft of a file, at its end if `appends` is set. Blocks. Returns whether the
    /// bytes are at another place than `offset`.
    pub fn write(
        &self,
        entries: &Entries,
        node: &Inode,
        offset: u64,
        data: &[u8],
        appends: bool,
    ) -> Result<bool, MountFailure> {
        let mut name = None;
        loop {
            let mut state = node.state();
            let draft = state.draft_or_begin(&self.scratch)?;
            let end = draft.size_bytes();
            let is_misplaced = appends && offset != end;
            let offset = if is_misplaced { end } else { offset };
            let new_end = self.fits(draft.base(), offset.saturating_add(data.len() as u64))?;
            if new_end / QUOTA_CHECK_BYTES > end / QUOTA_CHECK_BYTES {
                let Some(name) = &name else {
                    // Another thread may hold the tables of names and wait for the state.
                    drop(state);
                    name = Some(entries.file_name(node));
                    continue;
                };
                self.check_growth(node, draft, name.as_ref(), new_end)?;
            }
            draft.write(offset, data, appends)?;
            let chunk_bytes = self.new_files.chunk_bytes;
            let has_first_chunk = end < chunk_bytes && draft.size_bytes() >= chunk_bytes;
            state.written_now();
            drop(state);
            if has_first_chunk {
                self.store_early(entries, node);
            }
            return Ok(is_misplaced);
        }
    }

    /// The size, if a file can have it. Files with larger chunks can be larger.
    fn fits(&self, base: Option<&Arc<File>>, size_bytes: u64) -> Result<u64, MountFailure> {
        let chunk_bytes = base.map_or(self.new_files.chunk_bytes, |base| base.record.chunk_bytes);
        let is_larger = size_bytes > chunk_bytes.saturating_mul(MAX_CHUNKS as u64);
        if is_larger { Err(Errno::EFBIG.into()) } else { Ok(size_bytes) }
    }

    /// Fails if a quota does not permit the draft to grow to a size, as far as that is known.
    fn check_growth(
        &self,
        node: &Inode,
        draft: &ContentDraft,
        name: Option<&FileName>,
        size_bytes: u64,
    ) -> Result<(), MountFailure> {
        let Some(name) = name else { return Ok(()) };
        // While the draft is published, its size may be counted already.
        let Ok(_publishing) = node.publishing.try_lock() else { return Ok(()) };
        let published_bytes = draft.base().map_or(0, |base| base.record.size_bytes());
        let more_bytes = size_bytes.saturating_sub(published_bytes);
        Ok(self.dfs.may_grow(name, more_bytes, &self.runtime)?)
    }

    /// Begins to store the content of a draft, if its bytes are written one after the other.
    fn store_early(&self, entries: &Entries, node: &Inode) {
        let Some(name) = entries.file_name(node) else { return };
        let mut state = node.state();
        let Some(draft) = state.draft_mut() else { return };
        let Some(scratch) = draft.to_store_early().cloned() else { return };
        let (base, size_bytes) = (draft.base().cloned(), draft.size_bytes());
        let beginning = || draft.read(0..size_bytes.min(PROBED_BYTES as u64));
        let format = match base.as_deref() {
            Some(base) if !base.record.format.is_guessed => Ok(base.record.format),
            _ => beginning().map(|beginning| RecordFormat::guess(name.base_name(), &beginning)),
        };
        let Ok(format) = format else { return };
        let files = (&self.dfs, &self.runtime);
        let options = self.new_files.options(format);
        let replaced_bytes = base.map_or(0, |base| base.record.size_bytes());
        let begun = self.early.begin(files, name, options, scratch, size_bytes, replaced_bytes);
        if let Some(early) = begun {
            draft.store_early(early);
        }
    }

    /// Changes the size of a file.
    pub fn set_size(&self, state: &mut InodeState, size_bytes: u64) -> Result<(), MountFailure> {
        if *state.kind() != FileKind::File {
            let is_folder = state.kind().is_folder();
            return Err(if is_folder { Errno::EISDIR } else { Errno::EINVAL }.into());
        }
        self.fits(state.file(), size_bytes)?;
        if state.size_bytes() != size_bytes {
            state.draft_or_begin(&self.scratch)?.set_size(size_bytes)?;
        }
        state.written_now();
        Ok(())
    }

    /// Reserves space, or replaces a range by zeros.
    pub fn allocate(&self, node: &Inode, range: Range<u64>, mode: i32) -> Result<(), MountFailure> {
        let (keeps_size, makes_zeros) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE);
        let mut state = node.state();
        state.written_now();
        let draft = state.draft_or_begin(&self.scratch)?;
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

    // ---- reads

    /// What the draft of a file has of up to `length` bytes; `None` if the file has no draft.
    pub fn read(node: &Inode, offset: u64, length: u64) -> Result<Option<DraftPart>, MountFailure> {
        let state = node.state();
        let Some(draft) = state.draft() else { return Ok(None) };
        let range = offset..offset.saturating_add(length).min(draft.size_bytes());
        let ranges = draft.missing(range.clone());
        Ok(Some(match state.readable(draft.base()) {
            Some(base) if !ranges.is_empty() => {
                DraftPart::Missing(MissingPart { ranges, base, generation: draft.generation() })
            }
            _ => DraftPart::Content(draft.read(range)?),
        }))
    }

    /// Fetches parts of a draft from the version that it is based on.
    pub async fn fetch(&self, node: &Inode, part: MissingPart) -> Result<(), MountFailure> {
        let MissingPart { ranges, base, generation } = part;
        for range in ranges {
            let data = self.dfs.read_at(&base, range.start, range.end - range.start).await?;
            let mut state = node.state();
            if let Some(draft) = state.draft_mut().filter(|draft| draft.generation() == generation)
            {
                draft.fetched(range.start, &data)?;
            }
        }
        Ok(())
    }

    /// Fetches all that is missing in the draft of a file, which begins as the present version.
    pub async fn complete(&self, node: &Inode) -> Result<(), MountFailure> {
        let size_bytes = node.state().draft_or_begin(&self.scratch)?.size_bytes();
        let mut at = 0;
        while at < size_bytes {
            let end = (at + 4 * READ_BYTES as u64).min(size_bytes);
            let missing = {
                let state = node.state();
                state.draft().and_then(|draft| {
                    let (ranges, base) = (draft.missing(at..end), draft.base()?.clone());
                    Some(MissingPart { ranges, base, generation: draft.generation() })
                })
            };
            if let Some(missing) = missing {
                self.fetch(node, missing).await?;
            }
            at = end;
        }
        Ok(())
    }
}
