//! A task of a job over blocks: claims chunks, reads them, feeds them to its program, stores the
//! program's output, and commits.
//!
//! Each process of the program is a worker of the run. Its output is stored under a name of the
//! worker's own. The output is used only if the leader of the run has committed it. So each chunk
//! counts once, whichever process fails at whichever moment.

use std::io::{self, PipeReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use eyas_files::blocks::{Effect, Event, WorkerBlock, WorkerId};
use eyas_files::{DfsClient, File, RunAddress, RunAttendance, RunSpec, WriteOptions};
use eyas_types::dfs::{Chunk, FileName, Format, PROBED_BYTES, RecordFormat, is_text};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::NO_NODE;
use super::error::WorkError;
use super::input::{ChunkSource, ProgramInput};
use super::partition::partition;
use super::pipeline::{PIPE_BYTES, Pipeline, Stage, pipe, program, shell};

/// Interval of heartbeats. A heartbeat also repeats a request that has no answer yet.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);

/// In arguments of a program, stands for the name of the file that the program reads.
pub(super) const FILE: &str = "{file}";

/// Environment variable with the name of the file, if the program reads one file only.
const FILE_VARIABLE: &str = "EYAS_FILE";

/// The work of one task of a job over blocks.
#[derive(Clone, Debug)]
pub struct MapTask {
    /// The run whose chunks are read.
    pub address: RunAddress,
    /// The program that reads the blocks, and its arguments. `{file}` in an argument stands for
    /// the name of the file.
    pub program: Vec<String>,
    /// Whether the program is started anew for each file of a block, so that one process reads one
    /// file only.
    pub by_file: bool,
    /// Whether each process of the program reads the header of its file first.
    pub repeats_header: bool,
    /// Partitioning of the program's lines for a reduce; without it, the output is stored as it
    /// is.
    pub shuffle: Option<Shuffle>,
    /// Folder for the program's output, until it is stored.
    pub scratch: PathBuf,
}

/// How lines are partitioned among reducers.
#[derive(Clone, Debug)]
pub struct Shuffle {
    /// Number of reducers.
    pub partitions: u32,
    /// Shell command that is applied to the lines, sorted by key, before they are partitioned.
    pub combine: Option<String>,
}

/// Works on blocks of a run until no chunk is left.
///
/// # Errors
/// If the program fails, a chunk cannot be read, an output cannot be stored, or the leader of the
/// run does not answer.
pub async fn map_worker(files: &DfsClient, task: &MapTask) -> Result<(), WorkError> {
    let spec = files.run_spec(task.address).await?;
    let chunks = sources(&spec);
    while work_through_block(files, task, &chunks).await? {}
    Ok(())
}

/// All chunks of a run.
pub(super) fn sources(spec: &RunSpec) -> Vec<ChunkSource> {
    let files: Vec<_> = spec.files.iter().cloned().map(Arc::new).collect();
    let headers: Vec<_> = files.iter().map(|_| Arc::new(OnceCell::new())).collect();
    let source = |(chunk, (file, index, chunks)): (u32, (usize, usize, &[Chunk]))| ChunkSource {
        chunk,
        file: files[file].clone(),
        header: headers[file].clone(),
        index,
        parts: chunks.len(),
        pieces: spec.pieces,
    };
    (0..).zip(spec.chunks()).map(source).collect()
}

/// Name of a worker's output in the hidden folder of the run.
pub(super) fn part_name(worker: WorkerId) -> String {
    format!("map-{:016x}", worker.0)
}

/// Works through one block, and returns whether there may be another one.
async fn work_through_block(
    files: &DfsClient,
    task: &MapTask,
    chunks: &[ChunkSource],
) -> Result<bool, WorkError> {
    let mut attendance = files.attend_run(task.address).await?;
    let worker = attendance.worker();
    let name = task.address.run.file(part_name(worker));
    let input = ProgramInput::new(task.repeats_header);
    let owner = WorkerBlock::new(worker, files.near().unwrap_or(NO_NODE));
    let mut block =
        Block { files, task, chunks, owner, input, file: None, state: State::Idle, name };
    let done = block.work(&mut attendance).await;
    let is_asking = matches!(block.state, State::Committing);
    block.state = State::Idle;
    match &done {
        Ok(BlockOutcome::Committed) => return Ok(true),
        Ok(BlockOutcome::NothingLeft) => return Ok(false),
        Ok(BlockOutcome::Discarded) => {}
        // The leader gives the chunks to other workers now, and not only when the lease ends.
        Err(_) => attendance.tell(Event::Gone { worker }).await,
    }
    if done.is_ok() || !is_asking {
        // The output does not count. (After a commit without an answer, it may.) If this fails, the
        // end of the run removes the file.
        let _ = files.remove(&block.name).await;
    }
    done.map(|_| true)
}

enum BlockOutcome {
    Committed,
    Discarded,
    /// No chunk is left for this worker, and none will be.
    NothingLeft,
}

/// A block, and the processes of the program that work through it.
struct Block<'a> {
    files: &'a DfsClient,
    task: &'a MapTask,
    /// All chunks of the run.
    chunks: &'a [ChunkSource],
    /// The pieces that the worker has leased. Those of a chunk have successive numbers.
    owner: WorkerBlock,
    input: ProgramInput,
    /// The file that the program reads, or has read last.
    file: Option<Arc<File>>,
    state: State,
    /// Name under which the output is stored.
    name: FileName,
}

