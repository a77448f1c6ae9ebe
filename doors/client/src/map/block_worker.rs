//! Runs whose workers are programs of their own: a program asks for one piece of its block after
//! the other, and commits the result of all of them at once (elastic-blocks §3.2).
//!
//! For each block, a task in the background speaks with the leader of the run, so that the lease
//! continues while the program computes. If the program dies, the leader gives its pieces to other
//! workers, and its output never counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use eyas_files::blocks::{BlockPolicy, Effect, Event, POLICIES, WorkerBlock};
use eyas_files::{
    Background, ChunkContent, DfsClient, FilesError, FilesErrorKind, MAX_CHUNK_BYTES, OpenChunk,
    RunAddress, RunAttendance, RunSpec, RunStatus, WriteOptions,
};
use eyas_types::dfs::{FileName, NodeId, RecordFormat};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::input::ChunkSource;
use super::worker::{HEARTBEAT, part_name, sources};
use super::{ABANDONED, KeepAlive, NO_NODE, keep_alive, remove_outputs};

/// A run over the blocks of files.
pub struct BlockRun {
    pub(super) files: DfsClient,
    address: RunAddress,
    /// All chunks of the run.
    pub(super) chunks: Arc<[ChunkSource]>,
    _keep_alive: Option<KeepAlive>,
}

/// How a run is led.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The expected workers, by the node of each.
    slots: Vec<NodeId>,
    /// How pieces are assigned.
    pub policy: BlockPolicy,
    /// A worker that is silent for this time loses its block, microseconds.
    pub term_us: u64,
    /// The leader forgets the run if no client has asked about it for this time.
    pub idle: Duration,
}

impl RunOptions {
    /// The usual options, for about this number of workers.
    pub fn new(workers: u32, term_us: u64) -> Self {
        let slots = vec![NO_NODE; workers.max(1) as usize];
        RunOptions { slots, policy: POLICIES[0].1, term_us, idle: ABANDONED }
    }
}

/// A part of a file that a program processes as a whole. It consists of whole records.
#[derive(Debug)]
pub struct BlockPiece {
    /// The file.
    pub file: FileName,
    /// Place of the piece in the file.
    pub offset: u64,
    /// The bytes of the piece.
    pub content: Vec<u8>,
}

impl BlockRun {
    /// Opens a run over files. The leader forgets the run when it was idle for the time in the
    /// options, which begins when this value is dropped, or a worker last asked.
    ///
    /// # Errors
    /// `NotFound` if a file is missing; `Invalid` if there is no file, or there are too many
    /// chunks; `Unreachable`.
    pub async fn open(
        files: DfsClient,
        names: &[FileName],
        options: RunOptions,
    ) -> Result<BlockRun, FilesError> {
        let mut read = Vec::new();
        for name in names {
            read.push(files.stat(name).await?);
        }
        let RunOptions { slots, policy, term_us, idle } = options;
        let pieces = RunSpec::pieces_of(&read, slots.len());
        let spec = RunSpec { files: read, policy, slots, pieces, term_us, idle };
        let chunks = sources(&spec).into();
        let address = files.open_run(spec).await?;
        let keep_alive = KeepAlive(tokio::spawn(keep_alive(files.clone(), address)));
        Ok(BlockRun { files, address, chunks, _keep_alive: Some(keep_alive) })
    }

    /// Joins a run that another program has opened.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn join(files: DfsClient, address: RunAddress) -> Result<BlockRun, FilesError> {
        let chunks = sources(&files.run_spec(address).await?).into();
        Ok(BlockRun { files, address, chunks, _keep_alive: None })
    }

    /// The address, by which other programs join.
    pub fn address(&self) -> RunAddress {
        self.address
    }

    /// Number of chunks of all files.
    pub fn chunks(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// The status of the run.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn status(&self) -> Result<RunStatus, FilesError> {
        self.files.run_status(self.address).await
    }

    /// The outputs that count, in the order of the first piece of each. They are hidden files.
    pub fn outputs(&self, status: &RunStatus) -> Vec<FileName> {
        status.parts.iter().map(|part| self.address.run.file(part_name(part.worker))).collect()
    }

    /// Begins a new block, which has no piece at first.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn begin(&self) -> Result<BlockWorker, FilesError> {
        let attendance = self.files.attend_run(self.address).await?;
        let worker = attendance.worker();
        let block = ProgramBlock {
            files: self.files.clone(),
            chunks: self.chunks.clone(),
            owner: WorkerBlock::new(worker, self.files.near().unwrap_or(NO_NODE)),
            name: self.address.run.file(part_name(worker)),
            opened: None,
            stage: Stage::Idle,
            reply: None,
        };
        let (requests, receiver) = mpsc::channel(1);
        let working = tokio::spawn(block.work(attendance, receiver));
        Ok(BlockWorker::new(requests, working))
    }

    /// Ends the run, and removes the outputs that were not renamed. Workers get no further answers.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn close(&self) -> Result<(), FilesError> {
        match self.files.close_run(self.address).await {
            Err(error) if error.kind != FilesErrorKind::NotFound => return Err(error),
            _ => {}
        }
        remove_outputs(&self.files, self.address.run).await
    }
}

