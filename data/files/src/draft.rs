//! Drafts: the content of a file that a program has changed and that has not been published.
//!
//! The bytes of a small draft are in memory, those of a larger one in a sparse file without a name
//! in the scratch folder, so a process that is killed leaves nothing behind.
//! Bytes that no program has written are read from the version of the file that the draft is based
//! on.

pub(crate) mod content;
mod early;
mod ranges;
mod scratch;

use std::fs::File as ScratchFile;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyas_types::dfs::{FileName, FileRecord};

use early::EarlyStore;
pub use early::EarlyUploads;
use ranges::RangeSet;
pub use scratch::Scratch;
use scratch::ScratchBytes;

use crate::File;

/// The number of drafts that this process has made.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// A content that is being changed.
#[derive(Debug)]
pub struct ContentDraft {
    scratch: Scratch,
    /// The version on which the draft is based; `None` if no byte of it is used.
    base: Option<Arc<File>>,
    /// The bytes of the base up to here are used, where the draft has no others.
    base_bytes: u64,
    size_bytes: u64,
    /// The bytes that are in the scratch file.
    present: RangeSet,
    /// The bytes that differ from the published version.
    changed: RangeSet,
    is_dirty: bool,
    /// Whether a write that has failed may have left bytes beyond the end in the scratch file.
    is_torn: bool,
    /// Whether no byte of an earlier version is in the content: it was created or truncated here.
    is_whole: bool,
    /// Whether all bytes were written one after the other, from the first to the last.
    is_sequential: bool,
    /// Whether all changes of the base are bytes that programs have appended, wherever its end is.
    is_appended: bool,
    /// Stores the content while it is written.
    early: Option<EarlyStore>,
    /// Distinguishes the drafts of this process.
    generation: u64,
}

/// A part of a draft that a publication stores.
#[derive(Clone, Debug)]
pub struct DraftSnapshot {
    scratch: ScratchBytes,
    /// The version on which the draft was based; `None` if no byte of it is used.
    pub base: Option<Arc<File>>,
    /// Size of the content.
    pub size_bytes: u64,
    present: RangeSet,
    base_bytes: u64,
    changed: RangeSet,
    /// Whether no byte of an earlier version is in the content.
    pub is_whole: bool,
    /// Whether all changes of the base are bytes that programs have appended.
    pub is_appended: bool,
}

impl ContentDraft {
    /// A draft that begins as `base`, or as an empty file that has to be published.
    pub fn new(scratch_folder: &Path, base: Option<Arc<File>>) -> Self {
        let size_bytes = base.as_ref().map_or(0, |base| base.record.size_bytes());
        ContentDraft {
            scratch: Scratch::new(scratch_folder),
            is_dirty: base.is_none(),
            is_torn: false,
            is_whole: base.is_none(),
            is_sequential: base.is_none(),
            is_appended: base.is_some(),
            early: None,
            generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
            base,
            base_bytes: size_bytes,
            size_bytes,
            present: RangeSet::default(),
            changed: RangeSet::default(),
        }
    }

    /// Size of the content.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Size of the bytes that a disk holds, as an estimate that is never too small.
    pub fn stored_bytes(&self) -> u64 {
        let of_base = self
            .base
            .as_ref()
            .map_or(0, |base| base.record.size_bytes() - base.record.hole_bytes());
        (self.present.bytes() + of_base.min(self.base_bytes)).min(self.size_bytes)
    }

    /// The holes, in order.
    pub fn holes(&self) -> Vec<Range<u64>> {
        let mut data = self.present.clone();
        let mut of_base = RangeSet::default();
        self.base.iter().for_each(|base| holes(&base.record).for_each(|hole| of_base.insert(hole)));
        of_base.missing(0..self.base_bytes).into_iter().for_each(|range| data.insert(range));
        data.missing(0..self.size_bytes)
    }

    /// Number of bytes in the scratch file.
    pub fn scratch_bytes(&self) -> u64 {
        self.present.bytes()
    }

    /// Whether the draft differs from the published version.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// The number of the draft among those of this process.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The version on which the draft is based.
    pub fn base(&self) -> Option<&Arc<File>> {
        self.base.as_ref()
    }

    /// Whether all changes of the base are bytes that programs have appended.
    pub fn is_appended(&self) -> bool {
        self.is_appended
    }

