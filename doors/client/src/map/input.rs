//! Standard input of the program of a task: the pieces of chunks that the program reads, one after
//! the other.
//!
//! A chunk of the node on this machine is handed over from its file: the kernel moves references to
//! the cached pages into the pipe, and only the program copies the bytes. Other chunks are
//! received, and written to the pipe.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_files::{Background, ChunkContent, DfsClient, File, OpenChunk};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};
use tokio::net::unix::pipe::Sender;
use tokio::sync::OnceCell;

use super::error::WorkError;
use super::header::{FileHeader, header_of};
use super::pause::Pause;
use super::pipeline::MIN_PIPE_BYTES;

/// The pipe holds about as many bytes as the program reads in this time. A slow program in front of
/// a full pipe would keep what other nodes could process; a fast program in front of a small pipe
/// would wait for each page.
const PIPE_TIME: Duration = Duration::from_millis(50);

/// Largest size of the pipe.
const MAX_PIPE_BYTES: usize = 1 << 20;

/// The rate at which the program reads is measured over at least this time.
const METER_INTERVAL: Duration = Duration::from_millis(5);

/// Longest pause in front of a full pipe: a program that suddenly reads faster waits at most this
/// long.
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// A shorter pause costs more than the writes that it saves.
const MIN_PAUSE: Duration = Duration::from_micros(20);

/// Number of bytes that are copied at a time if the kernel cannot move the pages of a file into a
/// pipe.
const COPIED_BYTES: usize = 256 << 10;

/// Standard input of the program.
#[derive(Default)]
pub(super) struct ProgramInput {
    pipe: Option<ProgramPipe>,
    /// The chunk from which the program reads, or has read last.
    loaded: Option<LoadedChunk>,
    fed: Option<FedPiece>,
    /// Whether the last line that the program has read has no line feed, because its file ends
    /// there.
    is_line_open: bool,
    /// The stored chunk from which the program reads now, of those that it reads as one.
    part: usize,
    /// The chunk from which the program reads next, while it is read from the file system.
    loading: Option<ChunkLoad>,
    /// The chunk after that, which is read ahead.
    ahead: Option<ChunkLoad>,
    /// Whether programs get the header of a file first, and not again in its place.
    repeats_header: bool,
    /// The rest of the header that the program has not read yet.
    header: Vec<u8>,
}

/// The pipe to the program.
struct ProgramPipe {
    pipe: Sender,
    size_bytes: usize,
    /// Bytes written since this moment.
    written: (Instant, usize),
    /// Time in which the program reads half of a full pipe, as far as its rate is known.
    half_time: Duration,
    pause: Pause,
}

/// A stored chunk: the number of its chunk in the run, and which of the stored chunks of that it
/// is.
struct LoadedChunk {
    chunk: u32,
    part: usize,
    opened: OpenChunk,
    /// Whether the chunk ends within a line of a text. Only the last line of a file may lack its
    /// line feed.
    leaves_line_open: bool,
    /// Bytes of the header of the file at the beginning of the chunk.
    header_bytes: usize,
    /// Bytes that the program reads in the place of the header's last block.
    behind_header: Vec<u8>,
}

/// The piece that the program reads, as offsets in its chunk. The program has read up to `at`.
struct FedPiece {
    begin: usize,
    at: usize,
    end: usize,
    /// Number of stored chunks of the piece, of which this is one.
    parts: usize,
}

/// A stored chunk that is read in the background.
struct ChunkLoad {
    chunk: u32,
    part: usize,
    loading: Background<Result<LoadedChunk, WorkError>>,
}

/// A chunk of the run: its number in the run, its file, its index there, the number of its pieces,
/// and that of stored chunks that it consists of. If these are several, they are one record, and
/// one piece.
#[derive(Clone)]
pub(super) struct ChunkSource {
    pub chunk: u32,
    pub file: Arc<File>,
    pub header: Arc<OnceCell<FileHeader>>,
    pub index: usize,
    pub parts: usize,
    pub pieces: u32,
}

impl ChunkSource {
    /// The header of the file, which is read once.
    pub async fn header(&self, files: &DfsClient) -> Result<&FileHeader, WorkError> {
        self.header.get_or_try_init(|| header_of(files, &self.file)).await
    }

    /// Offset in the file of this one of the stored chunks.
    pub fn offset(&self, part: usize) -> u64 {
        self.file.record.chunks[..self.index + part].iter().map(|chunk| chunk.size_bytes).sum()
    }
}

impl ProgramInput {
    /// No input yet.
    pub fn new(repeats_header: bool) -> Self {
        ProgramInput { repeats_header, ..ProgramInput::default() }
    }

