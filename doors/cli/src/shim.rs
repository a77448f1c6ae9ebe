//! Commands of Slurm that run jobs on eyas, for programs that know Slurm and not eyas: `eyas shim`
//! makes a folder of scripts with their names, and each script calls this program.
//!
//! The commands and options are those that Nextflow and Snakemake use, and what people write beside
//! them. An option without which a job would do something else is refused; one that changes nothing
//! for the job is ignored.

mod amounts;
mod columns;
mod control;
mod environment;
mod hostlist;
mod listing;
mod options;
mod records;
mod resources;
mod sbatch;
mod script;
mod srun;
mod submission;

use std::path::Path;

pub(crate) use records::ShimFolder;
pub(crate) use script::quoted;

use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;

/// The commands that a shim has.
pub(crate) const COMMANDS: [&str; 9] =
    ["sbatch", "squeue", "scancel", "sacct", "srun", "sinfo", "scontrol", "sacctmgr", "sshare"];

/// Runs a command of Slurm.
pub(crate) async fn call(
    folder: &Path,
    name: &str,
    words: &[String],
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let shim = ShimFolder::at(folder);
    // Behind a program or a script, they are its own.
    if words.first().is_some_and(|word| word == "--version" || word == "-V") {
        crate::print::out!("slurm eyas {}", env!("CARGO_PKG_VERSION"))?;
        return Ok(ExitCode::SUCCESS);
    }
    match name {
        "sbatch" => sbatch::sbatch(words, &shim, global).await,
        "squeue" => listing::squeue(words, &shim, global).await,
        "sacct" => listing::sacct(words, &shim, global).await,
        "scancel" => control::scancel(words, &shim, global).await,
        "scontrol" => control::scontrol(words, &shim, global).await,
        "sinfo" => control::sinfo(words, global).await,
        "srun" => srun::srun(words, &shim),
        // Lists of accounts: there are none.
        "sacctmgr" | "sshare" => Ok(ExitCode::SUCCESS),
        other => {
            Err(format!("a shim has no command `{other}`, only {}", COMMANDS.join(", ")).into())
        }
    }
}
