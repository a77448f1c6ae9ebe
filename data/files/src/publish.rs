//! Files that are stored first and appear later, in place of the file that has their name.

use std::time::{Duration, Instant};

use eyas_blocks::format::Cutter;
use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::dfs::{Chunk, FileId, FileKind, FileName, FileRecord, Unsynced};

use crate::error::{FilesError, FilesErrorKind};
use crate::source::ContentSource;
use crate::write::{FileDraft, random};
use crate::{DfsClient, File, FolderUsage, PAUSE, WriteOptions, unexpected};

/// Content that was stored longer ago is renewed before its file appears: nodes delete chunks that belong to no file
/// after a day.
pub(super) const RENEW_AFTER: Duration = Duration::from_secs(8 * 3600);

/// The stored content of a file that has not appeared. If it never does, its chunks are deleted after a day.
pub struct HiddenFile {
    files: DfsClient,
    name: FileName,
    record: FileRecord,
    makes_parents: bool,
    stored: Instant,
}

impl DfsClient {
    /// Stores the content of a file that appears when it is [published](HiddenFile::publish). With
    /// [`is_durable`](WriteOptions::is_durable), the content is on the disks of the nodes when this returns. Calls
    /// `see` with the number of bytes that are stored.
    ///
    /// # Errors
    /// `WrongFormat` if the content does not have this format; `Invalid` if it is too large; `Full`, `Unreachable`;
    /// `Local` if the source fails.
    pub async fn store_hidden(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        see: impl FnMut(u64),
    ) -> Result<HiddenFile, FilesError> {
        let WriteOptions { format, chunk_bytes, replication, is_durable, .. } = options;
        let replaced_bytes = match self.lookup(name).await {
            Ok(present) => present.record.size_bytes(),
            Err(error) if error.kind == FilesErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let draft = FileDraft { name, id: FileId(random()?), replication, is_durable, replaced_bytes };
        let cutter = Cutter::storing(*format, chunk_bytes, 0);
        let chunks = self.store_all(&draft, cutter, source, Vec::new(), 0, see).await?;
        Ok(HiddenFile::of(self, &draft, options, chunks))
    }
}

impl HiddenFile {
    /// A file whose chunks are stored.
    pub(super) fn of(files: &DfsClient, draft: &FileDraft<'_>, options: WriteOptions, chunks: Vec<Chunk>) -> Self {
        let WriteOptions { format, chunk_bytes, replication, creation, .. } = options;
        let unsynced = (!options.is_durable).then(Unsynced::default);
        let record = FileRecord::without_content(draft.id, FileKind::File, creation.attributes());
        let record = FileRecord { format, chunk_bytes, replication, chunks, unsynced, ..record };
        HiddenFile {
            files: files.clone(),
            name: draft.name.clone(),
            record,
            makes_parents: creation.makes_parents,
            stored: Instant::now(),
        }
    }

    /// Makes the file appear.
    ///
    /// # Errors
    /// `Exists` if there is a file of this name; `Unreachable`.
    pub(super) async fn create(self) -> Result<File, FilesError> {
        let HiddenFile { files, name, record, makes_parents, .. } = self;
        if makes_parents {
            files.make_parents(&name).await?;
        }
        let objects = record.chunks.iter().map(|chunk| chunk.object).collect();
        let created = files.create_within_quota(&name, record).await;
        if created.as_ref().is_err_and(|error| matches!(error.kind, FilesErrorKind::Exists | FilesErrorKind::Quota)) {
            files.discard(objects).await;
        }
        created
    }

