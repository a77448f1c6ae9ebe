//! Reads chunks directly from the stores of nodes on this machine, and writes chunks to them. No
//! byte passes through a connection.
//!
//! The file of a chunk is read once against its checksum before it is used, so damaged content
//! reaches no reader. The client remembers that, as long as no program has written to the file
//! since. A chunk that was opened as a file keeps its content if the node deletes it meanwhile. If
//! the file is missing, damaged or not readable for this process, the chunk is requested from the
//! nodes, which report damaged replicas.

mod checks;
mod direct;
mod file_state;
pub(crate) mod mapped;
pub(crate) mod node;
mod stores;

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use eyas_blocks::format::PieceCutter;
use eyas_store::{Checksum, HandedOver, Hasher, object_path};
use eyas_types::dfs::{Chunk, Format};
use tokio::time::timeout;

pub(crate) use self::direct::ChunkPlace;
use self::file_state::FileState;
use self::mapped::MappedBytes;
pub use self::stores::CheckedFile;
pub(crate) use self::stores::{ContentRead, NearStores};
use self::stores::{NearChunk, read_range};
use crate::calls::Calls;
use crate::chunk_sizes::SMALL_CHUNK_BYTES;
use crate::error::{FilesError, unexpected};
use crate::outgoing::{OutgoingChunk, STORE_DEADLINE, silent};
use crate::protocol::{Member, RequestBody, ResponseBody};
use crate::random::random;

/// Number of bytes of a chunk that are mapped and checked at a time. A multiple of the size of a
/// page.
const CHECKED_BYTES: usize = 2 << 20;

/// Number of bytes of a chunk that are copied and checked at a time: they fit into the cache of a
/// processor.
const COPIED_BYTES: usize = 256 << 10;

/// Content of files is copied to multiples of this. Some processors of AMD copy pages at a third of
/// the speed if the place for them begins 1 to 31 bytes behind the start of a page.
const LINE_BYTES: usize = 64;

/// When an eighth of a chunk was requested, the whole chunk is checked, and its parts are read
/// directly.
const MIN_SHARE: u64 = 8;

/// The same is done when this number of parts of a chunk were requested, however small they are.
const SMALL_PARTS: u32 = 16;

/// How a chunk is divided while it is opened.
#[derive(Clone, Copy)]
pub(crate) struct Division {
    pub format: Format,
    pub pieces: u32,
    /// Whether the file of the chunk is mapped into memory while it is checked, instead of copied.
    pub may_map: bool,
}

impl Division {
    /// The chunk stays whole.
    pub const WHOLE: Division = Division { format: Format::Whole, pieces: 1, may_map: false };
}

/// A chunk that can be read.
#[derive(Debug)]
pub struct OpenChunk {
    /// The content.
    pub content: ChunkContent,
    /// Where the pieces of the chunk end, as offsets in its content. A chunk that does not have
    /// its format, which its writer has checked, is one piece, and the other pieces are empty.
    pub ends: Vec<usize>,
}

/// Content of a chunk that matches its checksum.
#[derive(Debug)]
pub enum ChunkContent {
    /// The content was received from a node.
    Bytes(Vec<u8>),
    /// The file of the chunk in the store of the node on this machine. It must not be written to.
    File(CheckedFile),
}

impl ChunkContent {
    /// Fills the buffer with the bytes from `begin`. Blocks.
    ///
    /// # Errors
    /// If the disk fails, or another program has shortened the file.
    ///
    /// # Panics
    /// If bytes in memory end before.
    pub fn read_exact_at(&self, into: &mut [u8], begin: u64) -> io::Result<()> {
        match self {
            ChunkContent::File(checked) => checked.file().read_exact_at(into, begin),
            ChunkContent::Bytes(bytes) => {
                into.copy_from_slice(&bytes[begin as usize..begin as usize + into.len()]);
                Ok(())
            }
        }
    }

