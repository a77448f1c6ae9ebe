//! Files that are stored first and appear later, in place of the file that has their name.

use std::io::Read;
use std::time::{Duration, Instant};

use eyas_blocks::format::Cutter;
use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::dfs::{Chunk, FileId, FileKind, FileName, FileRecord};

use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::write::{FileDraft, random};
use crate::client::{DfsClient, File, FolderUsage, PAUSE, WriteOptions, unexpected};

/// Content that was stored longer ago is renewed before its file appears: nodes delete chunks that belong to no file
/// after a day.
const RENEW_AFTER: Duration = Duration::from_secs(8 * 3600);

/// The stored content of a file that has not appeared. If it never does, its chunks are deleted after a day.
pub struct HiddenFile {
    files: DfsClient,
    name: FileName,
    record: FileRecord,
    makes_parents: bool,
    stored: Instant,
}

impl DfsClient {
    /// Stores the content of a file that appears when it is [published](HiddenFile::publish). If the options ask for
    /// it, the content is on the disks of the nodes before that. Calls `see` with the number of bytes stored so far.
    ///
    /// # Errors
    /// `Invalid` if the content does not have this format, or is too large; `Full`, `Unreachable`; `Local` if the
    /// source fails.
    pub async fn store_hidden(
        &self,
        name: &FileName,
        source: impl Read + Send + 'static,
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
        let cutter = Cutter::new(format, chunk_bytes);
        let chunks = self.store_all(&draft, cutter, source, Vec::new(), 0, see).await?;
        Ok(HiddenFile::of(self, &draft, options, chunks))
    }
}

impl HiddenFile {
    /// A file whose chunks are stored.
    pub(super) fn of(files: &DfsClient, draft: &FileDraft<'_>, options: WriteOptions, chunks: Vec<Chunk>) -> Self {
        let WriteOptions { format, chunk_bytes, replication, creation, .. } = options;
        let (id, kind, attributes, quota) = (draft.id, FileKind::File, creation.attributes(), None);
        let record = FileRecord { id, kind, attributes, quota, format, chunk_bytes, replication, chunks };
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
        files.create_within_quota(&name, record).await
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
        let (name, record) = (&self.name, &self.record);
        let (deadline, mut pause) = (self.files.deadline(), PAUSE);
        if self.stored.elapsed() > RENEW_AFTER {
            self.files.sync_all(&record.chunks, record.replication).await?;
        }
        if self.makes_parents {
            self.files.make_parents(name).await?;
        }
        let (mut is_unsure, mut tried_over) = (false, None);
        loop {
            let present = match self.files.lookup(name).await {
                Ok(present) if present.record.kind.is_folder() => return Err(FilesError::is_folder(name)),
                // An earlier try was done, and its answer was lost.
                Ok(present) if present.record.id == record.id => return Ok(Some(present)),
                Ok(present) => Some(present),
                Err(error) if error.kind == FilesErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let over = present.as_ref().map(|present| present.record.id);
            if is_unsure && tried_over != Some(over) {
                return Err(FilesError::changed(name));
            }
            tried_over = Some(over);
            let added = FolderUsage::added(present.as_ref().map(|present| &present.record), record);
            self.files.charge(name, None, added, true).await?;
            if !may_appear() {
                return Ok(None);
            }
            let (name, record) = (name.clone(), record.clone());
            let operation = match present {
                Some(present) => FileOperation::Replace { name, version: present.version, record },
                None => FileOperation::Create { name, record },
            };
            match self.files.operate_once(operation, &mut is_unsure).await {
                Ok(FileAnswer::Done { version }) => {
                    return Ok(Some(File { name: self.name.clone(), record: self.record.clone(), version }));
                }
                Ok(_) => return Err(unexpected()),
                // Another client was faster.
                Err(FilesError {
                    kind: FilesErrorKind::Exists | FilesErrorKind::Changed | FilesErrorKind::NotFound,
                    ..
                }) if Instant::now() < deadline => self.files.pause(&mut pause).await,
                Err(error) => return Err(error),
            }
        }
    }
}
