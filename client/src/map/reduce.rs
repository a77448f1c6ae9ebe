//! A task of a reduce: gathers the lines of its keys from all committed outputs of the map, sorts the lines, feeds them
//! to its program, and stores the program's output.
//!
//! All attempts of a task store under the same name. The first attempt that stores its output wins; the file appears
//! complete or not at all.

use std::path::PathBuf;

use eyas_dfs::{DfsClient, FilesErrorKind, RunAddress};
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;

use super::partition::{lines_of, trailer_of};
use super::pipeline::{PIPE_BYTES, Pipeline, Stage, program};
use super::worker::{self, WorkError, store_whole};

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
    let stages = vec![Stage::from(program(&task.program)).sorted(&task.scratch)];
    let (mut pipeline, input) = Pipeline::start(stages, output.try_clone()?.into())?;
    // The system refuses if the pipes of this user are too large in sum. The pipe then keeps its size.
    let _ = fcntl_setpipe_size(&input, PIPE_BYTES);
    let (fed, ended) = tokio::join!(feed(files, task, input), pipeline.wait());
    ended?;
    fed?;
    match store_whole(files, &name, output).await {
        Err(WorkError::Files(error)) if error.kind == FilesErrorKind::Exists => Ok(()),
        stored => stored,
    }
}

/// Name of a reducer's output in the hidden folder of the run.
pub(super) fn part_name(number: u32) -> String {
    format!("reduce-{number}")
}

/// Writes all lines of the reducer's keys to its pipeline. A pipeline that stops reading early is not an error here.
async fn feed(files: &DfsClient, task: &ReduceTask, mut input: Sender) -> Result<(), WorkError> {
    for part in files.run_status(task.address).await?.parts {
        let name = task.address.run.file(worker::part_name(part.worker));
        let damaged = || WorkError::Damaged(name.clone());
        let file = files.stat(&name).await?;
        let trailer = trailer_of(file.record.size_bytes(), task.count).ok_or_else(damaged)?;
        let trailer = files.read_at(&file, trailer.start, trailer.end - trailer.start).await?;
        let lines = lines_of(&trailer, task.number - 1).ok_or_else(damaged)?;
        let mut reading = files.read_range(&file, lines);
        while let Some(bytes) = reading.next().await? {
            if input.write_all(&bytes).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
