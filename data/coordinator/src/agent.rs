//! The agent: one process for each user of a node. It answers programs on the board, and reads
//! ahead for them.
//!
//! One thread owns all state, the `AgentCore` of `agent/core.rs`. Programs ring its bell on the
//! board; the threads that read ahead, and the one that serves the socket, send it messages and
//! ring as well. It waits for none of them.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub use eyas_board::HELLO;
use eyas_session::Access;
use eyas_session::private::{PrivateError, PrivateFolder};
use thiserror::Error;

use crate::agent::own_node::OwnNode;
use crate::agent::peers::AgentPeers;
use crate::coordinator_link;
use crate::protocol::{IoStatus, StorageConfigs};
use crate::request_tracker::RequestTracker;
use crate::rules::Rules;

pub(crate) mod agent_node;
mod bypasses;
pub(crate) mod core;
mod layouts;
mod own_node;
pub(crate) mod parts;
pub(crate) mod peers;
pub(crate) mod program_file;
pub(crate) mod read_ahead;
mod socket;

/// First byte of a message to the agent's socket that asks for the status.
const STATUS: u8 = b'S';
/// Time for an agent to report its status; and for an agent that has closed its socket to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of checks whether an agent has ended.
const STEP: Duration = Duration::from_millis(5);
/// An agent ends after this time without use.
pub const IDLE: Duration = Duration::from_secs(30);

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Folder of its socket and lock file. Only its user can access it.
    pub folder: PathBuf,
    /// The process that orders the requests.
    pub order: OrderedBy,
    /// Time without use after which the agent ends.
    pub idle: Duration,
}

/// The process that orders the requests.
#[derive(Clone, Debug)]
pub enum OrderedBy {
    /// The agent itself, for its node alone, by these rules.
    Agent(Rules),
    /// The coordinator, for all nodes.
    Coordinator {
        /// Access to it.
        access: Access,
        /// Folder of the user, which the nodes share, for the key of the user's agents.
        keys: PathBuf,
    },
}

/// Reasons why an agent cannot run.
#[derive(Debug, Error)]
pub enum AgentError {
    /// An agent is already running in this folder.
    #[error("an agent is already running in {}", .0.display())]
    RunsAlready(PathBuf),
    /// The folder cannot be used.
    #[error("cannot use the agent's folder {}: {error}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The board's memory cannot be allocated.
    #[error("cannot allocate memory for the agent's board: {0}")]
    Board(io::Error),
}

/// Path of the socket of the agent in this folder.
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("agent.sock")
}

/// Status of the agent in this folder, and the configuration of its storages, if it orders requests
/// itself. An earlier version of the agent tells no configuration.
///
/// # Errors
/// If the agent cannot be reached or its answer is invalid.
pub fn status(folder: &Path) -> io::Result<(IoStatus, StorageConfigs)> {
    let mut agent = UnixStream::connect(socket(folder))?;
    agent.set_read_timeout(Some(PATIENCE))?;
    agent.write_all(&[STATUS])?;
    let mut bytes = Vec::new();
    agent.read_to_end(&mut bytes)?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let (status, rest) = postcard::take_from_bytes(&bytes).map_err(invalid)?;
    let configs = match rest.is_empty() {
        true => StorageConfigs::default(),
        false => postcard::from_bytes(rest).map_err(invalid)?,
    };
    Ok((status, configs))
}

