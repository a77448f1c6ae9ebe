//! Input and output of the decider: all of its traffic with the outside.

use alloc::vec::Vec;

use eyas_types::{Extent, Operation, StorageFileId};
use serde::{Deserialize, Serialize};

use crate::striping::FileLayout;

/// A storage that is ordered as one: a file server, one of the servers that files are striped over,
/// an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerId(pub u32);

/// A requester to which grants are sent: a program, or the agent of all programs on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u64);

/// A job class: jobs with the same quality of service. 0 is the default class.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ClassId(pub u32);

/// Number of a request. It grows with every request, over all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// Number of a run of a server: contiguous requests that are granted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestRunId(pub u64);

/// Number of a grant of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GrantId(pub u64);

/// A request to read or write some bytes of a file: those of one call, or a window of a stream that
/// is read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Number of the request.
    pub id: RequestId,
    /// Client that is told about the grant.
    pub client: ClientId,
    /// Server that will execute the request.
    pub server: ServerId,
    /// Class that decides the quality of service.
    pub class: ClassId,
    /// File that is read or written.
    pub file: StorageFileId,
    /// Read or write.
    pub operation: Operation,
    /// Bytes that are read or written. On a striped server, an extent of the server's own part of
    /// the file.
    pub extent: Extent,
    /// Call that this request is a part of, if the call goes to several servers.
    pub call: Option<Call>,
}

/// A call that is split over several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the call among those of its client.
    pub number: u64,
    /// Bytes of all parts together, on all servers.
    pub size_bytes: u64,
}

/// Input of the decider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Requests have arrived. Those of one event are queued before the next decision.
    Asked(Vec<Request>),
    /// A client has finished the requests of a grant.
    Completed {
        /// Client that reports the end.
        client: ClientId,
        /// Server of the grant.
        server: ServerId,
        /// The grant.
        grant: GrantId,
        /// Bytes that were read or written.
        bytes: u64,
        /// Duration as the client measured it, without messages, if known.
        took_us: Option<u64>,
    },
    /// A client no longer needs a request, whether it is granted or not.
    Cancelled {
        /// Client that cancels.
        client: ClientId,
        /// Server of the request.
        server: ServerId,
        /// The request.
        request: RequestId,
    },
    /// A client has disconnected. Its requests and grants end.
    Gone {
        /// The client.
        client: ClientId,
    },
    /// The time of [`crate::Servers::next_timeout`] has come.
    Tick,
    /// A request for a file has arrived whose layout is known. A storage that is one server ignores
    /// the layout.
    AskedStriped {
        /// The request.
        request: Request,
        /// Layout of its file, which must be [valid](FileLayout::is_valid).
        layout: FileLayout,
    },
}

/// Output of the decider, to be carried out in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Tell the client to execute the requests of this grant and to report their end.
    Granted(Grant),
    /// Tell the client to execute this request at once, unordered: its server is not configured
    /// here, or its queue is full. The client does not report the end.
    Uncoordinated {
        /// Client of the request.
        client: ClientId,
        /// The request.
        request: RequestId,
    },
    /// Tell the client that its lease has expired. Others are granted; what the client still does
    /// is unordered.
    Revoked {
        /// Client of the grant.
        client: ClientId,
        /// Server of the grant.
        server: ServerId,
        /// The grant.
        grant: GrantId,
    },
}

/// Permission for one client to execute its consecutive requests of a run: one turn. The turns of
/// other clients in the same run have the same run number and are granted next, in the order of
/// offsets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Number of the grant.
    pub id: GrantId,
    /// Run that this turn belongs to.
    pub run: RequestRunId,
    /// Client that may proceed.
    pub client: ClientId,
    /// Server of the requests.
    pub server: ServerId,
    /// File of the requests.
    pub file: StorageFileId,
    /// Read or write.
    pub operation: Operation,
    /// Bytes from the first to the last of the requests.
    pub extent: Extent,
    /// The requests, by offset.
    pub requests: Vec<RequestId>,
    /// End of the lease: the grant is revoked if it is not completed by then.
    pub until_us: u64,
}