/// A block of a run, as its program sees it. The pieces of a block that is dropped go to other
/// workers.
pub struct BlockWorker {
    requests: mpsc::Sender<(BlockRequest, Reply)>,
    /// Whether the program has received the last piece. It may have given up waiting for it.
    has_piece: AtomicBool,
    working: JoinHandle<()>,
}

/// A request of the program.
pub(super) enum BlockRequest {
    Next {
        /// Whether the last piece was processed. If not, it is given out again.
        is_processed: bool,
    },
    Commit {
        /// Whether the last piece was processed. If not, it goes to another worker.
        is_processed: bool,
        output: Vec<u8>,
    },
}

pub(super) enum BlockAnswer {
    Piece(Option<BlockPiece>),
    /// Whether the output counts.
    Counts(bool),
}

pub(super) type Reply = oneshot::Sender<Result<BlockAnswer, FilesError>>;

impl BlockWorker {
    /// The program's end of a task in the background.
    pub(super) fn new(
        requests: mpsc::Sender<(BlockRequest, Reply)>,
        working: JoinHandle<()>,
    ) -> Self {
        BlockWorker { requests, has_piece: AtomicBool::new(false), working }
    }

    /// The next piece of the block; `None` if the block has no more. The piece before it counts as
    /// processed from now on. If the block has no piece at all, new blocks will not have any
    /// either. The future may be dropped and the method called again; it is called for one piece at
    /// a time.
    ///
    /// # Errors
    /// `Changed` if other workers have processed the block: the program has to discard its results,
    /// and may begin another block. `Lost` if the piece cannot be read; `Unreachable`.
    pub async fn next(&self) -> Result<Option<BlockPiece>, FilesError> {
        match self.ask(|is_processed| BlockRequest::Next { is_processed }).await? {
            BlockAnswer::Piece(piece) => {
                self.has_piece.store(piece.is_some(), Ordering::Relaxed);
                Ok(piece)
            }
            BlockAnswer::Counts(_) => Err(given_up()),
        }
    }

    /// Stores the output for all pieces that the program was given, and commits it. Returns whether
    /// it counts: it does not if other workers have processed the pieces.
    ///
    /// # Errors
    /// `Invalid` if the program was given no piece; `Full`; `Unreachable`. If the answer of the
    /// leader was lost, the output may count.
    pub async fn commit(self, output: Vec<u8>) -> Result<bool, FilesError> {
        match self.ask(|is_processed| BlockRequest::Commit { is_processed, output }).await {
            Ok(BlockAnswer::Counts(counts)) => Ok(counts),
            Err(error) if error.kind != FilesErrorKind::Changed => Err(error),
            Ok(BlockAnswer::Piece(_)) | Err(_) => Ok(false),
        }
    }

    /// Sends the request that `request` makes, and waits for its answer. `request` is told whether
    /// the last piece was processed.
    async fn ask(
        &self,
        request: impl FnOnce(bool) -> BlockRequest,
    ) -> Result<BlockAnswer, FilesError> {
        // If the task has ended, it has dropped the other ends of both channels.
        let permit = self.requests.reserve().await.map_err(|_| given_up())?;
        let (reply, answer) = oneshot::channel();
        // From here to the send, this call cannot be given up.
        permit.send((request(self.has_piece.swap(false, Ordering::Relaxed)), reply));
        answer.await.unwrap_or_else(|_| Err(given_up()))
    }

    /// Gives the pieces that are not committed to other workers, and waits until the leader was
    /// told.
    pub async fn leave(self) {
        drop(self.requests);
        // If the task has panicked, the lease ends by itself.
        let _ = self.working.await;
    }
}

pub(super) fn given_up() -> FilesError {
    let message = "this block has ended, or other workers have processed it: discard its results, \
                   and begin another";
    FilesError { kind: FilesErrorKind::Changed, message: message.into() }
}

/// The state of the task in the background.
struct ProgramBlock {
    files: DfsClient,
    chunks: Arc<[ChunkSource]>,
    /// The pieces that the worker has leased. Those of a chunk have successive numbers.
    owner: WorkerBlock,
    /// Name under which the output is stored.
    name: FileName,
    /// The chunk that was read last, by its number in the run.
    opened: Option<(u32, OpenChunk)>,
    stage: Stage,
    /// Awaited by the program.
    reply: Option<Reply>,
}