    /// Makes the file appear. A file that has the name is replaced: readers find one of the two at any time. Of clients
    /// that publish under one name at the same time, the last one wins. `may_appear` is called just before each try;
    /// the result is `None` if it is false.
    ///
    /// # Errors
    /// `Changed` if an answer was lost and another client has changed the name since: the file may have appeared and
    /// may have been replaced, so its chunks may be deleted. `Unreachable` also if the content was stored more than a
    /// day ago and was deleted. `IsFolder`, `NotFolder`, `Quota`, `Unreachable`.
    pub async fn publish(&self, may_appear: &(dyn Fn() -> bool + Sync)) -> Result<Option<File>, FilesError> {
        let HiddenFile { files, name, record, makes_parents, stored } = self;
        if stored.elapsed() > RENEW_AFTER {
            files.sync_all(&record.chunks, record.replication).await?;
        }
        if *makes_parents {
            files.make_parents(name).await?;
        }
        files.appear(name, record, true, may_appear).await
    }
}

impl DfsClient {
    /// Writes a record whose chunks are stored, in place of the file that has the name. Without `looks`, the name is
    /// expected to be free, and only looked at if it is not. `may_appear` is called just before each try; the result is
    /// `None` if it is false.
    ///
    /// # Errors
    /// As [`publish`](HiddenFile::publish).
    pub(super) async fn appear(
        &self,
        name: &FileName,
        record: &FileRecord,
        mut looks: bool,
        may_appear: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<File>, FilesError> {
        let (deadline, mut pause) = (self.deadline(), PAUSE);
        let mut tries = Tries { record, is_unsure: false, over: None };
        loop {
            let present = match looks {
                false => None,
                true => match self.lookup(name).await {
                    Ok(present) if present.record.kind.is_folder() => return Err(FilesError::is_folder(name)),
                    Ok(present) => Some(present),
                    Err(error) if error.kind == FilesErrorKind::NotFound => None,
                    Err(error) => return Err(error),
                },
            };
            let before = present.as_ref().map(|present| &present.record);
            match tries.outcome(before) {
                Some(true) => return Ok(present),
                Some(false) => return Err(FilesError::changed(name)),
                None => {}
            }
            let charge = self.charge(name, None, FolderUsage::added(before, record)).await?;
            if !may_appear() {
                return Ok(None);
            }
            tries.over = looks.then(|| before.cloned());
            looks = true;
            let (name, record) = (name.clone(), record.clone());
            let is_new = present.is_none();
            let operation = match present {
                Some(present) => {
                    FileOperation::Replace { name: name.clone(), version: present.version, record: record.clone() }
                }
                None => FileOperation::Create { name: name.clone(), record: record.clone() },
            };
            match self.operate_once(operation, &mut tries.is_unsure).await {
                Ok(FileAnswer::Done { version }) => {
                    charge.keep();
                    return Ok(Some(File { name, record, version }));
                }
                Ok(_) => return Err(unexpected()),
                // A file of this id was removed since.
                Err(error) if error.kind == FilesErrorKind::Changed && is_new => return Err(error),
                // Another client was faster.
                Err(FilesError {
                    kind: FilesErrorKind::Exists | FilesErrorKind::Changed | FilesErrorKind::NotFound,
                    ..
                }) if Instant::now() < deadline => self.pause(&mut pause).await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The tries to write a record under a name.
struct Tries<'a> {
    record: &'a FileRecord,
    /// Whether an answer was lost: a try may have been done, although the leader refused it later.
    is_unsure: bool,
    /// The record that the name had before the last try; `None` if nobody looked.
    over: Option<Option<FileRecord>>,
}

impl Tries<'_> {
    /// Whether a try was done, now that the name has this record; `None` if another try is right. It is not if a try
    /// may have been done and another client has changed the name since: the chunks of the record may be deleted.
    fn outcome(&self, present: Option<&FileRecord>) -> Option<bool> {
        // The replicas change with repairs.
        let is_same =
            |one: &FileRecord, other: &FileRecord| one.is_as_written(other) && one.attributes == other.attributes;
        let is_unchanged = match (&self.over, present) {
            (Some(Some(over)), Some(present)) => is_same(over, present),
            (Some(None) | None, None) => true,
            _ => false,
        };
        match present {
            _ if !self.is_unsure => None,
            Some(present) if is_same(present, self.record) => Some(true),
            _ if is_unchanged => None,
            _ => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::ObjectId;
    use eyas_types::dfs::{Attributes, FileId, NodeId};

    use super::*;

    #[test]
    fn a_lost_answer_and_another_client_end_the_tries() {
        let record = |object: u8, replicas: &[u64]| {
            let (object, replicas) = (ObjectId([object; 16]), replicas.iter().copied().map(NodeId).collect());
            let chunks = vec![Chunk { object, size_bytes: 1, checksum: 0, replicas }];
            FileRecord { chunks, ..FileRecord::without_content(FileId(1), FileKind::File, Attributes::default()) }
        };
        let own = record(1, &[1, 2]);
        let outcome = |is_unsure, over: Option<Option<&FileRecord>>, present: Option<&FileRecord>| {
            Tries { record: &own, is_unsure, over: over.map(|over| over.cloned()) }.outcome(present)
        };
        let (before, repaired, other) = (record(2, &[1]), record(2, &[1, 3]), record(3, &[1]));
        assert_eq!(outcome(false, None, Some(&other)), None, "all tries were refused");
        assert_eq!(outcome(true, Some(Some(&before)), Some(&record(1, &[2, 3]))), Some(true), "and was repaired");
        assert_eq!(outcome(true, Some(Some(&before)), Some(&repaired)), None);
        assert_eq!(outcome(true, Some(Some(&before)), Some(&other)), Some(false));
        assert_eq!(outcome(true, Some(Some(&before)), None), Some(false));
        assert_eq!((outcome(true, Some(None), None), outcome(true, None, None)), (None, None));
        assert_eq!(
            (outcome(true, Some(None), Some(&other)), outcome(true, None, Some(&other))),
            (Some(false), Some(false))
        );
        let touched = FileRecord { attributes: Attributes { mode: 1, ..own.attributes }, ..own.clone() };
        assert_eq!(outcome(true, Some(Some(&touched)), Some(&touched)), None, "the try only changes attributes");
    }
}
