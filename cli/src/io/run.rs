//! `eyas io run`: the program takes this process's place, with a library before it and an agent that answers it.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use eyas_coordinator::{agent, class_id};
use eyas_session::Access;

use crate::Failure;
use crate::io::rules;
use crate::print::say;
use crate::start::own_path;

/// What is loaded into programs.
const LIBRARY: &str = "libeyas_preload.so";
/// An agent that was started answers within this time.
const UP_DEADLINE: Duration = Duration::from_secs(5);
/// How often it is looked whether it does.
const UP_STEP: Duration = Duration::from_millis(5);

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Order what is below this path, and nothing else (again for more) [default: all file systems that nodes share, such
    /// as NFS and Lustre]
    #[arg(long, value_name = "PATH")]
    path: Vec<PathBuf>,
    /// Do not ask the coordinator: order the requests of this node alone
    #[arg(long)]
    here: bool,
    /// Ask for every turn, also where order is found to gain nothing: on storage that answers small requests at once, and for
    /// what is in memory
    #[arg(long)]
    always: bool,
    /// Its requests are of this job class, for which the rules may say a reservation, a limit and a weight [default: that
    /// of an `eyas io run` around this one, or none]
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// What is run, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Becomes the program. It runs as it would without, if what orders it is missing.
pub(crate) fn run(args: &RunArgs, access: &Path) -> Result<ExitCode, Failure> {
    let [program, words @ ..] = &args.program[..] else { unreachable!("there is a program") };
    let mut command = Command::new(program);
    command.args(words);
    if let Some(paths) = real_paths(&args.path)? {
        command.env("EYAS_IO_PATHS", paths);
    }
    if args.always {
        command.env("EYAS_IO_ALWAYS", "1");
    }
    if let Some(class) = &args.class {
        command.env("EYAS_IO_CLASS", class_id(class).0.to_string());
    }
    let coordinator = (!args.here && access.exists()).then_some(access);
    match prepare(coordinator) {
        Ok((socket, libraries)) => drop(command.env("EYAS_IO_AGENT", socket).env("LD_PRELOAD", libraries)),
        Err(error) => say!("{error}; {} runs without order", program.display()),
    }
    let error = command.exec();
    Err(format!("cannot run {}: {error}", program.display()).into())
}

/// The paths as the kernel knows them, with a colon between them.
fn real_paths(paths: &[PathBuf]) -> Result<Option<OsString>, Failure> {
    let mut real = Vec::new();
    for path in paths {
        let path = path.canonicalize().map_err(|e| format!("cannot order {}: {e}", path.display()))?;
        if path.as_os_str().as_encoded_bytes().contains(&b':') {
            return Err(format!("cannot order {}: its name has a colon", path.display()).into());
        }
        real.push(path.into_os_string());
    }
    Ok((!real.is_empty()).then(|| real.join(":".as_ref())))
}

/// The agent's socket, and what is to be loaded.
fn prepare(coordinator: Option<&Path>) -> Result<(PathBuf, OsString), Failure> {
    let mut libraries = loadable(library()?)?.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    let access = coordinator.map(Access::load).transpose()?;
    if access.is_none() {
        // The agent's own words about them would be in its log.
        rules(None)?;
    }
    let folder = agent_folder(access.as_ref());
    agent::make_folder(&folder)?;
    if !greet(&folder) {
        start(&folder, coordinator)?;
    }
    Ok((agent::socket(&folder), libraries))
}

/// Where the library is: beside the command, or where packages put libraries.
fn library() -> Result<PathBuf, Failure> {
    let own = PathBuf::from(own_path()?);
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(LIBRARY), beside.join("../lib/eyas").join(LIBRARY), beside.join("../lib").join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file());
    found.cloned().ok_or_else(|| format!("{LIBRARY} is neither in {} nor in ../lib", beside.display()).into())
}

/// A library that the loader can be told to load: it takes spaces and colons for what is between two, and knows no way around.
fn loadable(library: PathBuf) -> Result<PathBuf, Failure> {
    match library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        true => Err(format!("{} has a space or a colon in its path, and cannot be loaded", library.display()).into()),
        false => Ok(library),
    }
}

/// This user's folder on this node, for programs that ask that coordinator, or none.
pub(crate) fn agent_folder(coordinator: Option<&Access>) -> PathBuf {
    let all = match env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("eyas-io"),
        None => env::temp_dir().join(format!("eyas-io-{}", rustix::process::getuid().as_raw())),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    all.join(coordinator.map_or("here".to_owned(), |access| access.dispatcher.chars().map(plain).collect()))
}

/// Tells the agent that it is there for this process; whether it is.
fn greet(folder: &Path) -> bool {
    let hello = || -> io::Result<()> {
        let mut socket = UnixStream::connect(agent::socket(folder))?;
        socket.set_read_timeout(Some(UP_DEADLINE))?;
        socket.write_all(&[agent::HELLO])?;
        socket.read_exact(&mut [0])
    };
    hello().is_ok()
}

/// Becomes the parent of an agent, and leaves it alone: the program that wanted one is not to have a child that it knows
/// nothing of.
pub(crate) fn detach() -> Result<(), Failure> {
    let words = env::args_os().skip(1).filter(|word| word != "--detach");
    // The terminal's interrupts are not for it.
    Command::new(own_path()?).args(words).process_group(0).spawn()?;
    Ok(())
}

/// Has an agent started, and waits until it answers.
fn start(folder: &Path, coordinator: Option<&Path>) -> Result<(), Failure> {
    let log = folder.join("agent.log");
    let log_file = File::options().create(true).append(true).open(&log);
    let log_file = log_file.map_err(|e| format!("cannot write {}: {e}", log.display()))?;
    let mut command = Command::new(own_path()?);
    command.args(["io", "agent", "--detach"]).arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
    match coordinator {
        Some(access) => command.arg("--access").arg(std::path::absolute(access)?),
        None => command.arg("--here"),
    };
    command.current_dir("/").env_remove("LD_PRELOAD").status()?;
    let deadline = Instant::now() + UP_DEADLINE;
    while !greet(folder) {
        if Instant::now() > deadline {
            return Err(format!("no agent has come up; see {}", log.display()).into());
        }
        std::thread::sleep(UP_STEP);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_where_the_loader_finds_it() {
        assert!(loadable("/opt/eyas/lib/libeyas_preload.so".into()).is_ok());
        for path in ["/opt/my programs/libeyas_preload.so", "/opt/eyas:2/libeyas_preload.so"] {
            let error = loadable(path.into()).expect_err("it cannot be loaded").to_string();
            assert!(error.contains(path), "{error}");
        }
    }
}
