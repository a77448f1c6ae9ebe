//! `eyas io run`: replaces this process by the program, into which the loader loads a library that
//! asks an agent.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use eyas_coordinator::{agent, class_id};
use eyas_session::Access;

use super::preload::library;
use super::rules::rules;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::own_process::{io_runtime_folder, own_path, own_words};
use crate::print::say;

/// A new agent answers within this time.
const UP_DEADLINE: Duration = Duration::from_secs(5);
/// Time between two checks whether the agent answers.
const UP_STEP: Duration = Duration::from_millis(5);

#[derive(Args)]
pub(crate) struct IoRunArgs {
    /// Order only requests for files below this path (may be repeated) [default: all file systems
    /// that nodes share, such as NFS and Lustre]
    #[arg(long, value_name = "PATH")]
    path: Vec<PathBuf>,
    #[command(flatten)]
    order: ProgramOrderArgs,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// How the requests of a program are ordered.
#[derive(Args)]
pub(super) struct ProgramOrderArgs {
    /// Order only the requests of this node, without the coordinator
    #[arg(long)]
    here: bool,
    /// Order all requests, also requests that do not benefit: for files in memory, and on storage
    /// that answers small requests at once
    #[arg(long)]
    always: bool,
    /// Job class of the requests; rules give a class a reservation, a limit and a weight [default:
    /// the class of the enclosing `eyas io run`, or none]
    #[arg(long, value_name = "NAME", env = CLASS)]
    class: Option<String>,
}

impl ProgramOrderArgs {
    /// Has the loader load the library into a program, which asks the agent of this node. An agent
    /// is started if none runs. `access`: the coordinator's access file.
    pub(super) fn apply(&self, command: &mut Command, access: &Path) -> Result<(), CliError> {
        if self.always {
            command.env("EYAS_IO_ALWAYS", "1");
        }
        // A batch system may set the variable without a value.
        if let Some(class) = self.class.as_ref().filter(|class| !class.is_empty()) {
            command.env(CLASS, class).env("EYAS_IO_CLASS_NUMBER", class_id(class).0.to_string());
        }
        let coordinator = (!self.here && access.exists()).then_some(access);
        let (socket, libraries) = prepare(coordinator)?;
        command.env("EYAS_IO_AGENT", socket).env("LD_PRELOAD", libraries);
        Ok(())
    }
}

/// Environment variable with the job class of programs. Batch systems can set it.
const CLASS: &str = "EYAS_IO_CLASS";
/// Environment variable of the library with the paths whose files are ordered.
pub(super) const PATHS: &str = "EYAS_IO_PATHS";

/// Replaces this process by the program. If the library or the agent is missing, the program still
/// runs, but its requests are not ordered.
pub(crate) fn run(args: &IoRunArgs, access: &Path) -> Result<ExitCode, CliError> {
    let [program, words @ ..] = &args.program[..] else { unreachable!("there is a program") };
    let mut command = Command::new(program);
    command.args(words);
    if let Some(paths) = real_paths(&args.path)? {
        command.env(PATHS, paths);
    }
    if let Err(error) = args.order.apply(&mut command, access) {
        say!("{error}; the requests of {} are not ordered", program.display());
    }
    let error = command.exec();
    Err(format!("cannot run {}: {error}", program.display()).into())
}

/// The paths without symbolic links, joined with colons.
pub(super) fn real_paths(paths: &[PathBuf]) -> Result<Option<OsString>, CliError> {
    let mut real = Vec::new();
    for path in paths {
        let path =
            path.canonicalize().map_err(|e| format!("cannot order {}: {e}", path.display()))?;
        if path.as_os_str().as_encoded_bytes().contains(&b':') {
            return Err(format!("cannot order {}: its name has a colon", path.display()).into());
        }
        real.push(path.into_os_string());
    }
    Ok((!real.is_empty()).then(|| real.join(":".as_ref())))
}

/// The agent's socket, and the libraries to load.
fn prepare(coordinator: Option<&Path>) -> Result<(PathBuf, OsString), CliError> {
    let mut libraries = library()?.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    let access = coordinator.map(Access::load).transpose()?;
    if access.is_none() {
        // An error in the rules is reported here; the agent could only write it to its log.
        rules(None)?;
    }
    let folder = agent_folder(access.as_ref());
    agent::make_folder(&folder)?;
    if !greet(&folder) {
        start(&folder, coordinator)?;
    }
    Ok((agent::socket(&folder), libraries))
}

/// The folder of this user's agent on this node, for this coordinator or for none.
pub(crate) fn agent_folder(coordinator: Option<&Access>) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    io_runtime_folder().join(
        coordinator
            .map_or("here".to_owned(), |access| access.dispatcher.chars().map(plain).collect()),
    )
}

/// Whether an agent answers in this folder.
fn greet(folder: &Path) -> bool {
    let hello = || -> io::Result<()> {
        let mut socket = UnixStream::connect(agent::socket(folder))?;
        socket.set_read_timeout(Some(UP_DEADLINE))?;
        socket.write_all(&[agent::HELLO])?;
        socket.read_exact(&mut [0])
    };
    hello().is_ok()
}

/// Starts an agent in the background. The caller then exits, so that the agent is not a child
/// process of the program.
pub(crate) fn detach() -> Result<(), CliError> {
    let words = own_words().filter(|word| word != "--detach");
    // In a process group of its own, the agent gets no interrupts of the terminal.
    Command::new(own_path()?).args(words).process_group(0).spawn()?;
    Ok(())
}

/// Starts an agent, and waits until the agent answers.
fn start(folder: &Path, coordinator: Option<&Path>) -> Result<(), CliError> {
    let log = folder.join("agent.log");
    let log_file = File::options().create(true).append(true).open(&log);
    let log_file = log_file.map_err(|e| format!("cannot write {}: {e}", log.display()))?;
    let mut command = Command::new(own_path()?);
    command
        .args(["io", "agent", "--detach"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log_file);
    match coordinator {
        Some(access) => command.arg("--access").arg(std::path::absolute(access)?),
        None => command.arg("--here"),
    };
    command.current_dir("/").env_remove("LD_PRELOAD").status()?;
    let deadline = Instant::now() + UP_DEADLINE;
    while !greet(folder) {
        if Instant::now() > deadline {
            return Err(format!(
                "the agent did not start within {} s; see {}",
                UP_DEADLINE.as_secs(),
                log.display()
            )
            .into());
        }
        std::thread::sleep(UP_STEP);
    }
    Ok(())
}
