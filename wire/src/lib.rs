//! What eyas processes say to each other: versioned messages and their bytes. No sockets.
//!
//! A connection begins with one [`Hello`] each way. After that each side sends frames: a length, then one or more
//! messages in `postcard`, so that a thousand small messages cost one encryption and one system call. A version that
//! the other side does not speak is refused with a reason, never guessed at.

#![forbid(unsafe_code)]

pub mod client;
pub mod executor;
pub mod frame;
pub mod trust;
pub mod view;

use serde::{Deserialize, Serialize};

use crate::trust::Trust;

/// Version of everything in this crate. Both sides must have the same.
pub const PROTOCOL_VERSION: u16 = 2;

/// First message on a connection, both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The bytes `eyas`, so that a stranger is recognised as one.
    pub magic: [u8; 4],
    /// The sender's [`PROTOCOL_VERSION`].
    pub version: u16,
    /// What the sender is.
    pub role: Role,
    /// How the sender moves bulk data.
    pub data: DataMode,
    /// What the cluster trusts, if the sender is its dispatcher.
    pub trust: Option<Trust>,
}

/// How bulk data goes between the processes of a cluster: one decision for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataMode {
    /// Over TLS.
    #[default]
    Encrypted,
    /// Over plain TCP, for closed networks.
    Plain,
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Submits, watches and asks.
    Client,
    /// Stores objects and runs tasks.
    Executor,
    /// Places tasks.
    Dispatcher,
    /// Keeps files of the distributed file system.
    Node,
    /// Orders the reads and writes of a node's programs.
    Agent,
    /// Orders those of all nodes.
    Coordinator,
}

impl Hello {
    /// A greeting in the current version.
    pub fn new(role: Role, data: DataMode, trust: Option<Trust>) -> Self {
        Hello { magic: *b"eyas", version: PROTOCOL_VERSION, role, data, trust }
    }

    /// Whether whoever sent this can be talked to.
    ///
    /// # Errors
    /// Why not, for a person.
    pub fn check(&self) -> Result<(), String> {
        if self.magic != *b"eyas" {
            return Err("the other side does not speak eyas's protocol".into());
        }
        if self.version != PROTOCOL_VERSION {
            return Err(format!(
                "the other side speaks version {} of eyas's protocol, this side {PROTOCOL_VERSION}: use the same eyas on all nodes",
                self.version
            ));
        }
        Ok(())
    }

    /// Whether two processes that greet each other move bulk data alike; clients do as they are told.
    pub fn agrees_with(&self, other: &Hello) -> bool {
        self.data == other.data || !(self.role.decides() && other.role.decides())
    }
}

impl Role {
    /// Whether the process moves bulk data as it was told when it started.
    fn decides(self) -> bool {
        matches!(self, Role::Dispatcher | Role::Executor | Role::Node)
    }
}