enum State {
    /// The block has no chunk yet.
    Idle,
    /// The program runs.
    Running(Pipeline, Output),
    /// The program has succeeded. The next chunk belongs to another file, for which the program is
    /// started anew.
    BetweenFiles(Output),
    /// The program has succeeded, and its output is being stored.
    Storing(OutputUpload),
    /// The output is stored. The leader has not answered yet whether it counts.
    Committing,
}

/// The output of a block.
enum Output {
    Whole(std::fs::File),
    /// Lines for a reduce: the outputs of the processes, for the thread that partitions them, and
    /// its result.
    Partitioned(mpsc::Sender<PipeReader>, JoinHandle<io::Result<Box<dyn Read + Send>>>),
}

impl Output {
    /// An output for all processes of a block, one after the other.
    fn begin(task: &MapTask) -> io::Result<Self> {
        let Some(Shuffle { partitions, .. }) = task.shuffle else {
            return Ok(Output::Whole(tempfile::tempfile_in(&task.scratch)?));
        };
        let (outputs, sources) = mpsc::channel();
        let scratch = task.scratch.clone();
        let partitioning =
            tokio::task::spawn_blocking(move || partition(sources, partitions, &scratch));
        Ok(Output::Partitioned(outputs, partitioning))
    }

    /// Ends the output of a process.
    fn end_process(&self) -> io::Result<()> {
        match self {
            Output::Whole(file) => end_text(file),
            Output::Partitioned(..) => Ok(()),
        }
    }

    /// Standard output of a process.
    fn of_program(&self) -> Result<Stdio, WorkError> {
        Ok(match self {
            Output::Whole(file) => file.try_clone()?.into(),
            // A pipe for each process, so that the last line of a process ends also without a line
            // feed.
            Output::Partitioned(outputs, _) => {
                let (lines, writer) = pipe(PIPE_BYTES)?;
                // The thread has failed if it does not take the pipe; its result says so.
                let _ = outputs.send(lines);
                writer.into()
            }
        })
    }
}

/// Storing an output in the background. Dropping it stops it.
struct OutputUpload(JoinHandle<Result<(), WorkError>>);