enum Stage {
    /// The program has no piece, and has not asked for one.
    Idle,
    /// The program waits for a piece.
    Asked,
    /// The program waits for a piece, whose chunk is being read.
    Opening(OpeningChunk),
    /// The program processes the current piece.
    Processing,
    /// The output is being stored.
    Storing(JoinHandle<Result<(), FilesError>>),
    /// The output is stored. The leader decides whether it counts.
    Committing,
}

/// A chunk that is being read.
struct OpeningChunk {
    /// The number of the chunk in the run.
    chunk: u32,
    reading: Background<Result<OpenChunk, FilesError>>,
}

enum BlockEnd {
    Committed,
    /// Other workers have processed the block.
    Discarded,
    /// The program has left.
    Left,
}

impl ProgramBlock {
    async fn work(
        mut self,
        mut attendance: RunAttendance,
        mut requests: mpsc::Receiver<(BlockRequest, Reply)>,
    ) {
        let ended = self.serve(&mut attendance, &mut requests).await;
        if matches!(ended, Ok(BlockEnd::Left) | Err(_)) {
            // The leader gives the pieces to other workers now, and not only when the lease ends.
            attendance.tell(Event::Gone { worker: attendance.worker() }).await;
        }
        match &self.stage {
            // After a commit without an answer, the output may count.
            Stage::Committing if !matches!(ended, Ok(BlockEnd::Discarded)) => {}
            Stage::Committing | Stage::Storing(_) => {
                // If this fails, the end of the run removes the file.
                let _ = self.files.remove(&self.name).await;
            }
            Stage::Idle | Stage::Asked | Stage::Opening(_) | Stage::Processing => {}
        }
        let answer = match ended {
            Ok(BlockEnd::Committed) => Ok(BlockAnswer::Counts(true)),
            Ok(BlockEnd::Discarded) => Err(given_up()),
            Ok(BlockEnd::Left) => return,
            Err(error) => Err(error),
        };
        let reply = match self.reply.take() {
            Some(reply) => Some(reply),
            // The program learns it from the answer to its next request.
            None => requests.recv().await.map(|(_, reply)| reply),
        };
        // A program that no longer waits needs no answer.
        let _ = reply.map(|reply| reply.send(answer));
    }

    async fn serve(
        &mut self,
        attendance: &mut RunAttendance,
        requests: &mut mpsc::Receiver<(BlockRequest, Reply)>,
    ) -> Result<BlockEnd, FilesError> {
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(question) = self.owner.request() {
                attendance.tell(question).await;
            }
            self.answer()?;
            tokio::select! {
                effect = attendance.next() => match effect? {
                    Some(Effect::Committed { .. }) => return Ok(BlockEnd::Committed),
                    Some(Effect::Discard { .. }) => return Ok(BlockEnd::Discarded),
                    Some(effect) => self.owner.told(&effect),
                    None => attendance.tell(self.heartbeat()).await,
                },
                request = requests.recv() => match request {
                    Some((request, reply)) => self.asked(request, reply)?,
                    None => return Ok(BlockEnd::Left),
                },
                done = self.stage.done() => match done? {
                    Some(opened) => {
                        self.opened = Some(opened);
                        self.stage = Stage::Asked;
                    }
                    None => {
                        self.stage = Stage::Committing;
                        attendance.tell(self.heartbeat()).await;
                    }
                },
                _ = beats.tick() => attendance.tell(self.heartbeat()).await,
            }
        }
    }

    fn asked(&mut self, request: BlockRequest, reply: Reply) -> Result<(), FilesError> {
        self.reply = Some(reply);
        let (BlockRequest::Next { is_processed } | BlockRequest::Commit { is_processed, .. }) =
            &request;
        if *is_processed && matches!(self.stage, Stage::Processing) {
            self.owner.end_chunk();
        }
        self.stage = match request {
            // The program did not wait for the piece, and asks for it again.
            BlockRequest::Next { .. } if matches!(self.stage, Stage::Opening(_)) => return Ok(()),
            BlockRequest::Next { .. } => Stage::Asked,
            BlockRequest::Commit { .. } if self.owner.done() == 0 => {
                self.stage = Stage::Idle;
                let message = "there is nothing to commit: the block had no piece that the \
                               program could process";
                return Err(FilesError { kind: FilesErrorKind::Invalid, message: message.into() });
            }
            BlockRequest::Commit { output, .. } => {
                Stage::Storing(tokio::spawn(store(self.files.clone(), self.name.clone(), output)))
            }
        };
        Ok(())
    }

    /// Gives the program the piece that it waits for, or begins to read the chunk of the piece.
    fn answer(&mut self) -> Result<(), FilesError> {
        if !matches!(self.stage, Stage::Asked) {
            return Ok(());
        }
        let piece = match self.owner.current() {
            None if self.owner.is_at_end() => {
                self.stage = Stage::Idle;
                None
            }
            // The leader has not answered yet.
            None => return Ok(()),
            Some(number) => {
                let source = &self.chunks[(number / self.chunks[0].pieces) as usize];
                match self.opened.as_ref().filter(|(chunk, _)| *chunk == source.chunk) {
                    None => {
                        let (files, source, chunk) =
                            (self.files.clone(), source.clone(), source.chunk);
                        // The process is any program, which must not end because another one
                        // shortens a file.
                        let reading =
                            Background::spawn(async move { open_all(&files, &source).await });
                        self.stage = Stage::Opening(OpeningChunk { chunk, reading });
                        return Ok(());
                    }
                    Some((_, opened)) => {
                        let piece = piece_of(source, opened, number % source.pieces)?;
                        self.stage = Stage::Processing;
                        Some(piece)
                    }
                }
            }
        };
        // A program that no longer waits needs no answer.
        let _ = self.reply.take().map(|reply| reply.send(Ok(BlockAnswer::Piece(piece))));
        Ok(())
    }

    fn heartbeat(&self) -> Event {
        match self.stage {
            Stage::Committing => self.owner.commit().expect("a worker with an output has a lease"),
            _ => self.owner.heartbeat(),
        }
    }
}

