//! A reader of a file: one version of it, the plan by which it is read (`eyas_reading`), and the
//! chunks that are open.
//!
//! The plan says which chunks are opened as a whole and which of them before they are read. A chunk
//! that is in the store of a node on this machine is opened as a file; its content is checked once,
//! and later reads of it need no message. The content of other chunks comes into memory. Bytes of
//! chunks that are not opened are requested.
//!
//! A read never blocks the thread that polls it, unless the caller says that the thread may wait
//! for the disks of this machine, like the thread of a program that waits for the result anyway.

mod cache;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_reading::{ChunkMap, ChunkPart, PartFacts, ReadLimits, ReadPlan, Way};
use eyas_types::dfs::{Chunk, FileName};
use tokio::runtime::Handle;

use cache::CachedChunk;
pub use cache::ChunkCache;

use crate::DfsClient;
use crate::background::Background;
use crate::chunk_stream::ChunkStream;
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::near::{ChunkPlace, ContentRead, Division};
use crate::read::{ChunkReader, chunk_map};

/// A file and the connections through which it is read, at one version.
pub struct FileReader {
    chunks: Arc<ChunkReader>,
    /// Chunks are opened ahead on it.
    runtime: Handle,
    file: Arc<File>,
    map: Arc<ChunkMap>,
    cache: Arc<ChunkCache>,
    progress: Arc<Mutex<ReadProgress>>,
}

impl std::fmt::Debug for FileReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileReader").field("file", &self.file.name).finish_non_exhaustive()
    }
}

/// How far the program is, and what is read before it asks.
struct ReadProgress {
    plan: ReadPlan,
    /// Chunks that are opened in the background, with their indices.
    ahead: Vec<(usize, Background<()>)>,
}

/// A part of a chunk that a program reads.
struct WantedPart {
    part: ChunkPart,
    /// The chunk, if it was open or being opened before the read.
    open: Option<CachedChunk>,
}

/// Whether the thread of a reader may wait for the disks of this machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayWait {
    Yes,
    No,
}

impl FileReader {
    /// Opens the present version of a file.
    ///
    /// # Errors
    /// As [`stat`](DfsClient::stat).
    pub async fn open(files: DfsClient, name: &FileName) -> Result<Self, FilesError> {
        let file = Arc::new(files.stat(name).await?);
        let limits = if files.near().is_some() { ReadLimits::TASK } else { ReadLimits::PROGRAM };
        Ok(FileReader::with(files.chunks(), files.runtime(), file, ChunkCache::of_reader(), limits))
    }

    /// A reader of a version for a mount, whose readers share the chunks that are open.
    pub fn of_mount(files: DfsClient, file: Arc<File>, cache: Arc<ChunkCache>) -> Self {
        FileReader::with(files.chunks(), files.runtime(), file, cache, ReadLimits::MOUNT)
    }

    fn with(
        chunks: &Arc<ChunkReader>,
        runtime: &Handle,
        file: Arc<File>,
        cache: Arc<ChunkCache>,
        limits: ReadLimits,
    ) -> Self {
        let (chunks, runtime) = (chunks.clone(), runtime.clone());
        let map = Arc::new(chunk_map(&file.record));
        let progress = ReadProgress { plan: ReadPlan::new(limits), ahead: Vec::new() };
        FileReader { chunks, runtime, file, map, cache, progress: Arc::new(Mutex::new(progress)) }
    }

    /// A reader of a version that was looked up later. It continues this one if the content is the
    /// same.
    pub fn renewed(&self, file: Arc<File>) -> Self {
        let (chunks, runtime, cache) =
            (self.chunks.clone(), self.runtime.clone(), self.cache.clone());
        if file.record.is_as_written(&self.file.record) {
            let (map, progress) = (self.map.clone(), self.progress.clone());
            return FileReader { chunks, runtime, file, map, cache, progress };
        }
        let limits = self.lock().plan.limits();
        FileReader::with(&chunks, &runtime, file, cache, limits)
    }

