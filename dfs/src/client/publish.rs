//! Files that are stored first and appear later, in place of the file that has their name.

use std::io::Read;

use eyas_blocks::format::Cutter;
use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::dfs::{FileId, FileName, FileRecord};

use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::write::{FileDraft, now_us, random};
use crate::client::{DfsClient, File, WriteOptions, unexpected};

/// The stored content of a file that has not appeared. If it never does, its chunks are deleted after a day.
pub struct HiddenFile {
    files: DfsClient,
    name: FileName,
    record: FileRecord,
}

impl DfsClient {
    /// Stores the content of a file that appears when it is [published](HiddenFile::publish). If the options ask for
    /// it, the content is on the disks of the nodes before that.
    ///
    /// # Errors
    /// `Invalid` if the content does not have this format, or is too large; `Full`, `Unreachable`; `Local` if the
    /// source fails.
    pub async fn store_hidden(
        &self,
        name: &FileName,
        source: impl Read + Send + 'static,
        options: WriteOptions,
    ) -> Result<HiddenFile, FilesError> {
        let WriteOptions { format, chunk_bytes, replication, is_durable } = options;
        let draft = FileDraft { name, id: FileId(random()?), replication, is_durable };
        let cutter = Cutter::new(format, chunk_bytes);
        let chunks = self.store_all(&draft, cutter, source, Vec::new(), 0, |_| {}).await?;
        let record = FileRecord { id: draft.id, format, chunk_bytes, replication, modified_us: now_us(), chunks };
        Ok(HiddenFile { files: self.clone(), name: name.clone(), record })
    }
}

impl HiddenFile {
    /// Makes the file appear. A file that has the name is replaced: readers find one of the two at any time. Of clients
    /// that publish under one name at the same time, the last one wins.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn publish(&self) -> Result<File, FilesError> {
        let (name, record) = (&self.name, &self.record);
        loop {
            let operation = match self.files.stat(name).await {
                Ok(present) => {
                    FileOperation::Replace { name: name.clone(), version: present.version, record: record.clone() }
                }
                Err(error) if error.kind == FilesErrorKind::NotFound => {
                    FileOperation::Create { name: name.clone(), record: record.clone() }
                }
                Err(error) => return Err(error),
            };
            match self.files.operate(operation).await {
                Ok(FileAnswer::Done { version }) => {
                    return Ok(File { name: name.clone(), record: record.clone(), version });
                }
                Ok(_) => return Err(unexpected()),
                // Another client was faster.
                Err(FilesError {
                    kind: FilesErrorKind::Exists | FilesErrorKind::Changed | FilesErrorKind::NotFound,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