impl<'a> Block<'a> {
    async fn work(&mut self, attendance: &mut RunAttendance) -> Result<BlockOutcome, WorkError> {
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.advance(attendance).await?;
            tokio::select! {
                effect = attendance.next() => match effect? {
                    Some(Effect::Committed { .. }) => return Ok(BlockOutcome::Committed),
                    Some(Effect::Discard { .. }) => return Ok(BlockOutcome::Discarded),
                    Some(Effect::NoMore { chunks: 0, .. }) => return Ok(BlockOutcome::NothingLeft),
                    Some(effect) => self.owner.told(&effect),
                    None => attendance.tell(self.heartbeat()).await,
                },
                written = self.input.advance() => if let Some(bytes) = written? {
                    self.owner.read(bytes as u64);
                    if self.input.is_fed() {
                        self.owner.end_chunk();
                    }
                },
                state = self.state.advance() => self.enter(state?, attendance).await?,
                _ = beats.tick() => attendance.tell(self.heartbeat()).await,
            }
        }
    }

    /// Takes all steps that are possible now: starts the program, asks for chunks, reads them, ends
    /// the program's input.
    async fn advance(&mut self, attendance: &RunAttendance) -> Result<(), WorkError> {
        if matches!(self.state, State::Storing(_) | State::Committing) {
            return Ok(());
        }
        let is_between = matches!(self.state, State::Idle | State::BetweenFiles(_));
        let is_reading = is_between || self.input.is_open();
        if let Some(question) = self.owner.request().filter(|_| is_reading) {
            attendance.tell(question).await;
        }
        if let (true, Some((chunk, _))) = (is_between, self.current()) {
            let header = match self.task.repeats_header {
                true => chunk.header(self.files).await?.bytes.clone(),
                false => Vec::new(),
            };
            self.start(chunk, header)?;
        }
        if self.owner.is_at_end() || self.is_at_other_file() {
            self.input.close();
        }
        if let Some((chunk, piece)) = self.current()
            && self.input.wants_piece()
        {
            self.input.feed(self.files, chunk, piece);
        }
        let is_open = self.input.is_open();
        let present = self.current().map(|(chunk, _)| chunk);
        self.input.read_ahead(
            self.files,
            present.filter(|_| is_open),
            self.upcoming().filter(|_| is_open),
        );
        Ok(())
    }

    /// The piece to read now: its chunk, and its number in the chunk.
    fn current(&self) -> Option<(&'a ChunkSource, u32)> {
        let piece = self.owner.current()?;
        let chunk = self.chunk_of(piece);
        Some((chunk, piece % chunk.pieces))
    }

    /// The chunk that will probably be read after the present one. The leader may give it to
    /// another worker.
    fn upcoming(&self) -> Option<&'a ChunkSource> {
        let mut chunks = self.owner.chunks()[self.owner.done() as usize..]
            .iter()
            .map(|piece| self.chunk_of(*piece));
        match self.owner.current() {
            None => chunks.next(),
            Some(present) => chunks.find(|chunk| chunk.chunk != self.chunk_of(present).chunk),
        }
    }

    fn chunk_of(&self, piece: u32) -> &'a ChunkSource {
        &self.chunks[(piece / self.chunks[0].pieces) as usize]
    }

    /// Whether the program has read all chunks of its file, and the next chunk belongs to another
    /// file.
    fn is_at_other_file(&self) -> bool {
        let current = self.current().map(|(chunk, _)| &chunk.file);
        let is_other = match (current, &self.file) {
            (Some(current), Some(file)) => !Arc::ptr_eq(current, file),
            _ => false,
        };
        self.task.by_file && is_other && !self.input.is_feeding()
    }

    /// Starts the program. `chunk` is the first chunk that it reads, after the header.
    fn start(&mut self, chunk: &ChunkSource, header: Vec<u8>) -> Result<(), WorkError> {
        let file = &chunk.file;
        let reads_one_file =
            self.task.by_file || self.chunks.iter().all(|other| Arc::ptr_eq(&other.file, file));
        let name = file.name.as_str();
        let words: Vec<_> = self.task.program.iter().map(|word| word.replace(FILE, name)).collect();
        let mut first = program(if self.task.by_file { &words } else { &self.task.program });
        if reads_one_file {
            first.env(FILE_VARIABLE, name);
        }
        let mut stages = vec![Stage::from(first)];
        if let Some(combine) =
            self.task.shuffle.as_ref().and_then(|shuffle| shuffle.combine.as_ref())
        {
            stages.push(Stage::from(shell(combine)).sorted(&self.task.scratch));
        }
        self.file = Some(file.clone());
        let output = match std::mem::replace(&mut self.state, State::Idle) {
            State::BetweenFiles(output) => {
                output.end_process()?;
                output
            }
            _ => Output::begin(self.task)?,
        };
        let (pipeline, pipe) = Pipeline::start(stages, output.of_program()?)?;
        self.input.open(pipe, header)?;
        self.state = State::Running(pipeline, output);
        Ok(())
    }

    /// Enters the next state: the program has succeeded, or its output is stored.
    async fn enter(&mut self, next: StateEnd, attendance: &RunAttendance) -> Result<(), WorkError> {
        match next {
            StateEnd::Ended => {
                // A program may end before it has read all of its input. Chunks of which it has
                // read nothing go back to the leader. But the first chunk always counts as read:
                // otherwise another worker would begin with it and end the same way, without end.
                if (self.input.is_begun() || self.owner.done() == 0)
                    && let Some((begun, _)) = self.current()
                {
                    while self.current().is_some_and(|(chunk, _)| chunk.chunk == begun.chunk) {
                        self.owner.end_chunk();
                    }
                }
                self.input = ProgramInput::new(self.task.repeats_header);
                let State::Running(_, output) =
                    std::mem::replace(&mut self.state, State::Committing)
                else {
                    unreachable!("only a program that runs can end")
                };
                if self.is_at_other_file() {
                    self.state = State::BetweenFiles(output);
                    return Ok(());
                }
                let (files, name) = (self.files.clone(), self.name.clone());
                self.state = State::Storing(OutputUpload(tokio::spawn(store(files, name, output))));
            }
            StateEnd::Stored => {
                self.state = State::Committing;
                attendance.tell(self.heartbeat()).await;
            }
        }
        Ok(())
    }

    fn heartbeat(&self) -> Event {
        let commit =
            || self.owner.commit().expect("a worker that has stored its output has read a chunk");
        if matches!(self.state, State::Committing) { commit() } else { self.owner.heartbeat() }
    }
}

