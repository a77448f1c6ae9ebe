//! The node of an agent, as the agent's state sees it: facts, and work that goes on elsewhere and
//! comes back as a message.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use eyas_board::CachedFile;
use eyas_ioq::RequestId;

use super::parts::PartWanted;
use super::program_file::{FileKey, ProgramFile};
use crate::node::NodeFacts;

/// The node of an agent.
pub(crate) trait AgentNode: NodeFacts {
    /// A file that a program has open.
    type File: ProgramFile;

    /// Milliseconds of the clock that programs compare heartbeats with.
    fn monotonic_ms(&self) -> u64;
    /// Whether a process is alive. One that the agent cannot see counts as alive.
    fn is_alive(&self, process: u32) -> bool;
    /// What the agents of one user have in common, and no others, and this agent's port for them;
    /// `None` if it exchanges no parts of files.
    fn peers(&self) -> Option<([u8; 32], u16)>;
    /// Reads a window. `AgentMessage::WindowRead` follows.
    ///
    /// # Errors
    /// If no thread can be started.
    fn read(&self, job: WindowJob<Self::File>) -> io::Result<()>;
    /// Takes a part from another agent. `AgentMessage::PartTaken` follows.
    fn take(&self, job: PartJob<Self::File>);
}

/// A window to be read.
pub(crate) struct WindowJob<F> {
    pub request: RequestId,
    pub key: FileKey,
    pub window: Range<u64>,
    pub file: Arc<F>,
    pub entry: &'static CachedFile,
    /// End of the windows of the file that are read one after the other in the same turn.
    pub turn_end: u64,
    /// Whether the duration of the first call is wanted.
    pub is_timed: bool,
}

/// A part to be taken from the agent at this address.
pub(crate) struct PartJob<F> {
    pub from: SocketAddr,
    pub wanted: PartWanted,
    pub file: Arc<F>,
    pub key: FileKey,
    pub window: Range<u64>,
}
