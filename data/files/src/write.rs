//! Writing: when all chunks of a file are stored, the file appears as a whole.

mod format;
pub(crate) mod options;
pub(crate) mod rewrite;

use std::sync::Arc;

use eyas_blocks::format::Cutter;
use eyas_types::dfs::{Attributes, FileName, FileRecord};

use crate::entries::now_ns;
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::folders::Folders;
use crate::names::Names;
use crate::publish::{HiddenFile, Publisher};
use crate::read::ChunkReader;
use crate::source::ContentSource;
use crate::uploads::{FileDraft, Uploads};
use crate::write::options::WriteOptions;

/// Writes files, and changes their content.
pub(crate) struct Writes {
    names: Arc<Names>,
    folders: Arc<Folders>,
    chunks: Arc<ChunkReader>,
    uploads: Uploads,
    publisher: Arc<Publisher>,
}

impl Writes {
    pub fn new(
        names: Arc<Names>,
        folders: Arc<Folders>,
        chunks: Arc<ChunkReader>,
        uploads: Uploads,
        publisher: Arc<Publisher>,
    ) -> Self {
        Writes { names, folders, chunks, uploads, publisher }
    }

    /// Writes a new file, which appears when it is complete. Calls `see` with the number of bytes
    /// stored so far.
    pub async fn write(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        self.folders.prepare_name(name, options.creation).await?;
        self.store_hidden(name, source, options, see).await?.create().await
    }

    /// Writes a new file whose content is in memory. Many such files can be written at the same
    /// time; their chunks and names go to the nodes in groups.
    pub async fn write_content(
        &self,
        name: &FileName,
        content: Vec<u8>,
        options: WriteOptions,
    ) -> Result<File, FilesError> {
        self.folders.prepare_name(name, options.creation).await?;
        let WriteOptions { format, chunk_bytes, replication, is_durable, .. } = options;
        let draft = FileDraft::new(&self.uploads.replicas, name, replication)?;
        let mut draft = FileDraft { is_durable, ..draft };
        let cutter = Cutter::storing(*format, chunk_bytes, 0);
        let chunks = self.uploads.store_content(&mut draft, cutter, content, 0).await?;
        HiddenFile::of(&self.publisher, draft, options, chunks).create().await
    }

    /// Stores the content of a file that appears when it is [published](HiddenFile::publish). With
    /// [`is_durable`](WriteOptions::is_durable), the content is on the disks of the nodes when this
    /// returns. Calls `see` with the number of bytes that are stored.
    pub async fn store_hidden(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        see: impl FnMut(u64),
    ) -> Result<HiddenFile, FilesError> {
        let WriteOptions { format, chunk_bytes, replication, is_durable, .. } = options;
        let replaced_bytes = match self.names.lookup(name).await {
            Ok(present) => present.record.size_bytes(),
            Err(error) if error.kind == FilesErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let draft = FileDraft::new(&self.uploads.replicas, name, replication)?;
        let mut draft = FileDraft { is_durable, replaced_bytes, ..draft };
        let cutter = Cutter::storing(*format, chunk_bytes, 0);
        let chunks = self.uploads.store_all(&mut draft, cutter, source, Vec::new(), 0, see).await?;
        Ok(HiddenFile::of(&self.publisher, draft, options, chunks))
    }

    /// Appends to a file, completely or not at all. Calls `see` with the number of bytes stored so
    /// far.
    pub async fn append(
        &self,
        name: &FileName,
        source: impl ContentSource,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        let file = self.names.stat(name).await?;
        let FileRecord { format, chunk_bytes, replication, .. } = file.record;
        // What is appended must not be lost with chunks that another client has not forced to the
        // disks.
        self.uploads
            .replicas
            .sync_chunks(replication, &file.record.unsynced_chunks().collect::<Vec<_>>())
            .await?;
        let mut kept = file.record.chunks.clone();
        // The last record may be incomplete and continue.
        let last = match kept.pop() {
            Some(_) => self.chunks.chunk(&file, kept.len()).await?,
            None => Vec::new(),
        };
        let offset = kept.iter().map(|chunk| chunk.size_bytes).sum();
        let cutter = Cutter::storing(*format, chunk_bytes, offset);
        let draft = FileDraft::new(&self.uploads.replicas, name, replication)?;
        let mut draft = FileDraft { replaced_bytes: last.len() as u64, ..draft };
        kept.extend(
            self.uploads.store_all(&mut draft, cutter, source, last, kept.len(), see).await?,
        );
        let now_ns = now_ns();
        let attributes =
            Attributes { modified_ns: now_ns, changed_ns: now_ns, ..file.record.attributes };
        let record = FileRecord { attributes, chunks: kept, unsynced: None, ..file.record.clone() };
        self.publisher.replace(file, record, draft.unclaimed).await
    }
}
