//! Changes of parts of a file: only chunks with changed bytes are stored again, and the others are
//! kept.
//!
//! The new chunks have other objects than all earlier ones, also if they have the content of an
//! earlier chunk: a chunk that an earlier change has dropped may still be on its way out of the
//! stores.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_blocks::format::Cutter;
use eyas_types::ObjectId;
use eyas_types::dfs::{
    Attributes, Chunk, FileId, FileKind, FileName, FileRecord, Format, NamedAttributes,
    RecordFormat, Unsynced,
};

use crate::chunk_sizes::SMALL_CHUNK_BYTES;
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::quota::FolderUsage;
use crate::replicas::unclaimed::UnclaimedChunks;
use crate::source::ContentSource;
use crate::uploads::FileDraft;
use crate::write::Writes;
use crate::write::options::WriteOptions;

/// The new content of a file.
pub trait NewContent: Send + Sync + 'static {
    /// Reads the content of this range. May block.
    fn reader(&self, range: Range<u64>) -> Box<dyn ContentSource>;

    /// The content of this range, if no node has to be asked for it.
    fn read_local(&self, range: Range<u64>) -> Option<Vec<u8>>;
}

/// A change of a file.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// The new content.
    pub content: &'a dyn NewContent,
    /// The new size.
    pub size_bytes: u64,
    /// The ranges that may differ from the present content, in order. Bytes after the present end
    /// need no range.
    pub changed: &'a [Range<u64>],
    /// The time of the last write, nanoseconds since 1970.
    pub modified_ns: u64,
    /// The time of the last change of the content or an attribute, nanoseconds since 1970.
    pub changed_ns: u64,
    /// Whether the changed chunks are on the disks of the nodes before the change is visible.
    /// Otherwise they are soon afterwards; until then, a power failure may bring the version
    /// before back.
    pub is_durable: bool,
    /// Another format for the records, if the whole content is new.
    pub format: Option<RecordFormat>,
}

/// A file that is written with its whole content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Its id.
    pub id: FileId,
    /// Its named attributes.
    pub named: NamedAttributes,
}

impl NewFile {
    /// A file with this id and no named attributes.
    pub fn of(id: FileId) -> Self {
        NewFile { id, named: NamedAttributes::default() }
    }
}

/// Content that is stored and belongs to no file yet. If it never does, the nodes delete its
/// chunks.
#[derive(Debug)]
pub struct UnclaimedContent {
    chunks: Vec<Chunk>,
    format: RecordFormat,
    unclaimed: UnclaimedChunks,
}

impl UnclaimedContent {
    /// The format of its records.
    pub fn format(&self) -> RecordFormat {
        self.format
    }
}

/// Maximum number of tries that are remembered. If there are more, the first ones are forgotten.
const MAX_TRIES: usize = 8;

/// The records that tries to change a file have sent. If an answer is lost, the file may have one
/// of them; otherwise another client would seem to have changed the file.
#[derive(Debug, Default)]
pub struct SentRecords(Mutex<VecDeque<FileRecord>>);

impl SentRecords {
    /// Forgets all.
    pub fn clear(&self) {
        self.records().clear();
    }

    /// Whether no try was made.
    pub fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    /// Whether a try has sent the content of this record.
    pub fn has(&self, record: &FileRecord) -> bool {
        self.records().iter().any(|sent| sent.is_as_written(record))
    }

    fn add(&self, record: FileRecord) {
        let mut records = self.records();
        records.truncate(MAX_TRIES - 1);
        records.push_front(record);
    }

    fn records(&self) -> MutexGuard<'_, VecDeque<FileRecord>> {
        // No change of the list panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of the new file.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// The present chunk with this index.
    Kept(usize),
    /// Bytes that are stored.
    Stored(Range<u64>),
}

