//! `eyas shim`: a folder of commands with the names of Slurm's commands, for PATH.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::connect::connect;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::own_process::own_path;
use crate::print::{self, say};
use crate::shim::{self, COMMANDS, ShimFolder, quoted};
use crate::show;

#[derive(Args)]
pub(crate) struct ShimArgs {
    /// The folder, on storage that all nodes share; it is created if necessary
    folder: PathBuf,
}

#[derive(Args)]
pub(crate) struct ShimCallArgs {
    /// The folder that `eyas shim` has made
    folder: PathBuf,
    /// Name of the command
    name: String,
    /// The words of its command line
    #[arg(last = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Makes the folder. The commands use the cluster that is selected now.
pub(crate) async fn shim(args: &ShimArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let is_for_path = |letter: char| letter != ':' && !letter.is_control();
    if !utf8(&std::path::absolute(&args.folder)?)?.chars().all(is_for_path) {
        let name = args.folder.display();
        return Err(format!(
            "{name} cannot be in PATH: name a folder without colons and control characters"
        )
        .into());
    }
    connect(global).await?;
    let folder = ShimFolder::make(&args.folder)?;
    let access = global.cluster()?.access_path().to_owned();
    let access = fs::canonicalize(&access).unwrap_or(access);
    let words =
        [own_path()?, "--access".into(), utf8(&access)?, "shim-call".into(), utf8(&folder)?];
    let call = words.map(|word| quoted(&word)).join(" ");
    // Others drop variables that they do not know, such as functions that `bash` exports.
    let shell = ["/bin/bash", "/bin/sh"]
        .into_iter()
        .find(|shell| Path::new(shell).exists())
        .unwrap_or("/bin/sh");
    for name in COMMANDS {
        let path = folder.join(name);
        let is_own = |text: String| text.contains(" 'shim-call' ");
        if path.exists() && !fs::read_to_string(&path).is_ok_and(is_own) {
            return Err(format!("{} is not of eyas: name another folder", path.display()).into());
        }
        // Whole at every moment: a job may call it now.
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        write!(file, "#!{shell}\nexec {call} {name} -- \"$@\"\n")?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o755))?;
        file.persist(&path)?;
    }
    if global.json {
        show::json("folder", &folder)?;
    } else {
        print::path(&folder)?;
        say!("put it first into PATH: export PATH={}:$PATH", folder.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn utf8(path: &Path) -> Result<String, CliError> {
    let text =
        path.to_str().ok_or_else(|| format!("the name {} is not valid UTF-8", path.display()))?;
    Ok(text.to_owned())
}

/// Runs a command of the folder.
pub(crate) async fn command(
    args: &ShimCallArgs,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    shim::call(&args.folder, &args.name, &args.words, global).await
}
