//! Reads chunks directly from the store of the node on this machine. No byte passes through a connection.
//!
//! The file of a chunk is read once against its checksum before it is used, so damaged content reaches no reader. The
//! open file keeps its content if the node deletes the chunk meanwhile. If the file is missing, damaged or not
//! readable for this process, the chunk is requested from the nodes, which report damaged replicas.

mod mapped;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use eyas_blocks::format::{PieceCutter, piece_ends};
use eyas_store::{Checksum, Hasher, object_path};
use eyas_types::dfs::{Chunk, Format, NodeId};

use self::mapped::MappedBytes;
use crate::client::error::FilesError;
use crate::client::{self, DfsClient};

/// Number of bytes of a chunk that are mapped and checked at a time. A multiple of the size of a page.
const CHECKED_BYTES: usize = 2 << 20;

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
        self.read_store(chunk, move |store, chunk| read_verified(store, chunk, range)).await
    }

    /// The file of a chunk in the store of the node on this machine, if it is there and matches its checksum; and where
    /// its pieces end.
    async fn open_near(&self, chunk: &Chunk, format: Format, pieces: u32) -> Option<(File, Vec<usize>)> {
        self.read_store(chunk, move |store, chunk| open_verified(store, chunk, format, pieces, true)).await
    }

    /// Calls `read` on a thread that may block, if this process may read the store of the node on this machine.
    async fn read_store<T: Send + 'static>(
        &self,
        chunk: &Chunk,
        read: impl FnOnce(&Path, &Chunk) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let (store, chunk) = (self.0.near.as_ref()?.store.clone()?, chunk.clone());
        let reading = tokio::task::spawn_blocking(move || read(&store, &chunk));
        reading.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
    }
}

/// Reads a part of a chunk. The whole chunk is checked.
fn read_verified(store: &Path, chunk: &Chunk, range: Range<u64>) -> Option<Vec<u8>> {
    let is_whole = range == (0..chunk.size_bytes);
    let file = if is_whole { open(store, chunk)? } else { open_verified(store, chunk, Format::Whole, 1, false)?.0 };
    let mut part = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut part, range.start).ok()?;
    (!is_whole || Checksum::of(&part).0 == chunk.checksum).then_some(part)
}

/// The file of a chunk, if it has the right size.
fn open(store: &Path, chunk: &Chunk) -> Option<File> {
    let path = object_path(store, chunk.object, chunk.size_bytes, Checksum(chunk.checksum));
    let file = File::open(path).ok()?;
    (file.metadata().ok()?.len() == chunk.size_bytes).then_some(file)
}

/// Checks a chunk. With `may_map`, without a copy; if a program shortens the file meanwhile, this process ends then, so
/// only processes that do nothing else may map files.
fn open_verified(
    store: &Path,
    chunk: &Chunk,
    format: Format,
    pieces: u32,
    may_map: bool,
) -> Option<(File, Vec<usize>)> {
    let file = open(store, chunk)?;
    let (size_bytes, mut hasher) = (chunk.size_bytes as usize, Hasher::new());
    let mut cutter = Ok(PieceCutter::new(format, size_bytes, pieces));
    let mut check = |bytes: &[u8]| {
        hasher.update(bytes);
        if let Ok(cut) = &mut cutter
            && let Err(error) = cut.read(bytes)
        {
            cutter = Err(error);
        }
    };
    for start in (0..size_bytes).step_by(CHECKED_BYTES) {
        let length = CHECKED_BYTES.min(size_bytes - start);
        let mapped = if may_map { MappedBytes::of(&file, start as u64, length).ok() } else { None };
        match mapped {
            Some(mapped) => check(mapped.bytes()),
            // Some file systems cannot map files. A part of a disk that cannot be read cannot be mapped either.
            None => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, start as u64).ok()?;
                check(&bytes);
            }
        }
    }
    let ends = cutter.map_or_else(|_| undivided(size_bytes, pieces), PieceCutter::finish);
    (hasher.finish().0 == chunk.checksum).then_some((file, ends))
}

fn undivided(size_bytes: usize, pieces: u32) -> Vec<usize> {
    vec![size_bytes; pieces as usize]
}