    /// The file, as it was when it was looked up.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Size of the file.
    pub fn size_bytes(&self) -> u64 {
        self.map.size_bytes()
    }

    /// Fills the buffer with the bytes from `offset`, as far as the file has them, without waiting
    /// for anything: the chunk is open, and the bytes are in memory. Returns their number; `None`
    /// if they are not all at hand.
    pub fn try_read_local(&self, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        self.read_open(offset, buffer, MayWait::No)
    }

    /// The same, but waits for a disk of this machine if the chunk is open.
    pub fn read_local(&self, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        self.read_open(offset, buffer, MayWait::Yes)
    }

    /// Fills the buffer with the bytes from `offset`, as far as the file has them. Returns their
    /// number. Blocks no thread.
    ///
    /// # Errors
    /// `Lost` if no replica of a chunk can be read.
    pub async fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        self.read_all(offset, buffer, MayWait::No).await
    }

    /// The same, but waits for the disks of this machine on the thread that polls it, which copies
    /// fewer bytes.
    ///
    /// # Errors
    /// As [`read`](FileReader::read).
    pub async fn read_on_this_thread(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, FilesError> {
        self.read_all(offset, buffer, MayWait::Yes).await
    }

    /// Up to `length` bytes from `offset`, as far as the file has them. Blocks no thread.
    ///
    /// # Errors
    /// As [`read`](FileReader::read).
    pub async fn read_at(&self, offset: u64, length: u64) -> Result<Vec<u8>, FilesError> {
        let wanted = self.map.range(offset, length);
        let mut content = vec![0; (wanted.end - wanted.start) as usize];
        self.read(offset, &mut content).await?;
        Ok(content)
    }

    /// A reader of a range, which gives its parts in order.
    pub fn parts(&self, range: Range<u64>) -> ChunkStream {
        ChunkStream::of(self.chunks.clone(), self.file.clone(), &self.map, range)
    }

    fn read_open(&self, offset: u64, buffer: &mut [u8], may_wait: MayWait) -> Option<usize> {
        let wanted = self.map.range(offset, buffer.len() as u64);
        if wanted.is_empty() {
            return Some(0);
        }
        let index = self.map.index_at(wanted.start)?;
        let bounds = self.map.chunk(index);
        if wanted.end > bounds.end {
            return None;
        }
        let into = &mut buffer[..(wanted.end - wanted.start) as usize];
        let chunk = self.chunk(index);
        if chunk.is_hole() {
            into.fill(0);
        } else {
            let opened = self.cache.get(chunk.object)?;
            let content = opened.get()?;
            match content.read(
                wanted.start - bounds.start,
                into,
                may_wait == MayWait::Yes,
                self.cache.checks_files(),
            ) {
                ContentRead::Done => {}
                ContentRead::Waits => return None,
                ContentRead::Changed => {
                    self.cache.forget(chunk.object);
                    return None;
                }
            }
        }
        self.begin(wanted.clone());
        Some((wanted.end - wanted.start) as usize)
    }

    async fn read_all(
        &self,
        offset: u64,
        buffer: &mut [u8],
        may_wait: MayWait,
    ) -> Result<usize, FilesError> {
        if let Some(read) = self.read_open(offset, buffer, may_wait) {
            return Ok(read);
        }
        let wanted = self.map.range(offset, buffer.len() as u64);
        let size_bytes = (wanted.end - wanted.start) as usize;
        // Holds the chunks that are open: the cache may drop them for chunks that are opened ahead.
        let hold = |part: ChunkPart| WantedPart {
            open: self.cache.get(self.chunk(part.index).object),
            part,
        };
        let parts: Vec<WantedPart> = self.map.parts(wanted.clone()).map(hold).collect();
        let continues = self.begin(wanted);
        let mut rest = &mut buffer[..size_bytes];
        for run in parts.chunk_by(|one, next| self.is_direct(one) && self.is_direct(next)) {
            let run_bytes: u64 = run.iter().map(|wanted| wanted.part.size_bytes()).sum();
            let (into, later) = std::mem::take(&mut rest).split_at_mut(run_bytes as usize);
            rest = later;
            let first = run[0].part.index;
            match run {
                [wanted] if !self.is_direct(wanted) => {
                    self.read_part(wanted, into, continues, may_wait).await?
                }
                _ => self.read_chunks(first..first + run.len(), into, may_wait).await?,
            }
        }
        Ok(size_bytes)
    }

    fn chunk(&self, index: usize) -> &Chunk {
        &self.file.record.chunks[index]
    }

    /// Whether a part goes directly to where it is wanted: a whole chunk that is not being opened.
    fn is_direct(&self, wanted: &WantedPart) -> bool {
        let chunk = self.chunk(wanted.part.index);
        wanted.part.size_bytes() == chunk.size_bytes && (chunk.is_hole() || wanted.open.is_none())
    }

    /// Notes a read, and begins to open what the plan wants ahead. Returns whether the read
    /// continues the one before.
    fn begin(&self, wanted: Range<u64>) -> bool {
        let begin = wanted.start;
        let mut progress = self.lock();
        let step = progress.plan.read(&self.map, wanted);
        let Some(ahead) = step.ahead else { return step.continues };
        let first = self.map.index_at(begin).unwrap_or(0);
        // Those that the read is about to use are not given up.
        progress.ahead.retain(|(index, _)| (first..ahead.end).contains(index));
        for index in first..ahead.end {
            let chunk = self.chunk(index);
            // This counts as a use, also of those that are not read yet: chunks that were read
            // before go first.
            let is_cached = self.cache.get(chunk.object).is_some();
            let is_begun = progress.ahead.iter().any(|(begun, _)| *begun == index);
            if is_cached || is_begun || chunk.is_hole() || !ahead.contains(&index) {
                continue;
            }
            let from_afar = progress.plan.is_whole_from_afar(chunk.size_bytes);
            let (chunks, runtime) = (self.chunks.clone(), self.runtime.clone());
            let (file, cache) = (self.file.clone(), self.cache.clone());
            let opening = open_ahead((chunks, runtime), file, index, cache, from_afar);
            progress.ahead.push((index, Background::spawn_on(&self.runtime, opening)));
        }
        step.continues
    }

    /// Reads a part of a chunk.
    async fn read_part(
        &self,
        WantedPart { part, open }: &WantedPart,
        into: &mut [u8],
        continues: bool,
        may_wait: MayWait,
    ) -> Result<(), FilesError> {
        let (chunk, index) = (self.chunk(part.index), part.index);
        if chunk.is_hole() {
            into.fill(0);
            return Ok(());
        }
        let opening = match open.clone().or_else(|| self.cache.get(chunk.object)) {
            None => {
                let is_near = self.chunks.near.is_near(chunk).await;
                let (part_bytes, chunk_bytes) = (part.size_bytes(), chunk.size_bytes);
                let facts = PartFacts { index, part_bytes, chunk_bytes, is_near };
                let way = self.lock().plan.way(facts, continues);
                (way == Way::Whole).then(|| self.cache.add(chunk.object, chunk.size_bytes))
            }
            known => known,
        };
        if let Some(opening) = opening {
            match opened((&self.chunks, &self.runtime), &self.file, index, &self.cache, &opening)
                .await
            {
                Ok(()) if self.copy(&opening, part, into, may_wait).await => return Ok(()),
                // The nodes may still have the bytes that are wanted.
                Ok(()) => self.cache.forget(chunk.object),
                Err(error) if error.kind == FilesErrorKind::Lost => {}
                Err(error) => return Err(error),
            }
        }
        let start = self.map.chunk(index).start;
        self.request(start + part.range.start..start + part.range.end, into).await
    }

    /// Copies a part of an open chunk. Returns whether its content is still there.
    async fn copy(
        &self,
        opened: &CachedChunk,
        part: &ChunkPart,
        into: &mut [u8],
        may_wait: MayWait,
    ) -> bool {
        let Some(content) = opened.get() else { return false };
        let (begin, checks) = (part.range.start, self.cache.checks_files());
        match content.read(begin, into, may_wait == MayWait::Yes, checks) {
            ContentRead::Done => true,
            ContentRead::Changed => false,
            ContentRead::Waits => {
                let (opened, mut read) = (opened.clone(), vec![0; into.len()]);
                let reading = tokio::task::spawn_blocking(move || {
                    let done =
                        opened.get().map(|content| content.read(begin, &mut read, true, checks));
                    (done == Some(ContentRead::Done)).then_some(read)
                });
                let read = reading.await.unwrap_or_else(eyas_panics::resume);
                read.map(|read| into.copy_from_slice(&read)).is_some()
            }
        }
    }

    /// Reads whole chunks without keeping them.
    async fn read_chunks(
        &self,
        indices: Range<usize>,
        into: &mut [u8],
        may_wait: MayWait,
    ) -> Result<(), FilesError> {
        let first = indices.start;
        let start = self.map.chunk(first).start;
        if may_wait == MayWait::No {
            let end = start + into.len() as u64;
            return self.request(start..end, into).await;
        }
        let mut rest = &mut *into;
        let chunks = indices.map(|index| {
            let chunk = self.chunk(index);
            let (into, later) = std::mem::take(&mut rest).split_at_mut(chunk.size_bytes as usize);
            rest = later;
            ChunkPlace { chunk, into }
        });
        let missing = self.chunks.near.read_near(chunks.collect()).await;
        for run in missing.chunk_by(|one, next| one + 1 == *next) {
            let (one, last) =
                (self.map.chunk(first + run[0]), self.map.chunk(first + run[run.len() - 1]));
            let within = (one.start - start) as usize..(last.end - start) as usize;
            self.request(one.start..last.end, &mut into[within]).await?;
        }
        Ok(())
    }

    /// Reads a range without opening its chunks.
    async fn request(&self, range: Range<u64>, mut into: &mut [u8]) -> Result<(), FilesError> {
        let mut parts = self.map.parts(range.clone());
        if let (Some(ChunkPart { index, range }), None) = (parts.next(), parts.next()) {
            into.copy_from_slice(&self.chunks.part(&self.file, index, range).await?.content);
            return Ok(());
        }
        let mut reading = self.parts(range.clone());
        while let Some(part) = reading.next().await? {
            let (now, later) = std::mem::take(&mut into).split_at_mut(part.len());
            now.copy_from_slice(&part);
            into = later;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ReadProgress> {
        // Each change of it is whole.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a chunk for a reader that shares the result with others.
async fn opened(
    (chunks, runtime): (&ChunkReader, &Handle),
    file: &File,
    index: usize,
    cache: &Arc<ChunkCache>,
    opening: &CachedChunk,
) -> Result<(), FilesError> {
    if opening.initialized() {
        return Ok(());
    }
    let object = file.record.chunks[index].object;
    let open = async || Ok(chunks.open(file, index, Division::WHOLE).await?.content);
    match opening.get_or_try_init(open).await {
        Ok(_) => {
            cache.opened(object, opening, runtime);
            Ok(())
        }
        Err(error) => {
            cache.forget(object);
            Err(error)
        }
    }
}

/// Opens a chunk before it is read. One of another machine only if that may come into memory.
async fn open_ahead(
    (chunks, runtime): (Arc<ChunkReader>, Handle),
    file: Arc<File>,
    index: usize,
    cache: Arc<ChunkCache>,
    from_afar: bool,
) {
    let chunk = &file.record.chunks[index];
    if !from_afar && !chunks.near.is_near(chunk).await {
        return;
    }
    let opening = cache.add(chunk.object, chunk.size_bytes);
    if let Err(error) = opened((&chunks, &runtime), &file, index, &cache, &opening).await {
        tracing::debug!("a chunk was not read ahead: {error}");
    }
}