impl Writes {
    /// Writes a file, which appears when it is complete, and replaces a file that has the name.
    /// `stored` is the whole content, if it is stored already. With `is_there`, a file that has the
    /// name is expected, which may have the same id, and keeps its named attributes then.
    pub async fn write_with_id(
        &self,
        name: &FileName,
        file: NewFile,
        change: Change<'_>,
        stored: Option<UnclaimedContent>,
        options: WriteOptions,
        is_there: bool,
    ) -> Result<File, FilesError> {
        if !is_there {
            drop(
                self.folders
                    .quotas
                    .charge(name, None, FolderUsage { bytes: change.size_bytes, files: 1 })
                    .await?,
            );
        }
        let WriteOptions { chunk_bytes, replication, creation, .. } = options;
        let Change { modified_ns, changed_ns, .. } = change;
        let attributes = Attributes { modified_ns, changed_ns, ..creation.attributes() };
        let (mut looks, mut stored) =
            (is_there, self.take_stored(stored, change, replication).await?);
        loop {
            let UnclaimedContent { chunks, format, unclaimed } = match stored.take() {
                Some(stored) => stored,
                None => self.store_whole(name, change, options).await?,
            };
            let unsynced = (!change.is_durable).then(Unsynced::default);
            let record = FileRecord::without_content(file.id, FileKind::File, attributes);
            let record = FileRecord {
                named: file.named.clone(),
                format,
                chunk_bytes,
                replication,
                chunks,
                unsynced,
                ..record
            };
            match self.publisher.appear(name, &record, unclaimed, looks, &|| true).await {
                // The name was in use, perhaps by an earlier version of this file, and an answer
                // was lost.
                Err(error) if error.kind == FilesErrorKind::Changed && !looks => looks = true,
                Err(error) => return Err(error),
                Ok(appeared) => return Ok(appeared.expect("it may appear")),
            }
        }
    }

    /// Creates an empty file with this id.
    pub async fn create_empty(
        &self,
        name: &FileName,
        id: FileId,
        options: WriteOptions,
    ) -> Result<File, FilesError> {
        let WriteOptions { format, chunk_bytes, replication, creation, .. } = options;
        let attributes = creation.attributes();
        let attributes = Attributes { changed_ns: attributes.modified_ns, ..attributes };
        let record = FileRecord::without_content(id, FileKind::File, attributes);
        let record = FileRecord { format, chunk_bytes, replication, ..record };
        self.names.create_record(name, record).await
    }

    /// Forces these chunks of a file to the disks of their nodes; the others are there. Returns the
    /// file, which no longer falls back to the version before.
    pub async fn make_durable(
        &self,
        file: &File,
        objects: &BTreeSet<ObjectId>,
    ) -> Result<File, FilesError> {
        let chunks = file.record.chunks.iter().filter(|chunk| objects.contains(&chunk.object));
        self.uploads
            .replicas
            .sync_chunks(file.record.replication, &chunks.collect::<Vec<_>>())
            .await?;
        if file.record.unsynced.is_none() {
            return Ok(file.clone());
        }
        let record = FileRecord { unsynced: None, ..file.record.clone() };
        let none = UnclaimedChunks::new(&self.uploads.replicas);
        match self.publisher.replace(file.clone(), record, none).await {
            // Another client has replaced the content, or removed the file.
            Err(error)
                if matches!(error.kind, FilesErrorKind::Changed | FilesErrorKind::NotFound) =>
            {
                Ok(file.clone())
            }
            settled => settled,
        }
    }

