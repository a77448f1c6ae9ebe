//! Standard input of the program of a task: the pieces of chunks that the program reads, one after the other.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_dfs::blocks::format::piece_ends;
use eyas_dfs::{DfsClient, File, FilesError, FilesErrorKind};
use eyas_types::dfs::FileRecord;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::task::JoinHandle;

use super::worker::WorkError;

/// The pipe holds about as many bytes as the program reads in this time. A slow program in front of a full pipe would
/// keep what other nodes could process; a fast program in front of a small pipe would wait for each page.
const PIPE_TIME: Duration = Duration::from_millis(50);

/// Smallest size of the pipe, with which it begins.
pub(super) const MIN_PIPE_BYTES: usize = 4 << 10;

/// Largest size of the pipe.
const MAX_PIPE_BYTES: usize = 1 << 20;

/// The rate at which the program reads is measured over at least this time.
const METER_INTERVAL: Duration = Duration::from_millis(5);

/// Standard input of the program.
#[derive(Default)]
pub(super) struct Input {
    pipe: Option<ProgramPipe>,
    /// The chunk from which the program reads, or has read last.
    content: Option<ChunkContent>,
    fed: Option<FedPiece>,
    /// The chunk from which the program reads next, while it is read from the file system.
    loading: Option<Loading>,
    /// The chunk after that, which is read ahead.
    ahead: Option<Loading>,
}

/// The pipe to the program.
struct ProgramPipe {
    pipe: Sender,
    size_bytes: usize,
    /// Bytes written since this moment.
    written: (Instant, usize),
}

/// A chunk, and where its pieces end.
struct ChunkContent {
    chunk: u32,
    content: Vec<u8>,
    ends: Vec<usize>,
}

/// The piece that the program reads, as offsets in its chunk. The program has read up to `at`.
struct FedPiece {
    begin: usize,
    at: usize,
    end: usize,
}

/// A chunk that is read in the background. Dropping it stops the read.
struct Loading {
    chunk: u32,
    content: JoinHandle<Result<ChunkContent, FilesError>>,
}

/// A chunk of the run: its number in the run, its file, its index there, and the number of its pieces.
#[derive(Clone)]
pub(super) struct ChunkSource {
    pub chunk: u32,
    pub file: Arc<File>,
    pub index: usize,
    pub pieces: u32,
}

impl Input {
    /// Begins with a new program, which has read nothing.
    pub fn open(&mut self, pipe: Sender) {
        self.pipe = Some(ProgramPipe { pipe, size_bytes: MIN_PIPE_BYTES, written: (Instant::now(), 0) });
    }

    /// Ends the input of the program.
    pub fn close(&mut self) {
        self.pipe = None;
    }

    /// Whether the program may read more.
    pub fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Whether the next piece can be given to the program.
    pub fn wants_piece(&self) -> bool {
        self.pipe.is_some() && self.fed.is_none() && self.loading.is_none()
    }

    /// Whether the program has begun with the present piece.
    pub fn is_begun(&self) -> bool {
        self.fed.as_ref().is_some_and(|fed| fed.at > fed.begin)
    }

    /// Whether the program has a piece that it has not read completely.
    pub fn is_feeding(&self) -> bool {
        self.fed.is_some()
    }

    /// Gives the program this piece of a chunk. If the chunk is not in memory, begins to read it: the method is called
    /// again when it has arrived.
    pub fn feed(&mut self, files: &DfsClient, source: &ChunkSource, piece: u32) {
        if let Some(content) = self.content.as_ref().filter(|content| content.chunk == source.chunk) {
            let (piece, ends) = (piece as usize, &content.ends);
            let begin = if piece == 0 { 0 } else { ends[piece - 1] };
            self.fed = Some(FedPiece { begin, at: begin, end: ends[piece] });
            return;
        }
        self.content = None;
        let ahead = self.ahead.take().filter(|ahead| ahead.chunk == source.chunk);
        self.loading = Some(ahead.unwrap_or_else(|| Loading::begin(files, source)));
    }

