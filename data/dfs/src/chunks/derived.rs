//! Chunks that this node makes of objects in its own store: of chunks of other files, and of cached or kept objects. No
//! byte crosses the network.

use std::io::{Read, Seek, SeekFrom};

use eyas_blocks::format::{BadContent, Cutter};
use eyas_store::{Checksum, StoreError};
use eyas_types::ObjectId;
use eyas_types::dfs::Chunk;
use tokio::task::block_in_place;

use crate::chunks::small::failure;
use crate::chunks::{ChunkError, ChunkSpec, NodeChunks};
use crate::client::max_chunk_bytes;
use crate::protocol::{CutFailure, CutPart, CutRequest, StoreFailure};
use crate::record_index::probe;

/// A request cuts off further chunks until they have this number of bytes. The client then asks for the rest.
const CUT_BYTES: u64 = 256 << 20;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

impl NodeChunks {
    /// Makes chunks of objects that are in this node's store, and have the same content. Returns one value for each.
    pub async fn derive_all(&self, derived: &[(ObjectId, ChunkSpec)]) -> Vec<Result<(), StoreFailure>> {
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

    /// Cuts the next chunks off an object that is in this node's store. An object that is one chunk is not copied.
    /// Calls `see` for each chunk before it is stored.
    pub async fn cut(&self, request: &CutRequest, see: impl Fn(ObjectId)) -> Result<CutPart, CutFailure> {
        let failed = |error: ChunkError| CutFailure::NotStored(failure(&error));
        let stored = |error: StoreError| failed(error.into());
        if request.from == 0 {
            block_in_place(|| self.store.verify_again(request.object)).map_err(stored)?;
        }
        let mut opened = block_in_place(|| self.store.open_object(request.object)).map_err(stored)?;
        let unreadable = |error: std::io::Error| {
            let why = format!("cannot read object {}: {error}", request.object);
            CutFailure::NotStored(StoreFailure::Failed(why))
        };
        let format = match request.format {
            Some(format) => format,
            None => block_in_place(|| probe(&mut opened.file, &request.base_name)).map_err(unreadable)?,
        };
        opened.file.seek(SeekFrom::Start(request.from)).map_err(unreadable)?;
        let mut cutter = Cutter::storing(format, request.chunk_bytes, request.from);
        let (mut chunks, mut chunk, mut at) = (Vec::new(), Vec::new(), request.from);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = block_in_place(|| opened.file.read(&mut buffer)).map_err(unreadable)?;
            let mut bytes = &buffer[..read];
            while let Some(end) = cutter.cut(bytes).map_err(bad)? {
                chunk.extend_from_slice(&bytes[..end]);
                bytes = &bytes[end..];
                at += chunk.len() as u64;
                chunks.push(
                    self.write_cut(request, std::mem::take(&mut chunk), opened.size_bytes, &see)
                        .await
                        .map_err(failed)?,
                );
                if at - request.from >= CUT_BYTES && at < opened.size_bytes {
                    self.store.check_seal(request.object).map_err(stored)?;
                    return Ok(CutPart { format, chunks, next: Some(at) });
                }
            }
            chunk.extend_from_slice(bytes);
            let most = max_chunk_bytes(format);
            if chunk.len() > most {
                return Err(CutFailure::Format(format!(
                    "it has a record of more than {most} bytes: store it as `whole`, as one record"
                )));
            }
            if read == 0 {
                break;
            }
        }
        let _ = cutter.finish().map_err(bad)?;
        if !chunk.is_empty() {
            chunks.push(self.write_cut(request, chunk, opened.size_bytes, &see).await.map_err(failed)?);
        }
        self.store.check_seal(request.object).map_err(stored)?;
        Ok(CutPart { format, chunks, next: None })
    }

    /// Stores a chunk that was cut off an object, which has `size_bytes`.
    async fn write_cut(
        &self,
        request: &CutRequest,
        content: Vec<u8>,
        size_bytes: u64,
        see: &impl Fn(ObjectId),
    ) -> Result<(u64, u64), ChunkError> {
        let checksum = Checksum::of(&content).0;
        let chunk_bytes = content.len() as u64;
        let object = Chunk::object_of(request.id, chunk_bytes, checksum);
        let wanted = ChunkSpec { object, size_bytes: chunk_bytes, checksum };
        see(object);
        if chunk_bytes == size_bytes {
            self.derive(request.object, wanted).await?;
        } else if let Some(place) = self.prepare(wanted).await? {
            let written = block_in_place(|| self.store.put(object, &content).map_err(ChunkError::from));
            place.finish(written.map(|_| self.take(wanted)))?;
        }
        Ok((chunk_bytes, checksum))
    }
}

fn bad(error: BadContent) -> CutFailure {
    CutFailure::Format(error.to_string())
}
