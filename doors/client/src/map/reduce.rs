//! A task of a reduce: gathers the lines of its keys from all committed outputs of the map, sorts
//! the lines, feeds them to its program, and stores the program's output.
//!
//! All attempts of a task store under the same name. The first attempt that stores its output wins;
//! the file appears complete or not at all.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::PathBuf;

use eyas_files::{DfsClient, FilesErrorKind, RunAddress};
use rustix::pipe::fcntl_setpipe_size;
use tokio::sync::mpsc;

use super::error::WorkError;
use super::line_sort::sort_lines;
use super::partition::{lines_of, trailer_of};
use super::pipeline::{PIPE_BYTES, Pipeline, PipelineError, Stage, program};
use super::worker::{self, store_whole};

/// The work of one task of a reduce.
#[derive(Clone, Debug)]
pub struct ReduceTask {
    /// The run whose committed outputs are read.
    pub address: RunAddress,
    /// Number of this reducer, from 1.
    pub number: u32,
    /// Number of reducers.
    pub count: u32,
    /// The program that reads the sorted lines, and its arguments.
    pub program: Vec<String>,
    /// Folder for temporary files of the sort, and for the program's output until it is stored.
    pub scratch: PathBuf,
}

/// Does the work of one task of a reduce.
///
/// # Errors
/// If the program fails, the file system fails, or the leader of the run does not answer.
pub async fn reduce_worker(files: &DfsClient, task: &ReduceTask) -> Result<(), WorkError> {
    let name = task.address.run.file(part_name(task.number));
    if files.exists(&name).await? {
        return Ok(());
    }
    let output = tempfile::tempfile_in(&task.scratch)?;
    let stages = vec![Stage::from(program(&task.program))];
    let (mut pipeline, input) = Pipeline::start(stages, output.try_clone()?.into())?;
    // The system refuses if the pipes of this user are too large in sum. The pipe then keeps its
    // size.
    let _ = fcntl_setpipe_size(&input, PIPE_BYTES);
    let input = File::from(input.into_blocking_fd().map_err(WorkError::Input)?);
    let (parts, receiver) = mpsc::channel(1);
    let (unsorted, scratch) =
        (GatheredLines { receiver, part: Vec::new(), read_bytes: 0 }, task.scratch.clone());
    let sorting = tokio::task::spawn_blocking(move || sort_lines(unsorted, input, scratch));
    let sorted = async {
        let sorted = sorting.await.unwrap_or_else(eyas_panics::resume);
        sorted.map_err(|source| {
            PipelineError::Sort { program: task.program[0].clone(), source }.into()
        })
    };
    let ended = async { Ok(pipeline.wait().await?) };
    tokio::try_join!(gather(files, task, parts), sorted, ended)?;
    match store_whole(files, &name, output).await {
        Err(WorkError::Files(error)) if error.kind == FilesErrorKind::Exists => Ok(()),
        stored => stored,
    }
}

/// Name of a reducer's output in the hidden folder of the run.
pub(super) fn part_name(number: u32) -> String {
    format!("reduce-{number}")
}

/// Gathers all lines of the reducer's keys. It is no error here if the sorter has failed.
async fn gather(
    files: &DfsClient,
    task: &ReduceTask,
    gathered: mpsc::Sender<Vec<u8>>,
) -> Result<(), WorkError> {
    for part in files.run_status(task.address).await?.parts {
        let name = task.address.run.file(worker::part_name(part.worker));
        let damaged = || WorkError::Damaged(name.clone());
        let file = files.stat(&name).await?;
        let trailer = trailer_of(file.record.size_bytes(), task.count).ok_or_else(damaged)?;
        let trailer = files.read_at(&file, trailer.start, trailer.end - trailer.start).await?;
        let lines = lines_of(&trailer, task.number - 1).ok_or_else(damaged)?;
        let mut reading = files.read_range(&file, lines);
        while let Some(bytes) = reading.next().await? {
            if gathered.send(bytes).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The lines of the reducer's keys, as they are gathered. For a thread that may block.
struct GatheredLines {
    receiver: mpsc::Receiver<Vec<u8>>,
    part: Vec<u8>,
    /// Number of bytes of the part that were read.
    read_bytes: usize,
}

impl BufRead for GatheredLines {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.read_bytes == self.part.len()
            && let Some(part) = self.receiver.blocking_recv()
        {
            (self.part, self.read_bytes) = (part, 0);
        }
        Ok(&self.part[self.read_bytes..])
    }

    fn consume(&mut self, read_bytes: usize) {
        self.read_bytes += read_bytes;
    }
}

impl Read for GatheredLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read_bytes = self.fill_buf()?.read(buffer)?;
        self.consume(read_bytes);
        Ok(read_bytes)
    }
}
