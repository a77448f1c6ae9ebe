//! `eyas completion` and `eyas man`: files that are generated from the definition of the command
//! line.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::print;

#[derive(Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Shell,
}

#[derive(Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages; it is created if necessary
    #[arg(default_value = ".")]
    folder: PathBuf,
}

pub(crate) fn print(args: &CompletionArgs, mut command: Command) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "eyas", &mut script);
    print::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn write_man_pages(args: &ManArgs, command: Command) -> Result<ExitCode, CliError> {
    let cannot = |e| format!("cannot write manual pages to {}: {e}", args.folder.display());
    std::fs::create_dir_all(&args.folder).map_err(cannot)?;
    clap_mangen::generate_to(command, &args.folder).map_err(cannot)?;
    Ok(ExitCode::SUCCESS)
}