    /// Writes bytes, which a program has appended if `appends` is set. If that fails, some of those
    /// within the size may be written.
    pub fn write(&mut self, offset: u64, data: &[u8], appends: bool) -> io::Result<()> {
        self.mend()?;
        if offset != self.size_bytes {
            self.is_rewritten();
        }
        self.is_appended &= appends;
        let end = offset + data.len() as u64;
        if let Err(error) = self.scratch.write(offset, data) {
            // Bytes that were present before may have been replaced.
            let within = offset.min(self.size_bytes)..end.min(self.size_bytes);
            self.is_dirty |= !within.is_empty();
            self.changed.insert(within);
            self.is_torn = true;
            return Err(error);
        }
        if let Some(early) = &self.early {
            early.wrote(end);
        }
        self.present.insert(offset..end);
        // Bytes between the old end and the offset become zeros.
        self.changed.insert(self.size_bytes.min(offset)..end);
        self.size_bytes = self.size_bytes.max(end);
        self.is_dirty = true;
        Ok(())
    }

    /// Cuts the content off at this size, or appends zeros to it.
    pub fn set_size(&mut self, size_bytes: u64) -> io::Result<()> {
        if size_bytes == self.size_bytes {
            return Ok(());
        }
        self.mend()?;
        self.is_rewritten();
        if size_bytes < self.size_bytes {
            self.scratch.truncate(size_bytes)?;
            self.base_bytes = self.base_bytes.min(size_bytes);
            self.is_whole |= size_bytes == 0;
            self.present.truncate(size_bytes);
            self.changed.truncate(size_bytes);
            self.is_sequential = size_bytes == 0;
        } else {
            self.changed.insert(self.size_bytes..size_bytes);
        }
        self.size_bytes = size_bytes;
        self.is_dirty = true;
        Ok(())
    }

    /// Replaces the bytes of a range by zeros, within the size of the file.
    pub fn clear(&mut self, range: Range<u64>) -> io::Result<()> {
        let end = range.end.min(self.size_bytes);
        if range.start >= end {
            return Ok(());
        }
        self.is_rewritten();
        self.scratch.clear(range.start..end)?;
        self.present.insert(range.start..end);
        self.changed.insert(range.start..end);
        self.is_dirty = true;
        Ok(())
    }

    /// Drops what a write that has failed may have left beyond the end: it must not appear when the
    /// content grows.
    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.scratch.truncate(self.size_bytes)?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// The bytes are no longer written one after the other.
    fn is_rewritten(&mut self) {
        (self.is_sequential, self.is_appended) = (false, false);
        self.early = None;
    }

    /// The scratch file, if its content can be stored from now on: all of it was written one after
    /// the other.
    pub fn to_store_early(&self) -> Option<&Arc<ScratchFile>> {
        match self.scratch.bytes() {
            ScratchBytes::File(file)
                if self.is_sequential && self.is_whole && self.early.is_none() =>
            {
                Some(file)
            }
            _ => None,
        }
    }

    /// The content is being stored.
    pub fn store_early(&mut self, early: EarlyStore) {
        self.early = Some(early);
    }

    /// What stores the content, if its publication begins.
    pub fn take_early(&mut self) -> Option<EarlyStore> {
        self.early.take()
    }

    /// The content has been published as `file`, and only its name or attributes have changed
    /// since.
    pub fn rebase(&mut self, file: &Arc<File>) {
        if self.base.as_ref().is_some_and(|base| base.record.is_as_written(&file.record)) {
            self.base = Some(file.clone());
        }
    }

    /// The file has a new name.
    pub fn rename(&mut self, name: &FileName) {
        self.base = self.base.take().map(|base| renamed(&base, name));
    }

