//! `eyas worker …`: what the tasks of a job over blocks run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use eyas_client::files::RunAddress;
use eyas_client::{Client, MapTask, ReduceTask, Shuffle, map_worker, reduce_worker};

use crate::Failure;
use crate::command::Reach;

#[derive(Subcommand)]
pub(crate) enum WorkerCommand {
    /// Work at a run until nothing is left of it
    Map {
        /// The run, as NODE:RUN
        place: RunAddress,
        /// Part lines by key among so many reducers
        #[arg(long)]
        partitions: Option<u32>,
        /// Apply a shell's command to them before, sorted by key
        #[arg(long, requires = "partitions")]
        combine: Option<String>,
        /// Start the program anew for each file
        #[arg(long)]
        by_file: bool,
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
    /// Reduce what a run has written
    Reduce {
        /// The run, as NODE:RUN
        place: RunAddress,
        /// Which of the reducers this is, from 1
        number: u32,
        /// How many there are
        #[arg(long)]
        of: u32,
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
}

pub(crate) async fn worker(what: WorkerCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    let files = Client::connect(&reach.cluster()?.access()?).await?.files().await?;
    let scratch = std::env::var_os("EYAS_SANDBOX").map_or_else(std::env::temp_dir, PathBuf::from);
    match what {
        WorkerCommand::Map { place, partitions, combine, by_file, program } => {
            let shuffle = partitions.map(|partitions| Shuffle { partitions, combine });
            map_worker(&files, &MapTask { place, program, by_file, shuffle, scratch }).await?;
        }
        WorkerCommand::Reduce { place, number, of, program } => {
            reduce_worker(&files, &ReduceTask { place, number, count: of, program, scratch }).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
