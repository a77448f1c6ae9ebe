//! Moving objects between nodes: a server that gives away what its node's store has, a client that takes it, and the
//! order in which sources are tried.
//!
//! [`PeerServer`] sends what its node has, also of objects that are still being received: so nodes that want the same
//! object at the same time form a chain, in which each relays to the next. [`Peers`] holds connections to other nodes' servers and
//! receives into the store, or pushes what another node [expects](PeerServer::expect). [`Fetcher`] is what an executor calls: here already, or from a peer that is said to have it,
//! or from persistent storage, or a failure that tells what was tried.
//!
//! Hints about who has what come from outside and may be wrong; nothing here keeps a catalog or decides where a task
//! runs. Bytes go over TLS between nodes that prove, in both directions, that they have the cluster's key; or, if the cluster has
//! decided so (`--plain-data`), over plain TCP, where both sides prove that they know it, and the data is neither secret from nor
//! safe against someone who controls the network between the nodes.

#![forbid(unsafe_code)]

mod connection;
mod error;
mod fetcher;
pub mod limits;
mod link;
mod peers;
mod protocol;
mod push;
mod receive;
mod server;

pub use error::{FetchError, FetchErrorKind, PeerError, PeerErrorKind};
pub use fetcher::{FetchSource, FetchedObject, Fetcher, PeerHolder};
pub use limits::PeerLimits;
pub use peers::{Broken, Peers};
pub use push::Expected;
pub use server::{PeerServer, Served};