    /// Changes parts of a file. `stored` is the whole content, if it is stored already. If the new
    /// content does not have the format of the file, the file has no records afterwards. Adds the
    /// new record to `sent` before a node gets it.
    pub async fn rewrite(
        &self,
        file: &File,
        change: Change<'_>,
        stored: Option<UnclaimedContent>,
        sent: &SentRecords,
    ) -> Result<File, FilesError> {
        let FileRecord {
            format: present, chunk_bytes, replication, ref chunks, attributes, ..
        } = file.record;
        let format = change.format.unwrap_or(present);
        let more = FolderUsage {
            bytes: change.size_bytes.saturating_sub(file.record.size_bytes()),
            files: 0,
        };
        drop(self.folders.quotas.charge(&file.name, None, more).await?);
        let is_durable = change.is_durable;
        let options = WriteOptions {
            format,
            chunk_bytes,
            replication,
            is_durable,
            ..WriteOptions::of(format)
        };
        let content = match self.take_stored(stored, change, replication).await? {
            Some(stored) => stored,
            None => {
                let sizes: Vec<u64> = chunks.iter().map(|chunk| chunk.size_bytes).collect();
                let parts = match *format == *present {
                    true => parts(&sizes, *format, chunk_bytes, change.size_bytes, change.changed),
                    false => vec![Part::Stored(0..change.size_bytes)],
                };
                match self.store_parts(file, &parts, change, options).await {
                    Err(error) if error.kind == FilesErrorKind::WrongFormat => {
                        self.store_whole(&file.name, change, without_records(options)).await?
                    }
                    stored => stored?,
                }
            }
        };
        let UnclaimedContent { chunks, format, unclaimed } = content;
        if is_durable {
            // Also the chunks that another change has left in the memory of their nodes.
            let kept: BTreeSet<ObjectId> = chunks.iter().map(|chunk| chunk.object).collect();
            let unsynced =
                file.record.unsynced_chunks().filter(|chunk| kept.contains(&chunk.object));
            self.uploads.replicas.sync_chunks(replication, &unsynced.collect::<Vec<_>>()).await?;
        }
        let Change { modified_ns, changed_ns, .. } = change;
        let attributes = Attributes { modified_ns, changed_ns, ..attributes };
        let unsynced = (!is_durable).then(Unsynced::default);
        let record = FileRecord { format, attributes, chunks, unsynced, ..file.record.clone() };
        sent.add(record.clone());
        self.publisher.replace(file.clone(), record, unclaimed).await
    }

    /// Stores the content of a file while it is still being written, to be given to
    /// [`write_with_id`](DfsClient::write_with_id) or [`rewrite`](DfsClient::rewrite). The nodes
    /// begin to write it to their disks. It replaces this number of bytes, which quotas do not
    /// count twice.
    pub async fn store_early(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        replaced_bytes: u64,
    ) -> Result<UnclaimedContent, FilesError> {
        let WriteOptions { format, chunk_bytes, replication, .. } = options;
        let draft = FileDraft::new(&self.uploads.replicas, name, replication)?;
        let mut draft = FileDraft { replaced_bytes, ..draft };
        let cutter = cutter(*format, chunk_bytes, 0);
        let chunks =
            self.uploads.store_unsynced(&mut draft, cutter, source, Vec::new(), 0, |_| {}).await?;
        Ok(UnclaimedContent { chunks, format, unclaimed: draft.unclaimed })
    }

    /// Content that is stored already, if it is all of the new content.
    async fn take_stored(
        &self,
        stored: Option<UnclaimedContent>,
        change: Change<'_>,
        replication: u8,
    ) -> Result<Option<UnclaimedContent>, FilesError> {
        let size_bytes =
            |chunks: &[Chunk]| chunks.iter().map(|chunk| chunk.size_bytes).sum::<u64>();
        let whole = stored.filter(|stored| size_bytes(&stored.chunks) == change.size_bytes);
        if let Some(UnclaimedContent { chunks, .. }) = whole.as_ref().filter(|_| change.is_durable)
        {
            self.uploads
                .replicas
                .sync_chunks(replication, &chunks.iter().collect::<Vec<_>>())
                .await?;
        }
        Ok(whole)
    }

