//! A task of a job over blocks: claims chunks, reads them, feeds them to its program, stores what that writes, and commits.
//!
//! Each run of the program is a worker of the run. What it wrote is stored under the worker's own name, where nobody looks
//! for it unless the run's leader has said that it counts. So whatever dies when, each chunk counts once.

use std::io::{self, ErrorKind, PipeWriter, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use eyas_dfs::blocks::{BlockPolicy, Effect, Event, WorkerBlock, WorkerId};
use eyas_dfs::{DfsClient, File, FilesError, FilesErrorKind, RunAddress, RunAttendance, WriteOptions};
use eyas_types::dfs::{FileName, FileRecord, Format};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::NO_NODE;
use super::busy::Busy;
use super::partition::partition;
use super::pipeline::{Pipeline, program, shell, sort};

/// A worker says so often that it is alive, and asks again what was not answered.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Stands for the name of the file that a program reads, in its arguments.
pub(super) const FILE: &str = "{file}";

/// The same in its environment, as long as it reads one file alone.
const FILE_VARIABLE: &str = "EYAS_FILE";

/// Looked at to see whether a program writes text.
const LOOKED_AT_BYTES: u64 = 8 << 10;

/// What a task of a job over blocks does.
#[derive(Clone, Debug)]
pub struct MapTask {
    /// The run that it works at.
    pub place: RunAddress,
    /// What reads the blocks, and its arguments, in which `FILE` stands for the name of the file that it reads.
    pub program: Vec<String>,
    /// Whether the program is started anew for each file of a block, so that it reads one file alone.
    pub by_file: bool,
    /// What becomes of the lines that it writes; they are stored as they are, if it is not said.
    pub shuffle: Option<Shuffle>,
    /// A folder for what the program writes, until that is stored.
    pub scratch: PathBuf,
}

/// How lines are parted among reducers.
#[derive(Clone, Debug)]
pub struct Shuffle {
    /// How many there are.
    pub partitions: u32,
    /// A shell's command that is applied to lines sorted by key before that.
    pub combine: Option<String>,
}

/// Why a task of a job over blocks fails.
#[derive(Debug, Error)]
pub enum WorkError {
    /// The file system, or the run's leader.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The program.
    #[error("{0}")]
    Program(String),
    /// This node's disk, for what the program writes.
    #[error("cannot keep what the program writes: {0}")]
    Scratch(#[from] io::Error),
}

/// Works at a run until there is nothing left to do.
///
/// # Errors
/// If the program fails, a chunk cannot be read, what was written not be stored, or nobody leads the run any more.
pub async fn map_worker(files: &DfsClient, task: &MapTask) -> Result<(), WorkError> {
    let spec = files.run_spec(task.place).await?;
    let files_read: Vec<_> = spec.files.iter().cloned().map(Arc::new).collect();
    let chunks: Vec<_> = spec.chunks().map(|(file, place, _)| (files_read[file].clone(), place)).collect();
    let mut busy = matches!(spec.policy, BlockPolicy::IoAware(_)).then(Busy::begin);
    while work_through_block(files, task, &chunks, busy.as_mut()).await? {}
    Ok(())
}

/// What a worker's output is called in its run.
pub(super) fn part_name(worker: WorkerId) -> String {
    format!("map-{:016x}", worker.0)
}

/// Works through one block with one program; tells whether there may be another. Says how busy this machine is, if that is
/// looked at.
async fn work_through_block(
    files: &DfsClient,
    task: &MapTask,
    chunks: &[(Arc<File>, usize)],
    busy: Option<&mut Busy>,
) -> Result<bool, WorkError> {
    let mut attendance = files.attend_run(task.place).await?;
    let worker = attendance.worker();
    let name = task.place.run.file(part_name(worker));
    let input = Input { fed: None, loading: None, ahead: None, pipe: None };
    let owner = WorkerBlock::new(worker, files.near().unwrap_or(NO_NODE));
    let mut block = Block { files, task, chunks, owner, input, file: None, state: State::Idle, name };
    let done = block.work(&mut attendance, busy).await;
    let is_asking = matches!(block.state, State::Committing);
    block.state = State::Idle;
    match &done {
        Ok(Ended::Committed) => return Ok(true),
        Ok(Ended::NothingLeft) => return Ok(false),
        Ok(Ended::Discarded) => {}
        // So that others need not wait until it is missed.
        Err(_) => attendance.tell(Event::Gone { worker }).await,
    }
    if done.is_ok() || !is_asking {
        // It counts for nothing, while it may count where there was no answer. If it stays, who waits for the run removes it.
        let _ = files.remove(&block.name).await;
    }
    done.map(|_| true)
}

enum Ended {
    Committed,
    Discarded,
    /// There is nothing for it, and there will be nothing.
    NothingLeft,
}

/// A block, and the program that works through it.
struct Block<'a> {
    files: &'a DfsClient,
    task: &'a MapTask,
    /// Of the run: each in which file, and where in that.
    chunks: &'a [(Arc<File>, usize)],
    owner: WorkerBlock,
    input: Input,
    /// What the program reads, or has read last.
    file: Option<Arc<File>>,
    state: State,
    /// What is written is stored under it.
    name: FileName,
}

enum State {
    /// It has no chunk yet.
    Idle,
    /// The program runs.
    Running(Pipeline, Output),
    /// It has ended well, and what follows is of another file, for which it is started anew.
    BetweenFiles(Output),
    /// The program has ended well.
    Storing(Storing),
    Committing,
}

/// What a program writes.
enum Output {
    Whole(std::fs::File),
    /// Lines, parted among reducers.
    Parted(PipeWriter, JoinHandle<io::Result<Box<dyn Read + Send>>>),
}

impl Output {
    /// For the output of a block's programs, one after the other.
    fn begin(task: &MapTask) -> io::Result<Self> {
        let Some(Shuffle { partitions, .. }) = task.shuffle else {
            return Ok(Output::Whole(tempfile::tempfile_in(&task.scratch)?));
        };
        let (lines, writer) = io::pipe()?;
        let scratch = task.scratch.clone();
        let parting = tokio::task::spawn_blocking(move || partition(lines, partitions, &scratch));
        Ok(Output::Parted(writer, parting))
    }

    /// Where a program writes.
    fn of_program(&self) -> io::Result<Stdio> {
        Ok(match self {
            Output::Whole(file) => file.try_clone()?.into(),
            Output::Parted(writer, _) => writer.try_clone()?.into(),
        })
    }
}

/// Ends when it is dropped.
struct Storing(JoinHandle<Result<(), WorkError>>);

/// What a program reads.
struct Input {
    pipe: Option<ChildStdin>,
    /// A chunk, and how much of it the program has.
    fed: Option<(Vec<u8>, usize)>,
    loading: Option<Loading>,
    ahead: Option<Loading>,
}

/// A chunk on its way here.
struct Loading {
    chunk: u32,
    content: JoinHandle<Result<Vec<u8>, FilesError>>,
}

impl Block<'_> {
    async fn work(&mut self, attendance: &mut RunAttendance, mut busy: Option<&mut Busy>) -> Result<Ended, WorkError> {
        // Before it claims, so that it is known when chunks are divided.
        self.measure(attendance, &mut busy).await;
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.go_on(attendance).await?;
            tokio::select! {
                told = attendance.next() => match told? {
                    Some(Effect::Committed { .. }) => return Ok(Ended::Committed),
                    Some(Effect::Discard { .. }) => return Ok(Ended::Discarded),
                    Some(Effect::NoMore { chunks: 0, .. }) => return Ok(Ended::NothingLeft),
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
                _ = beats.tick() => {
                    self.measure(attendance, &mut busy).await;
                    attendance.tell(self.heartbeat()).await;
                }
            }
        }
    }

    /// Says how busy this machine is.
    async fn measure(&self, attendance: &RunAttendance, busy: &mut Option<&mut Busy>) {
        if let (Some(busy), Some(node)) = (busy, self.files.near()) {
            let (disk, load) = busy.look();
            attendance.tell(Event::Measured { node, disk, load }).await;
        }
    }

    /// Does what can be done now: starts the program, asks for chunks, fetches them, ends the program's input.
    async fn go_on(&mut self, attendance: &RunAttendance) -> Result<(), WorkError> {
        if matches!(self.state, State::Storing(_) | State::Committing) {
            return Ok(());
        }
        let is_between = matches!(self.state, State::Idle | State::BetweenFiles(_));
        let is_reading = is_between || self.input.pipe.is_some();
        if let Some(question) = self.owner.request().filter(|_| is_reading) {
            attendance.tell(question).await;
        }
        if let (true, Some(chunk)) = (is_between, self.owner.current()) {
            self.start(chunk)?;
        }
        if self.owner.is_at_end() || self.is_at_other_file() {
            self.input.pipe = None;
        }
        if let Some(chunk) = self.owner.current()
            && self.input.wants_chunk()
        {
            let ahead = self.input.ahead.take().filter(|ahead| ahead.chunk == chunk);
            self.input.loading = Some(ahead.unwrap_or_else(|| self.load(chunk)));
        }
        // What is next may be known only now that an answer has come, and may be another's by now.
        let upcoming = self.owner.upcoming().filter(|_| self.input.pipe.is_some());
        if upcoming != self.input.ahead.as_ref().map(|ahead| ahead.chunk) {
            self.input.ahead = upcoming.map(|chunk| self.load(chunk));
        }
        Ok(())
    }

    /// Whether the program has all of its file, and what follows is of another.
    fn is_at_other_file(&self) -> bool {
        let current = self.owner.current().map(|chunk| &self.chunks[chunk as usize].0);
        let is_other = matches!((current, &self.file), (Some(current), Some(file)) if !Arc::ptr_eq(current, file));
        self.task.by_file && is_other && self.input.fed.is_none()
    }

    /// Starts the program, which begins with this chunk.
    fn start(&mut self, chunk: u32) -> Result<(), WorkError> {
        let file = &self.chunks[chunk as usize].0;
        let reads_one_file = self.task.by_file || self.chunks.iter().all(|(other, _)| Arc::ptr_eq(other, file));
        let name = file.name.as_str();
        let words: Vec<_> = self.task.program.iter().map(|word| word.replace(FILE, name)).collect();
        let mut first = program(if self.task.by_file { &words } else { &self.task.program });
        if reads_one_file {
            first.env(FILE_VARIABLE, name);
        }
        let mut commands = vec![first];
        if let Some(combine) = self.task.shuffle.as_ref().and_then(|shuffle| shuffle.combine.as_ref()) {
            commands.extend([sort(&self.task.scratch), shell(combine)]);
        }
        self.file = Some(file.clone());
        let output = match std::mem::replace(&mut self.state, State::Idle) {
            State::BetweenFiles(output) => output,
            _ => Output::begin(self.task)?,
        };
        let (pipeline, pipe) = Pipeline::start(commands, output.of_program()?).map_err(WorkError::Program)?;
        self.input.pipe = Some(pipe);
        self.state = State::Running(pipeline, output);
        Ok(())
    }

    /// The program has ended well, or what it wrote is stored.
    async fn enter(&mut self, next: Next, attendance: &RunAttendance) -> Result<(), WorkError> {
        match next {
            Next::Ended => {
                // A program need not read all that it is given. What it was handed nothing of goes back; but something it
                // must have had, so that others do not begin where it did.
                let is_begun = self.input.fed.as_ref().is_some_and(|(_, at)| *at > 0) || self.owner.done() == 0;
                if is_begun && self.owner.current().is_some() {
                    self.owner.end_chunk();
                }
                self.input = Input { fed: None, loading: None, ahead: None, pipe: None };
                let State::Running(_, output) = std::mem::replace(&mut self.state, State::Committing) else {
                    unreachable!("what has ended was running")
                };
                if self.is_at_other_file() {
                    self.state = State::BetweenFiles(output);
                    return Ok(());
                }
                let (files, name) = (self.files.clone(), self.name.clone());
                self.state = State::Storing(Storing(tokio::spawn(store(files, name, output))));
            }
            Next::Stored => {
                self.state = State::Committing;
                attendance.tell(self.heartbeat()).await;
            }
        }
        Ok(())
    }

    fn heartbeat(&self) -> Event {
        let commit = || self.owner.commit().expect("who has stored something has read something");
        if matches!(self.state, State::Committing) { commit() } else { self.owner.heartbeat() }
    }

    /// Fetches a chunk of the run.
    fn load(&self, chunk: u32) -> Loading {
        let ((file, place), files) = (self.chunks[chunk as usize].clone(), self.files.clone());
        let content = tokio::spawn(async move {
            match files.chunk(&file, place).await {
                Err(error) if error.kind == FilesErrorKind::Lost => {}
                read => return read,
            }
            // Its replicas may be elsewhere by now.
            let now = files.stat(&file.name).await?;
            let object = |record: &FileRecord| record.chunks.get(place).map(|chunk| chunk.object);
            match object(&now.record) == object(&file.record) {
                true => files.chunk(&now, place).await,
                false => Err(FilesError::changed(&file.name)),
            }
        });
        Loading { chunk, content }
    }
}

