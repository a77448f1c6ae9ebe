//! The messages between eyas processes: versioned types and their encoding. No sockets.
//!
//! A connection begins with one [`Hello`] in each direction. Afterwards each side sends frames: a
//! length, then one or more messages in `postcard`. So a thousand small messages cost one
//! encryption and one system call. A peer with another major version of the protocol is refused
//! with a reason.

#![forbid(unsafe_code)]

pub mod client;
pub mod executor;
pub mod frame;
pub mod pool;
pub mod printed;
pub mod trust;
pub mod view;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::trust::Trust;

/// Version of all messages of sessions, major and minor. `formats.txt` beside `src/` has what it
/// consists of. Both sides must have the same major version. A minor version adds messages, which a
/// process sends only to sides that have it ([`Hello::minor`]).
pub const PROTOCOL_VERSION: (u16, u16) = (13, 11);

/// The minor version from which on outputs are delivered when their task fails. Templates with such
/// outputs are not sent to sides that lack it.
pub const MINOR_OF_FAILURES: u16 = 3;

/// The minor version from which on tasks read what nodes make of files: the content of compressed
/// ones, or folders. Tasks with such inputs are not sent to sides that lack it.
pub const MINOR_OF_DERIVED: u16 = 8;

/// The minor version from which on files have names. Tasks with such inputs are not sent to sides
/// that lack it.
pub const MINOR_OF_NAMES: u16 = 9;

/// The minor version from which on executors give each other derived copies. An executor does not
/// ask a dispatcher that lacks it for any.
pub const MINOR_OF_COPIES: u16 = 10;

/// The minor version from which on executors say that a task was stopped as it made a derived copy,
/// and which executor has sent them a damaged object. Dispatchers that lack it are not told.
pub const MINOR_OF_DAMAGE: u16 = 11;

/// Why the other side of a connection cannot be talked to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HelloError {
    /// The other side is not an eyas process.
    #[error("the other side does not speak eyas's protocol")]
    Magic,
    /// The other side's greeting does not consist of what this version has.
    #[error("the greeting of the other side is not one: {0}")]
    Body(#[from] postcard::Error),
    /// The other side has another major version.
    #[error(
        "the other side speaks version {0} of eyas's protocol, and this side version {own}: use \
         the same version of eyas on all nodes",
        own = PROTOCOL_VERSION.0
    )]
    Version(u16),
}

/// First message on a connection, in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The bytes `eyas`, by which other protocols are recognised.
    pub magic: [u8; 4],
    /// The sender's [`PROTOCOL_VERSION`], which stands here in every version.
    pub version: (u16, u16),
    /// The kind of process that sends.
    pub role: Role,
    /// How the sender moves bulk data.
    pub data: DataMode,
    /// The cluster's trust, if the sender is its dispatcher.
    pub trust: Option<Trust>,
}

/// How processes of a cluster exchange bulk data; the same for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataMode {
    /// Over TLS.
    #[default]
    Encrypted,
    /// Over plain TCP, for closed networks.
    Plain,
}

/// The kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Submits jobs, watches them and queries the cluster.
    Client,
    /// Stores objects and runs tasks.
    Executor,
    /// Places tasks.
    Dispatcher,
    /// Keeps files of the distributed file system.
    Node,
    /// Orders the reads and writes of a node's programs.
    Agent,
    /// Orders the reads and writes of all nodes.
    Coordinator,
}

impl Hello {
    /// A greeting in the current version.
    pub fn new(role: Role, data: DataMode, trust: Option<Trust>) -> Self {
        Hello { magic: *b"eyas", version: PROTOCOL_VERSION, role, data, trust }
    }

    /// Reads a greeting. Other major versions may have other fields after magic and version.
    ///
    /// # Errors
    /// If it is none of this major version.
    pub fn decode(body: &[u8]) -> Result<Self, HelloError> {
        let ((magic, version), _) = postcard::take_from_bytes::<([u8; 4], (u16, u16))>(body)?;
        if magic != *b"eyas" {
            return Err(HelloError::Magic);
        }
        if version.0 != PROTOCOL_VERSION.0 {
            return Err(HelloError::Version(version.0));
        }
        match postcard::take_from_bytes(body)? {
            (hello, []) => Ok(hello),
            _ => Err(postcard::Error::DeserializeBadEncoding.into()),
        }
    }

    /// The newest minor version that both sides have.
    pub fn minor(&self) -> u16 {
        self.version.1.min(PROTOCOL_VERSION.1)
    }

    /// Whether two processes exchange bulk data in the same way. Clients and agents follow the
    /// other side.
    pub fn agrees_with(&self, other: &Hello) -> bool {
        self.data == other.data || !(self.role.decides() && other.role.decides())
    }
}

impl Role {
    /// Whether the process was started with a fixed data mode.
    fn decides(self) -> bool {
        matches!(self, Role::Dispatcher | Role::Executor | Role::Node)
    }
}