    /// Begins with a new program, which has read nothing, and reads this header first.
    ///
    /// # Errors
    /// If the system has no timer for the pipe.
    pub fn open(&mut self, pipe: Sender, header: Vec<u8>) -> Result<(), WorkError> {
        self.header = header;
        let pause = Pause::new().map_err(WorkError::Input)?;
        let (written, half_time) = ((Instant::now(), 0), Duration::ZERO);
        self.pipe =
            Some(ProgramPipe { pipe, size_bytes: MIN_PIPE_BYTES, written, half_time, pause });
        Ok(())
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
        self.part > 0 || self.fed.as_ref().is_some_and(|fed| fed.at > fed.begin)
    }

    /// Whether the program has a piece that it has not read completely.
    pub fn is_feeding(&self) -> bool {
        self.fed.is_some()
    }

    /// Gives the program this piece of a chunk. If the chunk is not in memory, begins to read it:
    /// the method is called again when it has arrived.
    pub fn feed(&mut self, files: &DfsClient, source: &ChunkSource, piece: u32) {
        let wanted = (source.chunk, self.part);
        if let Some(loaded) =
            self.loaded.as_mut().filter(|loaded| (loaded.chunk, loaded.part) == wanted)
        {
            let (piece, ends) = (piece as usize, &loaded.opened.ends);
            let begin = if piece == 0 { 0 } else { ends[piece - 1] };
            let begin = if self.repeats_header {
                begin.max(loaded.header_bytes.min(ends[piece]))
            } else {
                begin
            };
            self.fed = Some(FedPiece { begin, at: begin, end: ends[piece], parts: source.parts });
            self.header.append(&mut loaded.behind_header);
            return;
        }
        self.loaded = None;
        let ahead = self.ahead.take().filter(|ahead| (ahead.chunk, ahead.part) == wanted);
        self.loading =
            Some(ahead.unwrap_or_else(|| {
                ChunkLoad::begin(files, source, self.part, self.repeats_header)
            }));
    }

    /// Reads ahead what follows the part that the program reads now: the next part of its chunk
    /// `present`, or the chunk `next`.
    pub fn read_ahead(
        &mut self,
        files: &DfsClient,
        present: Option<&ChunkSource>,
        next: Option<&ChunkSource>,
    ) {
        let ahead = match present.filter(|present| self.part + 1 < present.parts) {
            Some(present) => Some((present, self.part + 1)),
            None => next.map(|next| (next, 0)),
        };
        if ahead.map(|(source, part)| (source.chunk, part))
            != self.ahead.as_ref().map(|it| (it.chunk, it.part))
        {
            self.ahead = ahead
                .map(|(source, part)| ChunkLoad::begin(files, source, part, self.repeats_header));
        }
    }