/// What a state comes to.
enum Next {
    Ended,
    Stored,
}

impl State {
    /// Waits for what comes next; for ever, if nothing does. Dropped before, nothing is lost by it.
    async fn advance(&mut self) -> Result<Next, WorkError> {
        match self {
            State::Running(pipeline, _) => pipeline.wait().await.map(|()| Next::Ended).map_err(WorkError::Program),
            State::Storing(Storing(storing)) => {
                storing.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())).map(|()| Next::Stored)
            }
            State::Idle | State::BetweenFiles(_) | State::Committing => std::future::pending().await,
        }
    }
}

impl Input {
    fn wants_chunk(&self) -> bool {
        self.pipe.is_some() && self.fed.is_none() && self.loading.is_none()
    }

    /// Waits until the program has read something, or something is there to be read; tells how many bytes it has read.
    /// Dropped before, nothing is lost by it.
    async fn advance(&mut self) -> Result<Option<usize>, WorkError> {
        if let Some(loading) = &mut self.loading {
            let content = (&mut loading.content).await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))?;
            (self.loading, self.fed) = (None, Some((content, 0)));
            return Ok(None);
        }
        let (Some(pipe), Some((content, at))) = (&mut self.pipe, &mut self.fed) else {
            return std::future::pending().await;
        };
        match pipe.write(&content[*at..]).await {
            Ok(bytes) => {
                *at += bytes;
                Ok(Some(bytes))
            }
            // The program has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.pipe = None;
                Ok(None)
            }
            Err(error) => Err(WorkError::Program(format!("the program cannot be given its input: {error}"))),
        }
    }

    /// Whether the program has all of its chunk, which is then let go.
    fn is_fed(&mut self) -> bool {
        self.fed.take_if(|(content, at)| *at == content.len()).is_some()
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.content.abort();
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stores what a program wrote.
async fn store(files: DfsClient, name: FileName, output: Output) -> Result<(), WorkError> {
    match output {
        Output::Whole(file) => store_whole(&files, &name, file).await,
        Output::Parted(writer, parting) => {
            drop(writer);
            let parted = parting.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))?;
            let options = WriteOptions::of(Format::Fixed { record_bytes: 1 });
            files.write(&name, parted, options, |_| {}).await?;
            Ok(())
        }
    }
}

/// Stores a file that was written from its beginning on, in records if it is text.
pub(super) async fn store_whole(files: &DfsClient, name: &FileName, mut file: std::fs::File) -> Result<(), WorkError> {
    let mut beginning = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    (&mut file).take(LOOKED_AT_BYTES).read_to_end(&mut beginning)?;
    file.seek(SeekFrom::Start(0))?;
    let options = WriteOptions::of(Format::guess(name.as_str(), !beginning.contains(&0)));
    files.write(name, file, options, |_| {}).await?;
    Ok(())
}
