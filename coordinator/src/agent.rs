//! The agent of a node: it answers its programs on the board, and reads for them.
//!
//! One thread owns everything, the `Brain` of `brain.rs`. Programs ring for it on the board; threads that read, and the one
//! that opens the door to new programs, send it news and ring too. It waits for none of them.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub use eyas_board::HELLO;
use eyas_session::Access;
use thiserror::Error;

use crate::link;
use crate::order::Order;
use crate::protocol::Status;
use crate::rules::Rules;

mod brain;
mod door;
mod fetch;
mod files;
mod storages;
mod streams;

/// First byte of what is sent to an agent's socket by who wants to know how things are.
const STATUS: u8 = b'S';
/// An agent says how things are within this time, and is gone within it once it has closed its door.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether it is gone.
const STEP: Duration = Duration::from_millis(5);
/// An agent that nobody has needed for so long ends.
pub const IDLE: Duration = Duration::from_secs(30);

/// How an agent is to work.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its socket and its lock are here. The folder is its user's alone.
    pub folder: PathBuf,
    /// Who decides.
    pub order: Deciding,
    /// It ends when nobody has needed it for so long.
    pub idle: Duration,
}

/// Who decides in which order requests go to storage.
#[derive(Clone, Debug)]
pub enum Deciding {
    /// The agent, for its node alone, by these.
    Here(Rules),
    /// A coordinator, for all nodes.
    There(Access),
}

/// Why there is no agent.
#[derive(Debug, Error)]
pub enum AgentError {
    /// One runs already.
    #[error("an agent runs in {} already", .0.display())]
    RunsAlready(PathBuf),
    /// The folder cannot be used.
    #[error("the agent's folder {} cannot be used: {error}", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The board cannot be made.
    #[error("there is no memory for the agent's board: {0}")]
    Board(io::Error),
}

/// Where the agent in this folder can be reached.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("agent.sock")
}

/// How things are at the agent in this folder, if it decides by itself.
///
/// # Errors
/// If it cannot be reached, or says something strange.
pub fn status(folder: &Path) -> io::Result<Status> {
    let mut agent = UnixStream::connect(socket(folder))?;
    agent.set_read_timeout(Some(PATIENCE))?;
    agent.write_all(&[STATUS])?;
    let mut bytes = Vec::new();
    agent.read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Runs an agent until nobody has needed it for a while.
pub fn run(setup: &Setup) -> Result<(), AgentError> {
    let in_folder = |error| AgentError::Folder { folder: setup.folder.clone(), error };
    make_folder(&setup.folder)?;
    // An agent holds its lock.
    let lock = File::options().create(true).append(true).open(setup.folder.join("agent.lock")).map_err(in_folder)?;
    let path = socket(&setup.folder);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(in_folder(error)),
            // One whose door is closed is about to go, and whoever started this one has found it closed.
            Err(TryLockError::WouldBlock) if Instant::now() > deadline || UnixStream::connect(&path).is_ok() => {
                return Err(AgentError::RunsAlready(setup.folder.clone()));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(STEP),
        }
    }
    let memory = eyas_board::make().map_err(AgentError::Board)?;
    let board = eyas_board::map(&memory).map_err(AgentError::Board)?;
    let (news, told) = mpsc::channel();
    let order = match &setup.order {
        Deciding::Here(rules) => Order::here(rules.clone()),
        Deciding::There(access) => {
            let news = news.clone();
            let tell = move |heard| {
                let is_there = news.send(brain::News::Link(heard)).is_ok();
                eyas_board::ring(&board.agent.bell);
                is_there
            };
            link::keep(access.clone(), tell).map_err(in_folder)?;
            Order::there()
        }
    };
    let mut brain = brain::Brain::new(board, order, news.clone(), told, setup.idle);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(in_folder(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(in_folder)?;
    let door = door::Door { listener, memory, board, news };
    thread::Builder::new().name("door".to_owned()).spawn(move || door.keep()).map_err(in_folder)?;
    brain.run();
    let _ = fs::remove_file(&path);
    Ok(())
}

/// Makes an agent's folder, for its user alone, as is the one that it is in.
///
/// # Errors
/// If it cannot be made, or others can get into one of the two: who can put a socket there could answer programs.
pub fn make_folder(folder: &Path) -> Result<(), AgentError> {
    let failed = |folder: &Path| {
        let folder = folder.to_owned();
        move |error| AgentError::Folder { folder, error }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    for folder in [folder.parent().unwrap_or(folder), folder] {
        let stat = rustix::fs::stat(folder).map_err(|error| failed(folder)(error.into()))?;
        if stat.st_uid != rustix::process::getuid().as_raw() || stat.st_mode & 0o077 != 0 {
            let why = "others can get into it; its mode has to be 700";
            return Err(failed(folder)(io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn setup(home: &Path) -> Setup {
        fs::set_permissions(home, fs::Permissions::from_mode(0o700)).unwrap();
        Setup { folder: home.join("agent"), order: Deciding::Here(Rules::default()), idle: Duration::ZERO }
    }

    /// What an agent answers to who comes; None if nobody is there.
    fn greet(folder: &Path) -> Option<usize> {
        let mut agent = UnixStream::connect(socket(folder)).ok()?;
        agent.set_read_timeout(Some(DEADLINE)).unwrap();
        // It may hang up before.
        let _ = agent.write_all(&[HELLO]);
        Some(agent.read(&mut [0]).unwrap_or(0))
    }

    #[test]
    fn who_comes_to_an_agent_that_goes_is_not_answered() {
        let home = tempfile::tempdir().unwrap();
        let setup = setup(home.path());
        let began = Instant::now();
        let mut came = 0;
        while came < 3 {
            thread::scope(|scope| {
                let agent = scope.spawn(|| run(&setup));
                while !agent.is_finished() {
                    came += greet(&setup.folder).inspect(|answer| assert_eq!(*answer, 0, "it goes")).map_or(0, |_| 1);
                }
                agent.join().unwrap().unwrap();
            });
            assert!(began.elapsed() < DEADLINE, "nobody ever finds it there");
        }
    }

    #[test]
    fn the_next_waits_for_one_that_goes() {
        let home = tempfile::tempdir().unwrap();
        let setup = setup(home.path());
        make_folder(&setup.folder).unwrap();
        let path = setup.folder.join("agent.lock");
        let lock = File::create(&path).unwrap();
        lock.lock().unwrap();
        let began = Instant::now();
        let is_open = |entry: io::Result<fs::DirEntry>| fs::read_link(entry.unwrap().path()).is_ok_and(|at| at == path);
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| run(&setup));
            while fs::read_dir("/proc/self/fd").unwrap().map(is_open).filter(|is_it| *is_it).count() < 2 {
                assert!(began.elapsed() < DEADLINE, "it does not come");
            }
            drop(lock);
            next.join().unwrap()
        });
        next.unwrap();
    }
}
