//! The nodes of the distributed file system: large files in chunks on the executors' own disks,
//! without a master (elastic-blocks §2.4).
//!
//! A [`DfsNode`] is one node of it. It runs in the process of an executor and shares the executor's
//! store. `eyas_ring` decides which node leads which file and which nodes keep what. The clients
//! are in `eyas_files`, and so is what clients and nodes say to each other.

#![forbid(unsafe_code)]

mod audit;
mod auditors;
mod change_log;
mod chunks;
mod database;
mod gossip;
mod incoming_audits;
mod links;
mod load;
mod memory;
mod node;
mod node_shared;
mod rights;
mod ring_thread;
mod runs;
mod sealer;
mod serve;
mod space;

pub use change_log::DEFAULT_AUDIT_BYTES;
pub use database::DatabaseError;
pub use load::LoadOptions;
pub use node::{DfsNode, NodeError, PreparedNode};
pub use space::{BoxedFuture, ChunkSpace, SpaceError};
