//! Writing: content is cut at record boundaries, each chunk is sent to its replicas in a chain, and when all chunks
//! are stored, the file appears as a whole.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eyas_blocks::format::{Cutter, WHOLE_CHUNK_BYTES};
use eyas_ring::{FileAnswer, FileOperation};
use eyas_store::{Checksum, is_zeros};
use eyas_types::ObjectId;
use eyas_types::dfs::{
    Attributes, Chunk, DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION, FileId, FileName, FileRecord, Format, MAX_CHUNKS,
    RecordFormat,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{FilesError, FilesErrorKind};
use crate::protocol::RequestBody;
use crate::publish::HiddenFile;
use crate::replicas::OutgoingChunk;
use crate::source::ContentSource;
use crate::source_chunks::{SourceChunk, SourceChunks};
use crate::{Creation, DfsClient, File, FolderUsage, unexpected};

/// Number of chunks that are being stored at the same time.
const CHUNKS_TOGETHER: usize = 4;

/// A chunk of up to this size is sent within a request, together with other chunks. A larger one has a transfer of its
/// own, and goes from node to node in a chain.
pub const SMALL_CHUNK_BYTES: usize = 64 << 10;

/// Maximum size of a record, and so of a chunk, since writers and readers hold a chunk in memory.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;

/// Maximum size of a chunk of a format. Longer blocks of compressed files are not worth the memory: such a file is one
/// record, which is stored in smaller chunks.
pub(crate) fn max_chunk_bytes(format: Format) -> usize {
    if format.is_compressed() { WHOLE_CHUNK_BYTES as usize } else { MAX_CHUNK_BYTES }
}

/// Maximum time of writing a file. Chunks that belong to no file are deleted after a day.
pub(super) const MAX_WRITING: Duration = Duration::from_secs(12 * 3600);

/// Number of bytes read from the source at a time.
const READ_BYTES: usize = 1 << 20;

/// Options of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The format of its records.
    pub format: RecordFormat,
    /// Target size of its chunks, bytes.
    pub chunk_bytes: u64,
    /// Number of replicas of each chunk, or the number of nodes if that is smaller.
    pub replication: u8,
    /// Whether the file appears only when its content is on the disks of the nodes. Otherwise it is there soon
    /// afterwards; until then, a power failure may take the file, or bring the version before back.
    pub is_durable: bool,
    /// Owner, permissions and time of the file.
    pub creation: Creation,
}

impl WriteOptions {
    /// The default options for this format. The file belongs to the user of this process.
    pub fn of(format: impl Into<RecordFormat>) -> Self {
        let format = format.into();
        let (chunk_bytes, replication) = (DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION);
        WriteOptions { format, chunk_bytes, replication, is_durable: true, creation: Creation::of_process(0o666) }
    }
}

/// A file that is being written.
pub(super) struct FileDraft<'a> {
    pub name: &'a FileName,
    pub id: FileId,
    pub replication: u8,
    pub is_durable: bool,
    /// Bytes that the content replaces, which quotas do not count twice.
    pub replaced_bytes: u64,
}

/// Chunks that are being stored, with their places in the file.
type Storing = JoinSet<(usize, Result<Chunk, FilesError>)>;

impl DfsClient {
    /// Writes a new file, which appears when it is complete. Calls `see` with the number of bytes stored so far.
    ///
    /// # Errors
    /// `Exists`; `WrongFormat` if the content does not have this format; `Invalid` if it is too large; `Full`,
    /// `Unreachable`; `Local` if the source fails. No file appears then.
    pub async fn write(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        self.prepare_name(name, options.creation).await?;
        self.store_hidden(name, source, options, see).await?.create().await
    }

    /// Writes a new file whose content is in memory. Many such files can be written at the same time; their chunks and
    /// names go to the nodes in groups.
    ///
    /// # Errors
    /// As [`write`](DfsClient::write).
    pub async fn write_content(
        &self,
        name: &FileName,
        content: Vec<u8>,
        options: WriteOptions,
    ) -> Result<File, FilesError> {
        self.prepare_name(name, options.creation).await?;
        let WriteOptions { format, chunk_bytes, replication, is_durable, .. } = options;
        let draft = FileDraft { name, id: FileId(random()?), replication, is_durable, replaced_bytes: 0 };
        let chunks = self.store_content(&draft, Cutter::storing(*format, chunk_bytes, 0), content, 0).await?;
        HiddenFile::of(self, &draft, options, chunks).create().await
    }