    /// Stores the changed parts. Several of them go to the disks of the nodes together.
    async fn store_parts(
        &self,
        file: &File,
        parts: &[Part],
        change: Change<'_>,
        options: WriteOptions,
    ) -> Result<UnclaimedContent, FilesError> {
        let syncs = options.is_durable
            && parts.iter().filter(|part| matches!(part, Part::Stored(_))).count() > 1;
        let options = WriteOptions { is_durable: options.is_durable && !syncs, ..options };
        let (mut chunks, mut unclaimed) =
            (Vec::with_capacity(parts.len()), UnclaimedChunks::new(&self.uploads.replicas));
        for part in parts {
            match part {
                Part::Kept(index) => chunks.push(file.record.chunks[*index].clone()),
                Part::Stored(range) => {
                    let stored = self
                        .store_part(&file.name, range.clone(), chunks.len(), change, options)
                        .await?;
                    chunks.extend(stored.chunks);
                    unclaimed.join(stored.unclaimed);
                }
            }
        }
        if syncs {
            let kept: BTreeSet<ObjectId> =
                file.record.chunks.iter().map(|chunk| chunk.object).collect();
            let new = chunks.iter().filter(|chunk| !kept.contains(&chunk.object));
            self.uploads
                .replicas
                .sync_chunks(options.replication, &new.collect::<Vec<_>>())
                .await?;
        }
        Ok(UnclaimedContent { chunks, format: options.format, unclaimed })
    }

    /// Stores the whole content, without records if it does not have this format.
    async fn store_whole(
        &self,
        name: &FileName,
        change: Change<'_>,
        options: WriteOptions,
    ) -> Result<UnclaimedContent, FilesError> {
        let all = 0..change.size_bytes;
        match self.store_part(name, all.clone(), 0, change, options).await {
            Err(error)
                if error.kind == FilesErrorKind::WrongFormat
                    && options != without_records(options) =>
            {
                self.store_part(name, all, 0, change, without_records(options)).await
            }
            stored => stored,
        }
    }

    async fn store_part(
        &self,
        name: &FileName,
        range: Range<u64>,
        before: usize,
        change: Change<'_>,
        options: WriteOptions,
    ) -> Result<UnclaimedContent, FilesError> {
        let WriteOptions { format, chunk_bytes, replication, is_durable, .. } = options;
        let draft = FileDraft::new(&self.uploads.replicas, name, replication)?;
        // Quotas were checked for the whole change.
        let mut draft = FileDraft { is_durable, replaced_bytes: u64::MAX, ..draft };
        let cutter = cutter(*format, chunk_bytes, range.start);
        let is_small = range.end - range.start <= SMALL_CHUNK_BYTES as u64;
        let local = if is_small { change.content.read_local(range.clone()) } else { None };
        let chunks = match local {
            _ if range.is_empty() => Vec::new(),
            Some(content) => {
                self.uploads.store_content(&mut draft, cutter, content, before).await?
            }
            None => {
                let source = change.content.reader(range);
                self.uploads
                    .store_all(&mut draft, cutter, source, Vec::new(), before, |_| {})
                    .await?
            }
        };
        Ok(UnclaimedContent { chunks, format, unclaimed: draft.unclaimed })
    }
}

/// A cutter of content that may be changed again, so that a change of one byte stores little anew:
/// also a file that is one record has chunks of this size.
fn cutter(format: Format, chunk_bytes: u64, offset: u64) -> Cutter {
    Cutter::resume(
        if format == Format::Whole { Format::BYTES } else { format },
        chunk_bytes,
        offset,
    )
}

pub(crate) fn without_records(options: WriteOptions) -> WriteOptions {
    WriteOptions { format: options.format.with(options.format.without_records()), ..options }
}

