//! Chunks that this node makes of objects in its own store: of chunks of other files, and of cached
//! or kept objects. No byte crosses the network.

use std::io::{Seek, SeekFrom};

use eyas_blocks::format::Cutter;
use eyas_files::protocol::{ChunkSpec, CutChunk, CutFailure, CutPart, CutRequest, StoreFailure};
use eyas_files::{FilesError, FilesErrorKind, SourceChunk, SourceChunks, SparseFile, probe};
use eyas_store::{Checksum, StoreError, is_zeros};
use eyas_types::ObjectId;
use eyas_types::dfs::Chunk;
use tokio::task::block_in_place;

use crate::chunks::small::failure;
use crate::chunks::{ChunkError, NodeChunks};

/// A request cuts off further chunks until they have this number of bytes. The client then asks for
/// the rest.
const CUT_BYTES: u64 = 256 << 20;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

impl NodeChunks {
    /// Makes chunks of objects that are in this node's store, and have the same content. Returns
    /// one value for each.
    pub async fn derive_all(
        &self,
        derived: &[(ObjectId, ChunkSpec)],
    ) -> Vec<Result<(), StoreFailure>> {
        let mut results = Vec::with_capacity(derived.len());
        for (of, wanted) in derived {
            results.push(self.derive(*of, *wanted).await.map_err(|error| failure(&error)));
        }
        results
    }

    /// Makes a chunk of an object that is in this node's store, and has the same content.
    async fn derive(&self, of: ObjectId, wanted: ChunkSpec) -> Result<(), ChunkError> {
        let Some(place) = self.prepare(wanted).await? else { return Ok(()) };
        let made = match block_in_place(|| self.store.alias(of, wanted.object)) {
            Ok(made) if made == (wanted.size_bytes, Checksum(wanted.checksum)) => {
                self.take(wanted);
                Ok(())
            }
            Ok(_) => Err(ChunkError::OtherObject),
            Err(error) => Err(error.into()),
        };
        place.finish(made)
    }

    /// Cuts the next chunks off an object that is in this node's store. An object that is one chunk
    /// is not copied. If this fails, the chunks are deleted, as the client does not know them.
    /// Calls `see` for each chunk before it is stored.
    pub async fn cut(
        &self,
        request: &CutRequest,
        see: impl Fn(ObjectId),
    ) -> Result<CutPart, CutFailure> {
        let mut made = Vec::new();
        let note = |object| {
            made.push(object);
            see(object);
        };
        let cut = self.cut_next(request, note).await;
        if cut.is_err() {
            self.discard(&made);
        }
        cut
    }

    async fn cut_next(
        &self,
        request: &CutRequest,
        mut see: impl FnMut(ObjectId),
    ) -> Result<CutPart, CutFailure> {
        let failed = |error: ChunkError| CutFailure::NotStored(failure(&error));
        let stored = |error: StoreError| failed(error.into());
        if request.from == 0 {
            block_in_place(|| self.store.verify_again(request.object)).map_err(stored)?;
        }
        let mut opened =
            block_in_place(|| self.store.open_object(request.object)).map_err(stored)?;
        let unreadable = |error: std::io::Error| {
            let why = format!("cannot read object {}: {error}", request.object);
            CutFailure::NotStored(StoreFailure::Failed(why))
        };
        let format = match request.format {
            Some(format) => format,
            None => block_in_place(|| probe(&mut opened.file, &request.base_name))
                .map_err(unreadable)?,
        };
        opened.file.seek(SeekFrom::Start(request.from)).map_err(unreadable)?;
        let cutter = Cutter::storing(format, request.chunk_bytes, request.from);
        let mut pieces = SourceChunks::new(cutter, SparseFile(opened.file), Vec::new(), READ_BYTES);
        let (mut chunks, mut at) = (Vec::new(), request.from);
        while at - request.from < CUT_BYTES || at == opened.size_bytes {
            let Some(piece) = block_in_place(|| pieces.next()).transpose().map_err(not_cut)? else {
                break;
            };
            let chunk = match piece {
                SourceChunk::Hole(Chunk { size_bytes, checksum, .. }) => {
                    CutChunk { size_bytes, checksum, is_hole: true }
                }
                SourceChunk::Content(content) => self
                    .write_cut(request, content, opened.size_bytes, &mut see)
                    .await
                    .map_err(failed)?,
            };
            at += chunk.size_bytes;
            chunks.push(chunk);
        }
        self.store.check_seal(request.object).map_err(stored)?;
        Ok(CutPart { format, chunks, next: (at < opened.size_bytes).then_some(at) })
    }

    /// Stores a chunk that was cut off an object, which has `size_bytes`. Zeros become a hole.
    async fn write_cut(
        &self,
        request: &CutRequest,
        content: Vec<u8>,
        size_bytes: u64,
        see: &mut impl FnMut(ObjectId),
    ) -> Result<CutChunk, ChunkError> {
        let checksum = Checksum::of(&content).0;
        let chunk_bytes = content.len() as u64;
        let is_hole = is_zeros(&content);
        let cut = CutChunk { size_bytes: chunk_bytes, checksum, is_hole };
        if is_hole {
            return Ok(cut);
        }
        let object = Chunk::object_of(request.id, chunk_bytes, checksum);
        let wanted = ChunkSpec { object, size_bytes: chunk_bytes, checksum };
        see(object);
        if chunk_bytes == size_bytes {
            self.derive(request.object, wanted).await?;
        } else if let Some(place) = self.prepare(wanted).await? {
            let written =
                block_in_place(|| self.store.put(object, &content).map_err(ChunkError::from));
            place.finish(written.map(|_| self.take(wanted)))?;
        }
        Ok(cut)
    }
}

fn not_cut(error: FilesError) -> CutFailure {
    match error.kind {
        FilesErrorKind::WrongFormat => CutFailure::Format(error.message),
        _ => CutFailure::NotStored(StoreFailure::Failed(error.message)),
    }
}