    /// Fills the buffer with the bytes from `begin`, waiting for a disk if that is allowed. With
    /// `checks_file`, only if no program has written to the file since it was checked.
    pub(crate) fn read(
        &self,
        begin: u64,
        into: &mut [u8],
        may_wait: bool,
        checks_file: bool,
    ) -> ContentRead {
        match self {
            ChunkContent::File(file) => file.read(begin, into, may_wait, checks_file),
            ChunkContent::Bytes(bytes) => {
                into.copy_from_slice(&bytes[begin as usize..begin as usize + into.len()]);
                ContentRead::Done
            }
        }
    }
}

impl NearStores {
    /// Opens a chunk if a node on this machine has it undamaged.
    pub async fn open(&self, chunk: &Chunk, division: Division) -> Option<OpenChunk> {
        let known = self.chunk(chunk.object);
        let open = move |store: &Path, chunk: &Chunk| open_checked(store, chunk, &known, division);
        let (file, ends) = self.read_store(chunk, open).await?;
        self.keep_in_memory(chunk.object).await;
        Some(OpenChunk { content: ChunkContent::File(file), ends })
    }

    /// Whether a chunk can be read from a store on this machine, as far as this client knows.
    pub async fn is_near(&self, chunk: &Chunk) -> bool {
        match &self.near {
            Some(near) => near.store.is_some() && chunk.replicas.contains(&near.node),
            None => self.store_near(chunk).await.is_some(),
        }
    }

    /// Reads a part of a chunk from the store of a node on this machine; `None` if the part has to
    /// be requested. The whole chunk is checked first, unless that was done before. So the first
    /// small parts of a chunk are requested.
    pub async fn read_local(&self, chunk: &Chunk, range: Range<u64>) -> Option<Vec<u8>> {
        let store = self.store_near(chunk).await?;
        if range == (0..chunk.size_bytes) {
            if chunk.size_bytes <= SMALL_CHUNK_BYTES as u64
                && let Some(content) = read_verified(&store, chunk, true)
            {
                return Some(content);
            }
            return self.read_store(chunk, |store, chunk| read_verified(store, chunk, false)).await;
        }
        let known = self.chunk(chunk.object);
        if !known.was_checked()? {
            let (parts, bytes) = known.count_part(range.end - range.start);
            if parts <= SMALL_PARTS && bytes < chunk.size_bytes / MIN_SHARE {
                return None;
            }
        }
        let read = move |store: &Path, chunk: &Chunk| {
            let mut part = vec![0; (range.end - range.start) as usize];
            let opened = open_checked(store, chunk, &known, Division::WHOLE);
            let is_read = opened.is_some_and(|(file, _)| {
                file.read(range.start, &mut part, true, true) == ContentRead::Done
            });
            if !is_read {
                known.set_bad();
            }
            is_read.then_some(part)
        };
        self.read_store(chunk, read).await
    }

    /// Hands a chunk over to a node on this machine, in the folder of its store. `None` if that is
    /// not possible, so that the chunk has to be sent.
    pub async fn hand_over(
        &self,
        calls: &Calls,
        member: &Member,
        store: PathBuf,
        chunk: &OutgoingChunk,
    ) -> Option<Result<(), FilesError>> {
        let OutgoingChunk { object, size_bytes, checksum, is_durable, .. } = *chunk;
        let (content, number) = (chunk.content.clone(), random().ok()?);
        let writing =
            tokio::task::spawn_blocking(move || HandedOver::write(&store, number, &content));
        let handed_over = match writing.await.unwrap_or_else(eyas_panics::resume) {
            Ok(handed_over) => handed_over,
            Err(error) => {
                tracing::debug!(
                    node = %member.node, %error,
                    "chunks are sent to a node on this machine"
                );
                self.only_read(member.node);
                return None;
            }
        };
        let request = RequestBody::Take { number, object, size_bytes, checksum, is_durable };
        let answered = async { calls.ask(member.address, request).await?.next().await };
        let stored =
            timeout(STORE_DEADLINE, answered).await.unwrap_or_else(|_| Err(silent(member)));
        drop(handed_over);
        match stored {
            Ok(ResponseBody::Stored { failure: None }) => Some(Ok(())),
            Ok(ResponseBody::Stored { failure: Some(why) }) => {
                tracing::debug!(
                    node = %member.node, ?why,
                    "a chunk is sent to a node on this machine"
                );
                None
            }
            Ok(_) => Some(Err(unexpected())),
            Err(error) => Some(Err(error)),
        }
    }