    /// Reads this chunk ahead, and no other one.
    pub fn read_ahead(&mut self, files: &DfsClient, source: Option<&ChunkSource>) {
        if source.map(|source| source.chunk) != self.ahead.as_ref().map(|ahead| ahead.chunk) {
            self.ahead = source.map(|source| Loading::begin(files, source));
        }
    }

    /// Waits until the program has read some bytes, and returns their number; or until a chunk has arrived, and returns
    /// `None`. The future may be dropped and the method called again.
    pub async fn advance(&mut self) -> Result<Option<usize>, WorkError> {
        if let Some(loading) = &mut self.loading {
            let content = (&mut loading.content).await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))?;
            (self.loading, self.content) = (None, Some(content));
            return Ok(None);
        }
        let (Some(pipe), Some(content), Some(fed)) = (&mut self.pipe, &self.content, &mut self.fed) else {
            return std::future::pending().await;
        };
        let rest = &content.content[fed.at..fed.end];
        if rest.is_empty() {
            return Ok(Some(0));
        }
        match pipe.write(rest).await {
            Ok(bytes) => {
                fed.at += bytes;
                Ok(Some(bytes))
            }
            // The program has closed its standard input.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.pipe = None;
                Ok(None)
            }
            Err(error) => Err(WorkError::Input(error)),
        }
    }

    /// Whether the program has read all of the present piece. If so, the next one can be given.
    pub fn is_fed(&mut self) -> bool {
        self.fed.take_if(|fed| fed.at == fed.end).is_some()
    }
}

impl ProgramPipe {
    /// Writes some bytes, and adapts the size of the pipe to the rate at which the program reads.
    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.pipe.write(bytes).await?;
        self.written.1 += written;
        let elapsed = self.written.0.elapsed();
        if elapsed >= METER_INTERVAL {
            let held = self.written.1 as f64 * PIPE_TIME.as_secs_f64() / elapsed.as_secs_f64();
            let size_bytes = (held as usize).clamp(MIN_PIPE_BYTES, MAX_PIPE_BYTES).next_power_of_two();
            // The system refuses a size that is less than what the pipe holds, and more than a user may have. The pipe
            // then keeps its size.
            if size_bytes != self.size_bytes && fcntl_setpipe_size(&self.pipe, size_bytes).is_ok() {
                self.size_bytes = size_bytes;
            }
            self.written = (Instant::now(), 0);
        }
        Ok(written)
    }
}

impl Loading {
    /// Begins to read a chunk of the run.
    fn begin(files: &DfsClient, source: &ChunkSource) -> Self {
        let (files, source, chunk) = (files.clone(), source.clone(), source.chunk);
        let content = tokio::spawn(async move {
            let content = read(&files, &source.file, source.index).await?;
            // A chunk that does not have its format, which its writer has checked, is one piece, and the others are
            // empty.
            let ends = piece_ends(source.file.record.format, &content, source.pieces);
            let ends = ends.unwrap_or_else(|_| vec![content.len(); source.pieces as usize]);
            Ok(ChunkContent { chunk, content, ends })
        });
        Loading { chunk, content }
    }
}

async fn read(files: &DfsClient, file: &File, index: usize) -> Result<Vec<u8>, FilesError> {
    match files.chunk(file, index).await {
        Err(error) if error.kind == FilesErrorKind::Lost => {}
        read => return read,
    }
    // The record may be old: the chunk may have replicas on other nodes now.
    let now = files.stat(&file.name).await?;
    let object = |record: &FileRecord| record.chunks.get(index).map(|chunk| chunk.object);
    if object(&now.record) != object(&file.record) {
        return Err(FilesError::changed(&file.name));
    }
    files.chunk(&now, index).await
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.content.abort();
    }
}
