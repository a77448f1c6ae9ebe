//! `eyas worker …`: the command that the tasks of `eyas map` run.

use std::path::PathBuf;

use clap::Subcommand;
use eyas_client::files::{FilesOrigin, RunAddress};
use eyas_client::{MapTask, ReduceTask, Shuffle, map_worker, reduce_worker};
use eyas_session::private::temporary_folder;

use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;

#[derive(Subcommand)]
pub(crate) enum WorkerCommand {
    /// Process blocks of a run until no block is left
    Map {
        /// The run, as NODE:RUN
        place: RunAddress,
        /// Divide lines by key among this number of reducers
        #[arg(long)]
        partitions: Option<u32>,
        /// Shell command that combines the lines of each program before, sorted by key
        #[arg(long, requires = "partitions")]
        combine: Option<String>,
        /// Start the program once for each file
        #[arg(long)]
        by_file: bool,
        /// Give each program the header of its file first
        #[arg(long)]
        repeat_header: bool,
        /// Let the node keep the chunks in memory, on the account with this number
        #[arg(long)]
        memory: Option<u128>,
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
    /// Reduce the lines that a run has written
    Reduce {
        /// The run, as NODE:RUN
        place: RunAddress,
        /// Number of this reducer, from 1
        number: u32,
        /// Number of reducers
        #[arg(long)]
        of: u32,
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
}

pub(crate) async fn worker(what: WorkerCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let files = connect(global).await?.files().await?;
    files.set_door(FilesOrigin::Map);
    let scratch = std::env::var_os("EYAS_SANDBOX").map_or_else(temporary_folder, PathBuf::from);
    match what {
        WorkerCommand::Map {
            place,
            partitions,
            combine,
            by_file,
            repeat_header,
            memory,
            program,
        } => {
            if let Some(account) = memory {
                files.set_memory(account);
            }
            let shuffle = partitions.map(|partitions| Shuffle { partitions, combine });
            let task = MapTask {
                address: place,
                program,
                by_file,
                repeats_header: repeat_header,
                shuffle,
                scratch,
            };
            map_worker(&files, &task).await?;
        }
        WorkerCommand::Reduce { place, number, of, program } => {
            reduce_worker(
                &files,
                &ReduceTask { address: place, number, count: of, program, scratch },
            )
            .await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
