//! Reads chunks directly from the store of the node on this machine. No byte passes through a connection.
//!
//! The file of a chunk is read once against its checksum before it is used, so damaged content reaches no reader. The
//! open file keeps its content if the node deletes the chunk meanwhile. If the file is missing, damaged or not
//! readable for this process, the chunk is requested from the nodes, which report damaged replicas.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use eyas_blocks::format::{PieceCutter, piece_ends};
use eyas_store::{Hasher, object_path};
use eyas_types::dfs::{Chunk, Format, NodeId};

use crate::client::error::FilesError;
use crate::client::{self, DfsClient};

/// Number of bytes of a chunk that are read and checked at a time. As many stay in the processor's cache.
const CHECKED_BYTES: usize = 256 << 10;

/// A part of a chunk is read directly if it is at least an eighth of the chunk, because the whole chunk is checked.
const MIN_SHARE: u64 = 8;

/// The node of the file system on the machine of a client.
#[derive(Clone, Debug)]
pub struct NearNode {
    /// The node.
    pub node: NodeId,
    /// The folder of its store, if the client may read it.
    pub store: Option<PathBuf>,
}

/// A chunk that can be read.
#[derive(Debug)]
pub struct OpenChunk {
    /// The content.
    pub content: ChunkContent,
    /// Where the pieces of the chunk end, as offsets in its content. A chunk that does not have its format, which its
    /// writer has checked, is one piece, and the other pieces are empty.
    pub ends: Vec<usize>,
}

/// Content of a chunk that matches its checksum.
#[derive(Debug)]
pub enum ChunkContent {
    /// The content was received from a node.
    Bytes(Vec<u8>),
    /// The file of the chunk in the store of the node on this machine. It must not be written to.
    File(File),
}

impl DfsClient {
    /// The chunk with this index, divided into this number of pieces. The content is the file of the chunk if the node
    /// on this machine has it, otherwise its bytes.
    ///
    /// # Errors
    /// `Lost` if no replica of it can be read.
    ///
    /// # Panics
    /// If the file has no such chunk.
    pub async fn open_chunk(&self, file: &client::File, place: usize, pieces: u32) -> Result<OpenChunk, FilesError> {
        let (chunk, format) = (&file.record.chunks[place], file.record.format);
        if let Some((opened, ends)) = self.open_near(chunk, format, pieces).await {
            return Ok(OpenChunk { content: ChunkContent::File(opened), ends });
        }
        let content = self.chunk(file, place).await?;
        let ends = piece_ends(format, &content, pieces).unwrap_or_else(|_| undivided(content.len(), pieces));
        Ok(OpenChunk { content: ChunkContent::Bytes(content), ends })
    }

    /// Reads a part of a chunk from the store of the node on this machine; `None` if the part has to be requested.
    pub(super) async fn part_near(&self, chunk: &Chunk, range: Range<u64>) -> Option<Vec<u8>> {
        let length = range.end - range.start;
        if length < chunk.size_bytes / MIN_SHARE {
            return None;
        }
        let (opened, _) = self.open_near(chunk, Format::Whole, 1).await?;
        let mut part = vec![0; length as usize];
        opened.read_exact_at(&mut part, range.start).ok()?;
        Some(part)
    }

    /// The file of a chunk in the store of the node on this machine, if it is there and matches its checksum; and where
    /// its pieces end.
    async fn open_near(&self, chunk: &Chunk, format: Format, pieces: u32) -> Option<(File, Vec<usize>)> {
        let store = self.0.near.as_ref()?.store.clone()?;
        let chunk = chunk.clone();
        let opened = tokio::task::spawn_blocking(move || open_verified(&store, &chunk, format, pieces));
        opened.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
    }
}

fn open_verified(store: &Path, chunk: &Chunk, format: Format, pieces: u32) -> Option<(File, Vec<usize>)> {
    let checksum = eyas_store::Checksum(chunk.checksum);
    let mut file = File::open(object_path(store, chunk.object, chunk.size_bytes, checksum)).ok()?;
    let (mut buffer, mut hasher, mut size_bytes) = (vec![0; CHECKED_BYTES], Hasher::new(), 0);
    let mut cutter = Ok(PieceCutter::new(format, chunk.size_bytes as usize, pieces));
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                cutter = cutter.and_then(|mut cutter| cutter.read(&buffer[..count]).map(|()| cutter));
                size_bytes += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    let is_good = size_bytes == chunk.size_bytes && hasher.finish() == checksum;
    let ends = || cutter.map_or_else(|_| undivided(chunk.size_bytes as usize, pieces), PieceCutter::finish);
    is_good.then(|| (file, ends()))
}

fn undivided(size_bytes: usize, pieces: u32) -> Vec<usize> {
    vec![size_bytes; pieces as usize]
}
