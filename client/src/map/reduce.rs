//! A task of a reduce: gathers the lines of its keys from all that counts, sorts them, feeds them to its program, and
//! stores what that writes.
//!
//! Its name is the same however often it is tried: the first who stores something under it has done it, and it is there
//! whole or not at all.

use std::path::PathBuf;

use eyas_dfs::{DfsClient, FilesErrorKind, RunAddress};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;

use super::partition::{ends_at, lines_of};
use super::pipeline::{Pipeline, program, sort};
use super::worker::{self, WorkError, store_whole};

/// What a task of a reduce does.
#[derive(Clone, Debug)]
pub struct ReduceTask {
    /// The run whose output is read.
    pub place: RunAddress,
    /// Which of the reducers this is, from 1.
    pub number: u32,
    /// How many there are.
    pub count: u32,
    /// What reads the lines, and its arguments.
    pub program: Vec<String>,
    /// A folder for what does not fit in memory, and for what the program writes until that is stored.
    pub scratch: PathBuf,
}

/// Reduces.
///
/// # Errors
/// If the program fails, or the file system or the run's leader does.
pub async fn reduce_worker(files: &DfsClient, task: &ReduceTask) -> Result<(), WorkError> {
    let name = task.place.run.file(part_name(task.number));
    if files.exists(&name).await? {
        return Ok(());
    }
    let output = tempfile::tempfile_in(&task.scratch)?;
    let commands = vec![sort(&task.scratch), program(&task.program)];
    let started = Pipeline::start(commands, output.try_clone()?.into());
    let (mut pipeline, input) = started.map_err(WorkError::Program)?;
    let (fed, ended) = tokio::join!(feed(files, task, input), pipeline.wait());
    ended.map_err(WorkError::Program)?;
    fed?;
    match store_whole(files, &name, output).await {
        Err(WorkError::Files(error)) if error.kind == FilesErrorKind::Exists => Ok(()),
        stored => stored,
    }
}

/// What a reducer's output is called in its run.
pub(super) fn part_name(number: u32) -> String {
    format!("reduce-{number}")
}

/// Writes all lines of the reducer's keys. That they are not wanted is no failure of this side's.
async fn feed(files: &DfsClient, task: &ReduceTask, mut input: ChildStdin) -> Result<(), WorkError> {
    for part in files.run_status(task.place).await?.parts {
        let name = task.place.run.file(worker::part_name(part.worker));
        let strange = || WorkError::Program(format!("{name} is not what a program of this job wrote"));
        let file = files.stat(&name).await?;
        let ends = ends_at(file.record.size_bytes(), task.count).ok_or_else(strange)?;
        let ends = files.read_at(&file, ends.start, ends.end - ends.start).await?;
        let lines = lines_of(&ends, task.number - 1).ok_or_else(strange)?;
        let mut reading = files.read_range(&file, lines);
        while let Some(bytes) = reading.next().await? {
            if input.write_all(&bytes).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
