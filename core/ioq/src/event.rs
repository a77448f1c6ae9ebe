//! What a coordinator is told, and what it wants done: the whole of its traffic with the world.

use alloc::vec::Vec;

use eyas_types::{Extent, Operation, StorageFileId};
use serde::{Deserialize, Serialize};

/// One storage, as it is to be treated: a file server, one of those that files are striped over, an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u32);

/// Who asks, and is told to go: a program, or an agent for all programs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u64);

/// Jobs that are treated alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClassId(pub u32);

/// One request. Later ones have greater numbers, whomever they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// Requests of a server that were granted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId(pub u64);

/// One client's turn in a run of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GrantId(pub u64);

/// A wish to read or write some bytes of a file: those of one call, or as many as a stream is expected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number.
    pub id: RequestId,
    /// Whose it is.
    pub client: ClientId,
    /// Where it goes.
    pub server: ServerId,
    /// How it is treated.
    pub class: ClassId,
    /// Which file.
    pub file: StorageFileId,
    /// What is done.
    pub operation: Operation,
    /// With which bytes; on a striped server, of what that has of the file.
    pub extent: Extent,
    /// What it is a part of, if that goes to several servers.
    pub call: Option<Call>,
}

/// What a client wants at once of several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Told from others of its client by this.
    pub number: u64,
    /// On all servers together.
    pub size_bytes: u64,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Clients want these. What comes together is decided together.
    Asked(Vec<Request>),
    /// A client has done what it was granted.
    Completed {
        /// Who says so.
        client: ClientId,
        /// Of which server.
        server: ServerId,
        /// What it was.
        grant: GrantId,
        /// So many bytes it has read or written.
        bytes: u64,
        /// How long that took where it was done, without the messages, if that is known.
        took_us: Option<u64>,
    },
    /// A client does not want this any more, granted or not.
    Cancelled {
        /// Who says so.
        client: ClientId,
        /// Of which server.
        server: ServerId,
        /// What.
        request: RequestId,
    },
    /// A client has vanished, and with it all that it wanted or was granted.
    Gone {
        /// Who.
        client: ClientId,
    },
    /// The time that was asked for is there.
    Tick,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Tell a client to go, and to say when it is done.
    Granted(Grant),
    /// Tell a client to go, out of order: its storage is not known here, or too much waits. Nothing is heard of it any more.
    Uncoordinated {
        /// Whom.
        client: ClientId,
        /// With what.
        request: RequestId,
    },
    /// Tell a client that it has taken too long: others are told to go. What it does yet is not in order.
    Revoked {
        /// Whom.
        client: ClientId,
        /// Of which server.
        server: ServerId,
        /// What it was granted.
        grant: GrantId,
    },
}

/// Leave for one client's consecutive requests of a run to go ahead. The turns of a run that are others' have its number,
/// too: they are granted next, in the order of offsets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its number.
    pub id: GrantId,
    /// The run that it is a turn of.
    pub run: RunId,
    /// Who may go.
    pub client: ClientId,
    /// Where.
    pub server: ServerId,
    /// Which file.
    pub file: StorageFileId,
    /// What is done.
    pub operation: Operation,
    /// From the first to the last byte of the requests.
    pub extent: Extent,
    /// Which requests, in the order of their offsets.
    pub requests: Vec<RequestId>,
    /// It is revoked if it has not been completed by then.
    pub until_us: u64,
}
