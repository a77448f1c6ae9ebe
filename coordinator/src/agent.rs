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
use std::time::Duration;

pub use eyas_board::HELLO;
use eyas_ioq::Config;
use eyas_session::Access;
use thiserror::Error;

use crate::protocol::Status;

mod brain;
mod door;
mod fetch;
mod files;
mod link;
mod order;
mod storage;
mod streams;

/// First byte of what is sent to an agent's socket by who wants to know how things are.
const STATUS: u8 = b'S';
/// An agent says how things are within this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// How an agent is to work.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its socket and its lock are here. The folder is its user's alone.
    pub folder: PathBuf,
    /// Who decides.
    pub order: Deciding,
}

/// Who decides in which order requests go to storage.
#[derive(Clone, Debug)]
pub enum Deciding {
    /// The agent, for its node alone; so storages are treated.
    Here(Config),
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
    let lock = lock(&setup.folder).map_err(in_folder)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(AgentError::RunsAlready(setup.folder.clone())),
        Err(TryLockError::Error(error)) => return Err(in_folder(error)),
    }
    let memory = eyas_board::make().map_err(AgentError::Board)?;
    let board = eyas_board::map(&memory).map_err(AgentError::Board)?;
    let (news, told) = mpsc::channel();
    let order = match &setup.order {
        Deciding::Here(config) => order::Order::here(config.clone()),
        Deciding::There(access) => {
            link::keep(access.clone(), board, news.clone()).map_err(in_folder)?;
            order::Order::there()
        }
    };
    let mut brain = brain::Brain::new(board, order, news.clone(), told);
    let path = socket(&setup.folder);
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

/// Makes the folder, for its user alone, and opens the file in it whose lock an agent holds.
fn lock(folder: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let stat = rustix::fs::stat(folder)?;
    if stat.st_uid != rustix::process::getuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others can get into it; its mode has to be 700"));
    }
    File::options().create(true).append(true).open(folder.join("agent.lock"))
}
