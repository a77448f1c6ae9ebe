//! Uploads: content is cut at record boundaries, and each chunk is sent to its replicas in a chain.

use std::sync::Arc;

use eyas_blocks::format::Cutter;
use eyas_types::dfs::{Chunk, FileId, FileName, MAX_CHUNKS};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::chunk_sizes::SMALL_CHUNK_BYTES;
use crate::error::FilesError;
use crate::outgoing::OutgoingChunk;
use crate::quota::{FolderUsage, Quotas};
use crate::random::new_file_id;
use crate::replicas::Replicas;
use crate::replicas::unclaimed::UnclaimedChunks;
use crate::source::ContentSource;
use crate::source_chunks::{SourceChunk, SourceChunks};

/// Number of chunks that are being stored at the same time.
const CHUNKS_TOGETHER: usize = 4;

/// Number of bytes read from the source at a time.
const READ_BYTES: usize = 1 << 20;

/// Stores the content of files that have not appeared yet.
pub(crate) struct Uploads {
    quotas: Arc<Quotas>,
    pub replicas: Arc<Replicas>,
}

/// A file that is being written. Its id is new, so no other file has its chunks.
pub(crate) struct FileDraft<'a> {
    pub name: &'a FileName,
    pub id: FileId,
    pub replication: u8,
    pub is_durable: bool,
    /// Bytes that the content replaces, which quotas do not count twice.
    pub replaced_bytes: u64,
    /// What was stored for it.
    pub unclaimed: UnclaimedChunks,
}

impl<'a> FileDraft<'a> {
    /// A file without content. It is to be durable, and replaces nothing.
    pub fn new(
        replicas: &Arc<Replicas>,
        name: &'a FileName,
        replication: u8,
    ) -> Result<Self, FilesError> {
        let (id, unclaimed) = (new_file_id()?, UnclaimedChunks::new(replicas));
        Ok(FileDraft { name, id, replication, is_durable: true, replaced_bytes: 0, unclaimed })
    }

    /// A chunk of the file with this content, which is about to be stored.
    fn chunk(&mut self, content: Vec<u8>) -> OutgoingChunk {
        let chunk = OutgoingChunk::of(self.id, content, self.is_durable);
        self.unclaimed.add(chunk.object);
        chunk
    }
}

/// Chunks that are being stored, with their indices in the file.
type ChunkWrites = JoinSet<(usize, Result<Chunk, FilesError>)>;

impl Uploads {
    pub fn new(quotas: Arc<Quotas>, replicas: Arc<Replicas>) -> Self {
        Uploads { quotas, replicas }
    }

    /// Stores content that is in memory. The file has `before` chunks already.
    pub async fn store_content(
        &self,
        draft: &mut FileDraft<'_>,
        cutter: Cutter,
        content: Vec<u8>,
        before: usize,
    ) -> Result<Vec<Chunk>, FilesError> {
        self.replicas.routes.gather(draft.replication.into(), |_| {}).await?;
        let mut pieces = Vec::new();
        for piece in SourceChunks::new(cutter, std::io::empty(), content, 1) {
            pieces.extend(if let SourceChunk::Content(content) = piece? {
                Some(content)
            } else {
                None
            });
        }
        if before + pieces.len() > MAX_CHUNKS {
            return Err(too_many_chunks(draft.name));
        }
        let mut chunks = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let chunk = draft.chunk(piece);
            chunks.push(self.replicas.store(chunk, draft.replication).await?);
        }
        self.sync(draft, &chunks).await?;
        Ok(chunks)
    }

    /// Stores the rest of the source after `begun`, the content of an incomplete chunk. The file
    /// has `before` chunks already.
    pub async fn store_all(
        &self,
        draft: &mut FileDraft<'_>,
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
    pub async fn store_unsynced(
        &self,
        draft: &mut FileDraft<'_>,
        cutter: Cutter,
        source: impl ContentSource,
        begun: Vec<u8>,
        before: usize,
        see: impl FnMut(u64),
    ) -> Result<Vec<Chunk>, FilesError> {
        let mut under_way = JoinSet::new();
        let stored =
            self.store_pieces(draft, cutter, source, begun, (before, &mut under_way), see).await;
        if stored.is_err() {
            // Chunks that are still on their way would come after they were discarded.
            while under_way.join_next().await.is_some() {}
            // The caller may store the content in another format, which needs the room.
            draft.unclaimed.discard().await;
        }
        stored
    }

    /// Stores the pieces of a source. Notes which are under way.
    async fn store_pieces(
        &self,
        draft: &mut FileDraft<'_>,
        cutter: Cutter,
        source: impl ContentSource,
        begun: Vec<u8>,
        (before, under_way): (usize, &mut ChunkWrites),
        mut see: impl FnMut(u64),
    ) -> Result<Vec<Chunk>, FilesError> {
        let replication = draft.replication;
        self.replicas.routes.gather(replication.into(), |_| {}).await?;
        let (sender, mut pieces) = mpsc::channel(1);
        tokio::task::spawn_blocking(move || {
            // If the receiver is gone, it has failed.
            SourceChunks::new(cutter, source, begun, READ_BYTES)
                .all(|piece| sender.blocking_send(piece).is_ok())
        });
        let mut chunks = Vec::<Option<Chunk>>::new();
        let (mut stored_bytes, mut is_cut) = (0, false);
        loop {
            let may_cut = !is_cut && under_way.len() < CHUNKS_TOGETHER;
            let (index, chunk) = tokio::select! {
                Some(stored) = under_way.join_next() => {
                    let (index, chunk): (usize, Result<Chunk, FilesError>) =
                        stored.unwrap_or_else(eyas_panics::resume);
                    (index, chunk?)
                }
                piece = pieces.recv(), if may_cut => {
                    let Some(piece) = piece.transpose()? else {
                        is_cut = true;
                        continue;
                    };
                    let index = chunks.len();
                    if before + index == MAX_CHUNKS {
                        return Err(too_many_chunks(draft.name));
                    }
                    chunks.push(None);
                    match piece {
                        SourceChunk::Hole(hole) => (index, hole),
                        SourceChunk::Content(content) => {
                            let (replicas, chunk) = (self.replicas.clone(), draft.chunk(content));
                            under_way.spawn(async move {
                                (index, replicas.store(chunk, replication).await)
                            });
                            continue;
                        }
                    }
                }
                else => break,
            };
            stored_bytes += chunk.size_bytes;
            see(stored_bytes);
            chunks[index] = Some(chunk);
            let more =
                FolderUsage { bytes: stored_bytes.saturating_sub(draft.replaced_bytes), files: 0 };
            drop(self.quotas.charge(draft.name, None, more).await?);
        }
        Ok(chunks.into_iter().flatten().collect())
    }

    /// Forces the large chunks of a file to the disks of their nodes, if the file is to be durable.
    /// Small chunks are durable when they are stored.
    async fn sync(&self, draft: &FileDraft<'_>, chunks: &[Chunk]) -> Result<(), FilesError> {
        let is_large = |chunk: &&Chunk| chunk.size_bytes > SMALL_CHUNK_BYTES as u64;
        match draft.is_durable {
            true => {
                self.replicas
                    .sync_chunks(
                        draft.replication,
                        &chunks.iter().filter(is_large).collect::<Vec<_>>(),
                    )
                    .await
            }
            false => Ok(()),
        }
    }
}

pub(crate) fn too_many_chunks(name: &FileName) -> FilesError {
    FilesError::invalid(format!(
        "{name} would have more than {MAX_CHUNKS} chunks: write it with larger chunks"
    ))
}