    /// Waits until the program has read some bytes, and returns their number; or until a chunk has
    /// arrived, and returns `None`. The future may be dropped and the method called again.
    pub async fn advance(&mut self) -> Result<Option<usize>, WorkError> {
        if let Some(loading) = &mut self.loading {
            let loaded = loading.loading.done().await?;
            (self.loading, self.loaded) = (None, Some(loaded));
            return Ok(None);
        }
        let (Some(pipe), Some(loaded), Some(fed)) = (&mut self.pipe, &self.loaded, &mut self.fed)
        else {
            return std::future::pending().await;
        };
        if !self.header.is_empty() {
            let header = &mut self.header;
            let written = pipe.write(|pipe| Ok(rustix::io::write(pipe, header)?)).await;
            return match written {
                Ok(bytes) => {
                    header.drain(..bytes);
                    Ok(Some(0))
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    self.pipe = None;
                    Ok(None)
                }
                Err(error) => Err(WorkError::Input(error)),
            };
        }
        if fed.at == fed.end {
            return Ok(Some(0));
        }
        let written = match self.is_line_open {
            // The last line of a file and the first line of the next file are two lines.
            true => pipe.write(|pipe| Ok(rustix::io::write(pipe, b"\n")?)).await.map(|_| 0),
            false => pipe.write(|pipe| loaded.write_to(pipe, fed)).await,
        };
        match written {
            Ok(bytes) => {
                fed.at += bytes;
                self.is_line_open = fed.at == loaded.size_bytes() && loaded.leaves_line_open;
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

    /// Whether the program has read all of the present piece. If so, the next one can be given. If
    /// a stored chunk of it is left, that is given next.
    pub fn is_fed(&mut self) -> bool {
        let fed =
            if self.header.is_empty() { self.fed.take_if(|fed| fed.at == fed.end) } else { None };
        let Some(fed) = fed else { return false };
        self.part = if self.part + 1 < fed.parts { self.part + 1 } else { 0 };
        self.part == 0
    }
}

impl ProgramPipe {
    /// Writes some bytes, and adapts the size of the pipe to the rate at which the program reads.
    /// Returns the number of bytes, which `write` has returned. The future may be dropped and the
    /// method called again.
    ///
    /// When the pipe is full, the system wakes its writer after each read. A program with small
    /// reads, like `wc`, would switch to the writer and back for each of them. So the writer pauses
    /// until about half of the pipe is empty.
    async fn write(
        &mut self,
        mut write: impl FnMut(&Sender) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let written = loop {
            self.pause.ended().await?;
            self.pipe.writable().await?;
            match self.pipe.try_io(|| write(&self.pipe)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.half_time >= MIN_PAUSE {
                        self.pause.begin(self.half_time.min(MAX_PAUSE))?;
                    }
                }
                written => break written?,
            }
        };
        self.written.1 += written;
        let elapsed = self.written.0.elapsed();
        if elapsed >= METER_INTERVAL {
            let held = self.written.1 as f64 * PIPE_TIME.as_secs_f64() / elapsed.as_secs_f64();
            let size_bytes =
                (held as usize).clamp(MIN_PIPE_BYTES, MAX_PIPE_BYTES).next_power_of_two();
            // The system refuses a size that is less than what the pipe holds, and more than a user
            // may have. The pipe then keeps its size.
            if size_bytes != self.size_bytes && fcntl_setpipe_size(&self.pipe, size_bytes).is_ok() {
                self.size_bytes = size_bytes;
            }
            self.half_time =
                elapsed.mul_f64(self.size_bytes as f64 / 2.0 / self.written.1.max(1) as f64);
            self.written = (Instant::now(), 0);
        }
        Ok(written)
    }
}

impl LoadedChunk {
    fn new(source: &ChunkSource, part: usize, opened: OpenChunk) -> io::Result<Self> {
        let (chunk, format) = (source.chunk, *source.file.record.format);
        let mut loaded = LoadedChunk {
            chunk,
            part,
            opened,
            leaves_line_open: false,
            header_bytes: 0,
            behind_header: Vec::new(),
        };
        if let Some(at) = loaded.size_bytes().checked_sub(1).filter(|_| format.is_text()) {
            let mut last = [0];
            loaded.opened.content.read_exact_at(&mut last, at as u64)?;
            loaded.leaves_line_open = last != *b"\n";
        }
        Ok(loaded)
    }

    /// Leaves out the bytes of this header. The chunk is at `offset` in its file.
    fn skip(&mut self, header: &FileHeader, offset: u64) {
        let size_bytes = self.size_bytes() as u64;
        self.header_bytes = header.size_bytes.saturating_sub(offset).min(size_bytes) as usize;
        if (offset + 1..=offset + size_bytes).contains(&header.size_bytes) {
            self.behind_header.clone_from(&header.rest);
        }
    }

    fn size_bytes(&self) -> usize {
        self.opened.ends.last().copied().unwrap_or(0)
    }

    /// Writes as many bytes of the piece as the pipe takes. Returns their number.
    fn write_to(&self, pipe: &Sender, fed: &FedPiece) -> io::Result<usize> {
        let file = match &self.opened.content {
            ChunkContent::Bytes(bytes) => {
                return Ok(rustix::io::write(pipe, &bytes[fed.at..fed.end])?);
            }
            ChunkContent::File(checked) => checked.file(),
        };
        let mut from = fed.at as u64;
        match splice(file, Some(&mut from), pipe, None, fed.end - fed.at, SpliceFlags::NONBLOCK) {
            // Another program has truncated the file.
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            // Some file systems cannot do this.
            Err(Errno::INVAL) => {
                let mut bytes = vec![0; COPIED_BYTES.min(fed.end - fed.at)];
                file.read_exact_at(&mut bytes, fed.at as u64)?;
                Ok(rustix::io::write(pipe, &bytes)?)
            }
            spliced => Ok(spliced?),
        }
    }
}

impl ChunkLoad {
    /// Begins to read a stored chunk of a chunk of the run.
    fn begin(files: &DfsClient, source: &ChunkSource, part: usize, repeats_header: bool) -> Self {
        let (files, source, chunk) = (files.clone(), source.clone(), source.chunk);
        let loading = Background::spawn(async move {
            // This process only feeds the program, and both end together.
            let opened =
                files.open_chunk(&source.file, source.index + part, source.pieces, true).await?;
            let mut loaded = LoadedChunk::new(&source, part, opened).map_err(WorkError::Input)?;
            if repeats_header {
                loaded.skip(source.header(&files).await?, source.offset(part));
            }
            Ok(loaded)
        });
        ChunkLoad { chunk, part, loading }
    }
}