/// The parts of the new file, in order. Chunks of a file without records are stored again one by
/// one; in other files, records may have moved, and all chunks from the first changed one on are
/// stored again.
fn parts(
    sizes: &[u64],
    format: Format,
    chunk_bytes: u64,
    size_bytes: u64,
    changed: &[Range<u64>],
) -> Vec<Part> {
    let has_records = !format.accepts_any_chunks();
    let present_bytes: u64 = sizes.iter().sum();
    let (mut parts, mut start, mut changed) = (Vec::new(), 0, changed.iter().peekable());
    let mut is_moved = false;
    let store = |parts: &mut Vec<Part>, range: Range<u64>| match parts.last_mut() {
        Some(Part::Stored(before)) if before.end == range.start => before.end = range.end,
        _ => parts.push(Part::Stored(range)),
    };
    for (index, size) in sizes.iter().enumerate() {
        let end = start + size;
        while changed.next_if(|range| range.end <= start).is_some() {}
        let has_changes = changed.peek().is_some_and(|range| range.start < end);
        let is_last = index + 1 == sizes.len();
        // The last record or chunk may continue.
        let grows =
            is_last && size_bytes > present_bytes && (has_records || end % chunk_bytes != 0);
        is_moved |= has_changes || grows || end > size_bytes;
        match is_moved {
            false => parts.push(Part::Kept(index)),
            true if start < size_bytes => store(&mut parts, start..end.min(size_bytes)),
            true => {}
        }
        is_moved &= has_records;
        start = end;
    }
    if start < size_bytes {
        store(&mut parts, start..size_bytes);
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    const BYTES: Format = Format::Fixed { record_bytes: 1 };

    fn kept(range: Range<usize>) -> Vec<Part> {
        range.map(Part::Kept).collect()
    }

    #[test]
    fn only_changed_chunks_of_files_without_records_are_stored() {
        let sizes = [10, 10, 10, 5];
        let parts =
            |size_bytes, changed: &[Range<u64>]| parts(&sizes, BYTES, 10, size_bytes, changed);
        assert_eq!(parts(35, &[]), kept(0..4));
        assert_eq!(
            parts(35, slice::from_ref(&(12..13))),
            [kept(0..1), vec![Part::Stored(10..20)], kept(2..4)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        );
        assert_eq!(
            parts(35, &[0..1, 19..21]),
            [vec![Part::Stored(0..30)], kept(3..4)].into_iter().flatten().collect::<Vec<_>>()
        );
        // It is longer: the last chunk continues. It is shorter: the chunk of the new end is cut.
        assert_eq!(
            parts(47, &[]),
            [kept(0..3), vec![Part::Stored(30..47)]].into_iter().flatten().collect::<Vec<_>>()
        );
        assert_eq!(parts(30, &[]), kept(0..3));
        assert_eq!(
            parts(12, &[]),
            [kept(0..1), vec![Part::Stored(10..12)]].into_iter().flatten().collect::<Vec<_>>()
        );
        assert_eq!(parts(0, &[]), []);
        assert_eq!(
            super::parts(&[10, 10], BYTES, 10, 25, slice::from_ref(&(20..25))),
            [Part::Kept(0), Part::Kept(1), Part::Stored(20..25)]
        );
        assert_eq!(super::parts(&[], BYTES, 10, 25, &[]), [Part::Stored(0..25)]);
    }

    #[test]
    fn files_with_records_are_stored_from_the_first_changed_chunk_on() {
        let sizes = [11, 10, 9, 5];
        let parts = |size_bytes, changed: &[Range<u64>]| {
            parts(&sizes, Format::Lines, 10, size_bytes, changed)
        };
        assert_eq!(parts(35, slice::from_ref(&(12..13))), [Part::Kept(0), Part::Stored(11..35)]);
        assert_eq!(
            parts(36, &[]),
            [Part::Kept(0), Part::Kept(1), Part::Kept(2), Part::Stored(30..36)]
        );
        assert_eq!(parts(21, &[]), [Part::Kept(0), Part::Kept(1)]);
        assert_eq!(parts(15, &[]), [Part::Kept(0), Part::Stored(11..15)]);
    }
}
