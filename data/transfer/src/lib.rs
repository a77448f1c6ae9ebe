//! Transfers of objects between nodes: a server that sends objects of its node's store, a client
//! that receives them, and the order in which sources are tried.
//!
//! [`PeerServer`] sends the objects of its node, including those that it is still receiving. So
//! nodes that want the same object at the same time form a chain in which each relays to the next.
//! [`Peers`] keeps connections to the servers of other nodes. It receives objects into the store,
//! or pushes objects that another node [expects](PeerServer::expect). [`Fetcher`] is the interface
//! for executors: it finds the object in the store, or fetches it from a holder or from persistent
//! storage, or returns an error that lists what was tried.
//!
//! Hints about holders come from outside and may be wrong. This room keeps no catalog and does not
//! decide where tasks run. By default data goes over TLS, and both nodes prove that they have the
//! cluster's key. With `--plain-data` it goes over plain TCP. Both sides still prove that they know
//! the key, but anyone who controls the network between the nodes can read and change the data.

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
pub use fetcher::{DamagedDelivery, FetchSource, FetchedObject, Fetcher, PeerHolder};
pub use limits::PeerLimits;
pub use peers::{InterruptedTransfer, Peers};
pub use push::ExpectedObject;
pub use server::{PeerServer, SendCounters};