impl Stage {
    /// Waits until a chunk is open, which is the result, or the output is stored. The future may be
    /// dropped and the method called again.
    async fn done(&mut self) -> Result<Option<(u32, OpenChunk)>, FilesError> {
        match self {
            Stage::Opening(opening) => Ok(Some((opening.chunk, opening.reading.done().await?))),
            Stage::Storing(storing) => {
                let stored = storing.await.unwrap_or_else(eyas_panics::resume);
                stored.map(|()| None)
            }
            Stage::Idle | Stage::Asked | Stage::Processing | Stage::Committing => {
                std::future::pending().await
            }
        }
    }
}

/// Opens a chunk of the run. One that is stored in several chunks is one record, and has to be in
/// memory.
pub(super) async fn open_all(
    files: &DfsClient,
    source: &ChunkSource,
) -> Result<OpenChunk, FilesError> {
    if source.parts <= 1 {
        return files.open_chunk(&source.file, source.index, source.pieces, false).await;
    }
    let (name, size_bytes) = (&source.file.name, source.file.record.size_bytes());
    if size_bytes > MAX_CHUNK_BYTES as u64 {
        let message = format!(
            "{name} is one record of {size_bytes} bytes, and a program gets a record of up to \
             {MAX_CHUNK_BYTES}: read it as a file"
        );
        return Err(FilesError { kind: FilesErrorKind::Invalid, message });
    }
    let mut all = Vec::with_capacity(size_bytes as usize);
    for part in 0..source.parts {
        let opened =
            files.open_chunk(&source.file, source.index + part, source.pieces, false).await?;
        let size = opened.ends.last().copied().unwrap_or(0);
        let begin = all.len();
        all.resize(begin + size, 0);
        opened
            .content
            .read_exact_at(&mut all[begin..], 0)
            .map_err(|error| unreadable(name, &error))?;
    }
    let ends = vec![all.len()];
    Ok(OpenChunk { content: ChunkContent::Bytes(all), ends })
}

fn unreadable(name: &FileName, error: &std::io::Error) -> FilesError {
    let message = format!("a chunk of {name} in the store of this node cannot be read: {error}");
    FilesError { kind: FilesErrorKind::Local, message }
}

/// The piece of a chunk with this number.
pub(super) fn piece_of(
    source: &ChunkSource,
    opened: &OpenChunk,
    number: u32,
) -> Result<BlockPiece, FilesError> {
    let (begin, end) = match number as usize {
        0 => (0, opened.ends[0]),
        number => (opened.ends[number - 1], opened.ends[number]),
    };
    let mut content = vec![0; end - begin];
    let read = opened.content.read_exact_at(&mut content, begin as u64);
    read.map_err(|error| unreadable(&source.file.name, &error))?;
    Ok(BlockPiece {
        file: source.file.name.clone(),
        offset: source.offset(0) + begin as u64,
        content,
    })
}

/// Stores an output under a name of the file system.
async fn store(files: DfsClient, name: FileName, output: Vec<u8>) -> Result<(), FilesError> {
    // A program can run again.
    let options = WriteOptions {
        is_durable: false,
        ..WriteOptions::of(RecordFormat::guess(name.as_str(), &output))
    };
    files.write(&name, std::io::Cursor::new(output), options, |_| {}).await.map(drop)
}