    /// The parts of a range that have to be fetched from the base before the range can be read.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        missing(&self.present, self.base_bytes, range)
    }

    /// Takes bytes that were fetched from the base, where the draft still has no others.
    pub fn fetched(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        for range in self.missing(offset..offset + data.len() as u64) {
            let part = &data[(range.start - offset) as usize..(range.end - offset) as usize];
            // Bytes that were not written are zeros: those of holes take no space.
            if part.iter().any(|byte| *byte != 0) {
                self.scratch.write(range.start, part)?;
            }
            self.present.insert(range);
        }
        Ok(())
    }

    /// Reads a range. All of its bytes must be present.
    pub fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let end = range.end.min(self.size_bytes);
        if range.start >= end {
            return Ok(Vec::new());
        }
        self.scratch.bytes().read(range.start, (end - range.start) as usize)
    }

    /// Fills the buffer with the bytes from `offset`, which must be present and within the size.
    pub fn read_into(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.scratch.bytes().read_into(offset, buffer)
    }

    /// Takes the content that is published now. Later changes belong to the next publication.
    pub fn begin_publication(&mut self) -> DraftSnapshot {
        self.is_dirty = false;
        self.is_sequential = self.size_bytes == 0;
        DraftSnapshot {
            scratch: self.scratch.bytes().clone(),
            base: self.base.clone(),
            size_bytes: self.size_bytes,
            present: self.present.clone(),
            base_bytes: self.base_bytes,
            changed: std::mem::take(&mut self.changed),
            is_whole: self.is_whole,
            is_appended: std::mem::replace(&mut self.is_appended, true),
        }
    }

    /// A snapshot was published as `file`, on which the draft is based from now on. Bytes of the
    /// old base that the draft still needs are in the new one, at the same places.
    pub fn published(&mut self, file: Arc<File>) {
        self.base = Some(file);
    }

    /// The publication of the snapshot has failed: its changes are still to be published.
    pub fn not_published(&mut self, snapshot: &DraftSnapshot) {
        self.is_dirty = true;
        self.is_appended &= snapshot.is_appended;
        snapshot.changed.iter().for_each(|range| self.changed.insert(range));
        self.changed.truncate(self.size_bytes);
    }
}

impl DraftSnapshot {
    /// The ranges that differ from the published version, in order.
    pub fn changed(&self) -> Vec<Range<u64>> {
        self.changed.iter().collect()
    }

    /// The parts of a range that are in the base and not in the scratch file.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        missing(&self.present, self.base_bytes, range)
    }

    /// Whether the bytes of a range are known to be zeros without reading them.
    pub fn is_hole(&self, range: Range<u64>) -> bool {
        self.missing(range.clone()).is_empty() && self.scratch.is_hole(range)
    }

    /// Reads from the scratch file.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.scratch.read(offset, length)
    }
}

fn missing(present: &RangeSet, base_bytes: u64, range: Range<u64>) -> Vec<Range<u64>> {
    let end = range.end.min(base_bytes);
    if range.start < end { present.missing(range.start..end) } else { Vec::new() }
}

/// A version of a file under its new name.
pub fn renamed(file: &File, name: &FileName) -> Arc<File> {
    let mut file = file.clone();
    file.name.clone_from(name);
    Arc::new(file)
}

/// The holes of a version of a file.
pub fn holes(record: &FileRecord) -> impl Iterator<Item = Range<u64>> {
    let mut end = 0;
    record.chunks.iter().filter_map(move |chunk| {
        let start = end;
        end += chunk.size_bytes;
        chunk.is_hole().then_some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use eyas_ring::{RecordVersion, Round};
    use eyas_types::dfs::{Attributes, Chunk, FileId, FileKind};

    use super::*;

    /// A draft whose bytes are in a file.
    fn draft_in(folder: &str, base: Option<Arc<File>>) -> ContentDraft {
        let mut draft = ContentDraft::new(Path::new(folder), base);
        draft.write(0, &[1; 100_000], false).unwrap();
        draft
    }

    #[test]
    fn bytes_of_a_write_that_has_failed_do_not_appear_beyond_the_end() {
        // Files of a file system in memory may have this size, so the first bytes are written.
        let (folder, most) = ("/dev/shm", i64::MAX as u64);
        let mut draft = draft_in(folder, None);
        draft.write(most - 5, &[2; 10], false).unwrap_err();
        assert_eq!(draft.size_bytes(), 100_000);
        draft.set_size(most).unwrap();
        assert_eq!(draft.read(most - 5..most).unwrap(), [0; 5]);
    }

    #[test]
    fn a_size_that_cannot_be_set_changes_nothing() {
        let chunks = vec![Chunk::hole(u64::MAX, 0)];
        let record = FileRecord::without_content(FileId(1), FileKind::File, Attributes::default());
        let record = FileRecord { chunks, ..record };
        let version = RecordVersion { round: Round::default(), sequence: 1 };
        let base = File { name: "/a".parse().unwrap(), record, version };
        let mut draft = draft_in("/tmp", Some(Arc::new(base)));
        draft.set_size(u64::MAX - 1).unwrap_err();
        assert_eq!(draft.size_bytes(), u64::MAX);
        let end = u64::MAX - 2..u64::MAX;
        assert_eq!(draft.missing(end.clone()), std::slice::from_ref(&end));
    }
}