/// Runs an agent until it has not been used for a while.
pub fn run(config: &AgentConfig) -> Result<(), AgentError> {
    let in_folder = |error| AgentError::Folder { folder: config.folder.clone(), error };
    make_folder(&config.folder)?;
    // An agent holds its lock as long as it runs.
    let lock = File::options()
        .create(true)
        .append(true)
        .open(config.folder.join("agent.lock"))
        .map_err(in_folder)?;
    let path = socket(&config.folder);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(in_folder(error)),
            // An agent that has closed its socket is about to end; that is why this one was
            // started.
            Err(TryLockError::WouldBlock)
                if Instant::now() > deadline || UnixStream::connect(&path).is_ok() =>
            {
                return Err(AgentError::RunsAlready(config.folder.clone()));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(STEP),
        }
    }
    let memory = eyas_board::make().map_err(|e| AgentError::Board(e.into()))?;
    let board = eyas_board::map(&memory).map_err(|e| AgentError::Board(e.into()))?;
    let (news, told) = mpsc::channel();
    let tell = {
        let news = news.clone();
        move |message| {
            let is_there = news.send(message).is_ok();
            eyas_board::ring(&board.agent.bell);
            is_there
        }
    };
    let peers = match &config.order {
        OrderedBy::Agent(_) => None,
        OrderedBy::Coordinator { access, keys } => {
            let ask = tell.clone();
            let peers =
                AgentPeers::start(keys, move |asked| ask(core::AgentMessage::PartWanted(asked)));
            let peers = peers
                .inspect_err(|error| {
                    tracing::warn!("exchanges no parts of files with other nodes: {error}")
                })
                .ok();
            let tell = move |heard| tell(core::AgentMessage::Link(heard));
            coordinator_link::keep(access.clone(), tell).map_err(in_folder)?;
            peers
        }
    };
    let node = Rc::new(OwnNode { board, outbox: news.clone(), peers });
    let tracker = match &config.order {
        OrderedBy::Agent(rules) => RequestTracker::local(node.clone(), rules.clone()),
        OrderedBy::Coordinator { .. } => RequestTracker::remote(node.clone()),
    };
    let mut brain = core::AgentCore::new(node, board, tracker, news.clone(), told, config.idle);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(in_folder(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(in_folder)?;
    let door = socket::AgentSocket { listener, memory, board, news };
    thread::Builder::new().name("door".to_owned()).spawn(move || door.keep()).map_err(in_folder)?;
    brain.run();
    let _ = fs::remove_file(&path);
    Ok(())
}

/// Creates an agent's folder, accessible to its user only, as its parent is. Neither of them is a
/// link.
///
/// # Errors
/// If it cannot be created, or if other users can access the folder or its parent, or replace one
/// of them: a user who can put a socket or a library there could answer programs, or run code in
/// them.
pub fn make_folder(folder: &Path) -> Result<(), AgentError> {
    for folder in [folder.parent().unwrap_or(folder), folder] {
        let made =
            PrivateFolder::make(folder).and_then(|_| PrivateFolder::claim(folder)?.check_closed());
        made.map_err(|why| {
            let why = match why {
                PrivateError::Writable { path, .. } | PrivateError::Exposed { path, .. }
                    if path == folder =>
                {
                    "other users can access it; its mode must be 700".to_owned()
                }
                why => why.to_string(),
            };
            let error = io::Error::new(io::ErrorKind::PermissionDenied, why);
            AgentError::Folder { folder: folder.to_owned(), error }
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn config(home: &Path) -> AgentConfig {
        fs::set_permissions(home, fs::Permissions::from_mode(0o700)).unwrap();
        AgentConfig {
            folder: home.join("agent"),
            order: OrderedBy::Agent(Rules::default()),
            idle: Duration::ZERO,
        }
    }

    /// Bytes that an agent answers to a new program; `None` if it does not run.
    fn greet(folder: &Path) -> Option<usize> {
        let mut agent = UnixStream::connect(socket(folder)).ok()?;
        agent.set_read_timeout(Some(DEADLINE)).unwrap();
        // It may close the connection first.
        let _ = agent.write_all(&[HELLO]);
        Some(agent.read(&mut [0]).unwrap_or(0))
    }

    #[test]
    fn an_agent_that_ends_answers_no_new_program() {
        let home = tempfile::tempdir().unwrap();
        let config = config(home.path());
        let began = Instant::now();
        let mut came = 0;
        while came < 3 {
            thread::scope(|scope| {
                let agent = scope.spawn(|| run(&config));
                while !agent.is_finished() {
                    came += greet(&config.folder)
                        .inspect(|answer| assert_eq!(*answer, 0, "it goes"))
                        .map_or(0, |_| 1);
                }
                agent.join().unwrap().unwrap();
            });
            assert!(began.elapsed() < DEADLINE, "nobody ever finds it there");
        }
    }

    /// What stands at the agent's folder, in a folder that is open to all: whether it is used. A
    /// link of another user would lead to the user's own folder first, and to the other user's when
    /// the library is loaded.
    #[test]
    fn a_folder_that_another_user_could_replace_is_no_agents() {
        use std::os::unix::fs::{lchown, symlink};
        type Make = fn(&Path, &Path);
        let table: &[(&str, bool, Make)] = &[
            ("nothing", true, |_, _| ()),
            ("a link", false, |own, at| symlink(own, at).unwrap()),
            ("a link of another user", false, |own, at| {
                symlink(own, at).unwrap();
                // Only root can make it another user's.
                let _ = lchown(at, Some(4321), None);
            }),
            ("an open folder", false, |_, at| {
                fs::create_dir(at).unwrap();
                fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
            }),
        ];
        for (which, is_used, make) in table {
            let (open, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            fs::set_permissions(open.path(), fs::Permissions::from_mode(0o1777)).unwrap();
            let at = open.path().join("eyas-io-1000");
            make(own.path(), &at);
            assert_eq!(make_folder(&at.join("lib")).is_ok(), *is_used, "{which}");
            assert_eq!(fs::read_dir(own.path()).unwrap().count(), 0, "{which}");
            fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).unwrap();
            assert!(make_folder(&at.join("lib")).is_err(), "others can rename it: {which}");
        }
    }

    #[test]
    fn the_next_waits_for_one_that_goes() {
        let home = tempfile::tempdir().unwrap();
        let config = config(home.path());
        make_folder(&config.folder).unwrap();
        let path = config.folder.join("agent.lock");
        let lock = File::create(&path).unwrap();
        lock.lock().unwrap();
        let began = Instant::now();
        let is_open = |entry: io::Result<fs::DirEntry>| {
            fs::read_link(entry.unwrap().path()).is_ok_and(|at| at == path)
        };
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| run(&config));
            while fs::read_dir("/proc/self/fd").unwrap().map(is_open).filter(|is_it| *is_it).count()
                < 2
            {
                assert!(began.elapsed() < DEADLINE, "it does not come");
            }
            drop(lock);
            next.join().unwrap()
        });
        next.unwrap();
    }
}