    /// Stores content that is in memory. The file has `before` chunks already.
    pub(super) async fn store_content(
        &self,
        draft: &FileDraft<'_>,
        cutter: Cutter,
        content: Vec<u8>,
        before: usize,
    ) -> Result<Vec<Chunk>, FilesError> {
        let FileDraft { name, id, replication, is_durable, .. } = *draft;
        self.gather(replication.into(), |_| {}).await?;
        let mut pieces = Vec::new();
        for piece in SourceChunks::new(cutter, std::io::empty(), content, 1) {
            pieces.extend(if let SourceChunk::Content(content) = piece? { Some(content) } else { None });
        }
        if before + pieces.len() > MAX_CHUNKS {
            return Err(too_many_chunks(name));
        }
        let mut chunks = Vec::with_capacity(pieces.len());
        let mut objects = Vec::with_capacity(pieces.len());
        for piece in pieces {
            objects.push(Chunk::object_of(id, piece.len() as u64, Checksum::of(&piece).0));
            match self.store(id, piece, replication, is_durable).await {
                Ok(chunk) => chunks.push(chunk),
                Err(error) => {
                    self.discard(objects).await;
                    return Err(error);
                }
            }
        }
        self.sync(draft, &chunks).await?;
        Ok(chunks)
    }

    /// Checks that a name is free, and makes the folders above it if that is wanted.
    pub(super) async fn prepare_name(&self, name: &FileName, creation: Creation) -> Result<(), FilesError> {
        match self.lookup(name).await {
            Ok(there) => return Err(FilesError::exists(name, there.record.kind.is_folder())),
            Err(error) if error.kind == FilesErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if creation.makes_parents { self.make_parents(name).await } else { Ok(()) }
    }

    /// Appends to a file, completely or not at all. Calls `see` with the number of bytes stored so far.
    ///
    /// # Errors
    /// As [`write`](DfsClient::write); `NotFound`; `Changed` if another client changes the file at the same time.
    /// Nothing is appended then.
    pub async fn append(
        &self,
        name: &FileName,
        source: impl ContentSource,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        let file = self.stat(name).await?;
        let FileRecord { id, format, chunk_bytes, replication, .. } = file.record;
        // What is appended must not be lost with chunks that another client has not forced to the disks.
        self.sync_chunks(replication, &file.record.unsynced_chunks().collect::<Vec<_>>()).await?;
        let mut kept = file.record.chunks.clone();
        // The last record may be incomplete and continue.
        let last = match kept.pop() {
            Some(_) => self.chunk(&file, kept.len()).await?,
            None => Vec::new(),
        };
        let offset = kept.iter().map(|chunk| chunk.size_bytes).sum();
        let cutter = Cutter::storing(*format, chunk_bytes, offset);
        let draft = FileDraft { name, id, replication, is_durable: true, replaced_bytes: last.len() as u64 };
        let more = self.store_all(&draft, cutter, source, last, kept.len(), see).await?;
        kept.extend(more);
        let now_ns = now_ns();
        let attributes = Attributes { modified_ns: now_ns, changed_ns: now_ns, ..file.record.attributes };
        let record = FileRecord { attributes, chunks: kept, unsynced: None, ..file.record.clone() };
        self.replace(file, record).await
    }

    /// Replaces the content of a file. Repeats this if only the replicas, by repair, or the attributes were changed in
    /// the meantime.
    pub(super) async fn replace(&self, file: File, record: FileRecord) -> Result<File, FilesError> {
        self.replace_once(file, record, &mut false).await
    }

    /// The same. Sets `is_unsure` if an answer was lost: the content may have been replaced although this fails.
    pub(super) async fn replace_once(
        &self,
        mut file: File,
        mut record: FileRecord,
        is_unsure: &mut bool,
    ) -> Result<File, FilesError> {
        let charge = self.charge(&file.name, None, FolderUsage::added(Some(&file.record), &record)).await?;
        loop {
            let (name, version) = (file.name.clone(), file.version);
            let replace = FileOperation::Replace { name, version, record: record.clone() };
            let changed = match self.operate_once(replace, is_unsure).await {
                Ok(FileAnswer::Done { version }) => {
                    charge.keep();
                    return Ok(File { record, version, ..file });
                }
                Ok(_) => return Err(unexpected()),
                Err(error) if error.kind == FilesErrorKind::Changed => error,
                Err(error) => return Err(error),
            };
            let now = self.stat(&file.name).await?;
            let is_synced = record.unsynced.is_some() || now.record.unsynced.is_none();
            if now.record.is_as_written(&record) && is_synced {
                // The operation was done, and its answer was lost.
                return Ok(now);
            }
            if !now.record.is_as_written(&file.record) {
                return Err(changed);
            }
            let Attributes { modified_ns, changed_ns, .. } = record.attributes;
            record.attributes = Attributes { modified_ns, changed_ns, ..now.record.attributes };
            let repaired: HashMap<_, _> =
                now.record.chunks.iter().map(|chunk| (chunk.object, &chunk.replicas)).collect();
            for chunk in &mut record.chunks {
                if let Some(replicas) = repaired.get(&chunk.object) {
                    chunk.replicas.clone_from(replicas);
                }
            }
            file = now;
        }
    }

    /// Stores the rest of the source after `begun`, the content of an incomplete chunk. The file has `before` chunks
    /// already.
    pub(super) async fn store_all(
        &self,
        draft: &FileDraft<'_>,
        cutter: Cutter,
        source: impl ContentSource,
        begun: Vec<u8>,
        before: usize,
        see: impl FnMut(u64),
    ) -> Result<Vec<Chunk>, FilesError> {
        let chunks = self.store_unsynced(draft, cutter, source, begun, before, see).await?;
        self.sync(draft, &chunks).await?;
        Ok(chunks)
    }

    /// The same, but the large chunks may not be on the disks of their nodes yet.
    pub(super) async fn store_unsynced(
        &self,
        draft: &FileDraft<'_>,
        cutter: Cutter,
        source: impl ContentSource,
        begun: Vec<u8>,
        before: usize,
        see: impl FnMut(u64),
    ) -> Result<Vec<Chunk>, FilesError> {
        let mut under_way = JoinSet::new();
        let mut objects = Vec::new();
        let stored = self.store_pieces(draft, cutter, source, begun, (before, &mut objects, &mut under_way), see).await;
        if stored.is_err() {
            // Chunks that are still on their way would come after they were discarded.
            while under_way.join_next().await.is_some() {}
            self.discard(objects).await;
        }
        stored
    }

    /// Deletes chunks that this client has stored, as their file will not appear. Where a node does not answer, they
    /// are deleted after a day.
    pub(super) async fn discard(&self, objects: Vec<ObjectId>) {
        if objects.is_empty() {
            return;
        }
        let mut telling = JoinSet::new();
        for member in self.known().members.values().copied() {
            let (files, objects) = (self.clone(), objects.clone());
            telling
                .spawn(async move { files.0.calls.ask_once(member.address, RequestBody::Discard { objects }).await });
        }
        while let Some(told) = telling.join_next().await {
            if let Ok(Err(error)) = told {
                tracing::debug!("chunks of a file that was not written stay for a day: {error}");
            }
        }
    }

    /// Stores the pieces of a source. Notes their objects, and which are under way.
    async fn store_pieces(
        &self,
        draft: &FileDraft<'_>,
        cutter: Cutter,
        source: impl ContentSource,
        begun: Vec<u8>,
        (before, objects, under_way): (usize, &mut Vec<ObjectId>, &mut Storing),
        mut see: impl FnMut(u64),
    ) -> Result<Vec<Chunk>, FilesError> {
        let began = Instant::now();
        let FileDraft { name, id, replication, is_durable, replaced_bytes } = *draft;
        self.gather(replication.into(), |_| {}).await?;
        let (sender, mut pieces) = mpsc::channel(1);
        tokio::task::spawn_blocking(move || {
            // If the receiver is gone, it has failed.
            SourceChunks::new(cutter, source, begun, READ_BYTES).all(|piece| sender.blocking_send(piece).is_ok())
        });
        let mut chunks = Vec::<Option<Chunk>>::new();
        let mut stored_bytes = 0;
        loop {
            let is_full = under_way.len() >= CHUNKS_TOGETHER;
            tokio::select! {
                Some(stored) = under_way.join_next() => {
                    let (place, chunk): (usize, Result<Chunk, FilesError>) =
                        stored.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                    let chunk = chunk?;
                    stored_bytes += chunk.size_bytes;
                    see(stored_bytes);
                    chunks[place] = Some(chunk);
                    let more = FolderUsage { bytes: stored_bytes.saturating_sub(replaced_bytes), files: 0 };
                    drop(self.charge(name, None, more).await?);
                }
                piece = pieces.recv(), if !is_full => match piece {
                    Some(Ok(SourceChunk::Content(content))) => {
                        let place = chunks.len();
                        if before + place == MAX_CHUNKS {
                            return Err(too_many_chunks(name));
                        }
                        chunks.push(None);
                        objects.push(Chunk::object_of(id, content.len() as u64, Checksum::of(&content).0));
                        let files = self.clone();
                        let store =
                            async move { (place, files.store(id, content, replication, is_durable).await) };
                        under_way.spawn(store);
                    }
                    Some(Ok(SourceChunk::Hole(hole))) => {
                        if before + chunks.len() == MAX_CHUNKS {
                            return Err(too_many_chunks(name));
                        }
                        stored_bytes += hole.size_bytes;
                        see(stored_bytes);
                        chunks.push(Some(hole));
                    }
                    Some(Err(error)) => return Err(error),
                    None => break,
                },
            }
        }
        while let Some(stored) = under_way.join_next().await {
            let (place, chunk) = stored.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
            let chunk = chunk?;
            stored_bytes += chunk.size_bytes;
            see(stored_bytes);
            chunks[place] = Some(chunk);
        }
        if began.elapsed() > MAX_WRITING {
            return Err(too_long(name));
        }
        Ok(chunks.into_iter().flatten().collect())
    }

    /// Forces the large chunks of a file to the disks of their nodes, if the file is to be durable. Small chunks are
    /// durable when they are stored.
    async fn sync(&self, draft: &FileDraft<'_>, chunks: &[Chunk]) -> Result<(), FilesError> {
        let is_large = |chunk: &&Chunk| chunk.size_bytes > SMALL_CHUNK_BYTES as u64;
        match draft.is_durable {
            true => self.sync_chunks(draft.replication, &chunks.iter().filter(is_large).collect::<Vec<_>>()).await,
            false => Ok(()),
        }
    }

    /// Stores a chunk on as many nodes as it should have replicas. If a node cannot store it, another one is tried.
    /// A small chunk is on their disks then, if it is to be durable. Zeros become a hole, which no node stores.
    pub(super) async fn store(
        &self,
        id: FileId,
        content: Vec<u8>,
        replication: u8,
        is_durable: bool,
    ) -> Result<Chunk, FilesError> {
        let (size_bytes, checksum) = (content.len() as u64, Checksum::of(&content).0);
        if is_zeros(&content) {
            return Ok(Chunk::hole(size_bytes, checksum));
        }
        let object = Chunk::object_of(id, size_bytes, checksum);
        let content = Arc::new(content);
        self.replicate(OutgoingChunk { object, size_bytes, checksum, is_durable, content }, Vec::new(), replication)
            .await
    }
}

pub(super) fn too_many_chunks(name: &FileName) -> FilesError {
    FilesError::invalid(format!("{name} would have more than {MAX_CHUNKS} chunks: write it with larger chunks"))
}

pub(super) fn too_long(name: &FileName) -> FilesError {
    FilesError::invalid(format!("{name} took more than 12 hours to write: write it in parts, with append"))
}

/// A random number that is unique.
pub(crate) fn random() -> Result<u128, FilesError> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| FilesError::local("cannot get a random number", &errno.into()))?;
    Ok(u128::from_le_bytes(bytes))
}

pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