/// How a state has ended.
enum StateEnd {
    /// The program has succeeded.
    Ended,
    /// The output is stored.
    Stored,
}

impl State {
    /// Waits until the present state ends; forever if it does not end by itself. The future may be
    /// dropped and the method called again.
    async fn advance(&mut self) -> Result<StateEnd, WorkError> {
        match self {
            State::Running(pipeline, _) => {
                pipeline.wait().await?;
                Ok(StateEnd::Ended)
            }
            State::Storing(OutputUpload(storing)) => {
                storing.await.unwrap_or_else(eyas_panics::resume).map(|()| StateEnd::Stored)
            }
            State::Idle | State::BetweenFiles(_) | State::Committing => {
                std::future::pending().await
            }
        }
    }
}

impl Drop for OutputUpload {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stores an output under a name of the file system.
async fn store(files: DfsClient, name: FileName, output: Output) -> Result<(), WorkError> {
    match output {
        Output::Whole(file) => store_whole(&files, &name, file).await,
        Output::Partitioned(outputs, partitioning) => {
            drop(outputs);
            let partitioned = partitioning.await.unwrap_or_else(eyas_panics::resume)?;
            let options = WriteOptions {
                is_durable: false,
                ..WriteOptions::of(Format::Fixed { record_bytes: 1 })
            };
            files.write(&name, partitioned, options, |_| {}).await?;
            Ok(())
        }
    }
}

/// Ends the last line of an output that is text, to which the next output of the job is joined: in
/// this task, or by `cat`. Other content stays as it is: a line feed between two streams of bzip2
/// would hide the second one.
fn end_text(mut file: &std::fs::File) -> io::Result<()> {
    let mut last = [0];
    match file.metadata()?.len().checked_sub(1) {
        Some(at) => file.read_exact_at(&mut last, at)?,
        None => return Ok(()),
    }
    let beginning = beginning_of(file)?;
    // The beginning may end within a character.
    let is_utf8 =
        std::str::from_utf8(&beginning).map_or_else(|error| error.error_len().is_none(), |_| true);
    if last != *b"\n" && is_utf8 && is_text(&beginning) { file.write_all(b"\n") } else { Ok(()) }
}

/// The bytes by which a content is found to be text or not.
fn beginning_of(file: &std::fs::File) -> io::Result<Vec<u8>> {
    let mut beginning = vec![0; PROBED_BYTES];
    let read = file.read_at(&mut beginning, 0)?;
    beginning.truncate(read);
    Ok(beginning)
}

/// Stores the output of a task. A text is stored as records, one for each line.
pub(super) async fn store_whole(
    files: &DfsClient,
    name: &FileName,
    mut file: std::fs::File,
) -> Result<(), WorkError> {
    end_text(&file)?;
    file.seek(SeekFrom::Start(0))?;
    let format = RecordFormat::guess(name.as_str(), &beginning_of(&file)?);
    // A program can run again.
    let options = WriteOptions { is_durable: false, ..WriteOptions::of(format) };
    files.write(name, file, options, |_| {}).await?;
    Ok(())
}