    /// Calls `read` on a thread that may block, if this process may read the store of a node on
    /// this machine.
    async fn read_store<T: Send + 'static>(
        &self,
        chunk: &Chunk,
        read: impl FnOnce(&Path, &Chunk) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let (store, chunk) = (self.store_near(chunk).await?, chunk.clone());
        let reading = tokio::task::spawn_blocking(move || read(&store, &chunk));
        reading.await.unwrap_or_else(eyas_panics::resume)
    }
}

/// Reads a whole chunk and checks it. With `at_once`, only if it is in the memory of the system.
fn read_verified(store: &Path, chunk: &Chunk, at_once: bool) -> Option<Vec<u8>> {
    let content = read_range(&open_chunk_file(store, chunk)?, 0..chunk.size_bytes, at_once)?;
    (Checksum::of(&content).0 == chunk.checksum).then_some(content)
}

/// The file of a chunk, if it matches its checksum, and where the pieces of the chunk end.
fn open_checked(
    store: &Path,
    chunk: &Chunk,
    known: &NearChunk,
    division: Division,
) -> Option<(CheckedFile, Vec<usize>)> {
    let opened = CheckedFile::of(open_chunk_file(store, chunk)?)?;
    if division.pieces == 1 && known.is_checked(chunk, opened.state) {
        return Some((opened, undivided(chunk.size_bytes as usize, 1)));
    }
    let ends = verify(&opened.file, chunk, division)?;
    if FileState::of(&opened.file)? != opened.state {
        return None;
    }
    known.set_checked(chunk, opened.state);
    Some((opened, ends))
}

/// The file of a chunk, if it has the right size.
fn open_chunk_file(store: &Path, chunk: &Chunk) -> Option<fs::File> {
    let path = object_path(store, chunk.object, chunk.size_bytes, Checksum(chunk.checksum));
    let file = fs::File::open(path).ok()?;
    (file.metadata().ok()?.len() == chunk.size_bytes).then_some(file)
}

/// Where the pieces of a chunk end, if its file matches its checksum.
fn verify(file: &fs::File, chunk: &Chunk, division: Division) -> Option<Vec<usize>> {
    let Division { format, pieces, may_map } = division;
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
    let (step, mut memory) = (if may_map { CHECKED_BYTES } else { COPIED_BYTES }, Vec::new());
    for start in (0..size_bytes).step_by(step) {
        let length = step.min(size_bytes - start);
        let mapped = if may_map { MappedBytes::of(file, start as u64, length).ok() } else { None };
        match mapped {
            Some(mapped) => check(mapped.bytes()),
            // Some file systems cannot map files. A part of a disk that cannot be read cannot be
            // mapped either.
            None => {
                memory.resize(step + LINE_BYTES, 0);
                // Large allocations begin 16 bytes behind the start of a page.
                let first = memory.as_ptr().align_offset(LINE_BYTES);
                let copied = &mut memory[first..first + length];
                file.read_exact_at(copied, start as u64).ok()?;
                check(copied);
            }
        }
    }
    let ends = cutter.map_or_else(|_| undivided(size_bytes, pieces), PieceCutter::finish);
    (hasher.finish().0 == chunk.checksum).then_some(ends)
}

/// The ends of the pieces of a chunk that is one piece.
pub(crate) fn undivided(size_bytes: usize, pieces: u32) -> Vec<usize> {
    vec![size_bytes; pieces as usize]
}
