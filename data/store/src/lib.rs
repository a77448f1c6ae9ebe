//! The storage of a node: its local object store, and access to persistent storage.
//!
//! [`ObjectStore`] holds whole, immutable objects by id, one inode each. Tasks get them by hard
//! link, so a local hit moves no bytes. [`Storage`] reads objects from, and writes results to, the
//! slow shared storage that their URLs name. [`Emulation`] makes one machine behave like a cluster
//! with a slow shared file system.
//!
//! This room knows no peers, does not decide what to evict, and does not count users of objects: a
//! store that is told to remove an object removes it. Calls of [`ObjectStore`] and [`Incoming`]
//! block on the local disk and belong on blocking threads, except where their documentation says
//! that they take microseconds. [`Storage`] moves its file operations to blocking threads itself.

#![forbid(unsafe_code)]

mod adopt;
mod alias;
pub mod checksum;
pub mod compressed;
pub mod damaged;
mod durable;
pub mod emulation;
pub mod error;
pub mod glob;
mod hand_out;
mod handed_over;
pub mod holes;
pub mod incoming;
mod index;
pub mod limiter;
mod listing;
pub mod objects;
mod order;
pub mod packed;
pub mod partial_replica;
pub mod pieces;
mod stage;
pub mod storage;
mod unstaged;
pub mod url;

pub use checksum::{Checksum, ChecksumError, Hasher};
pub use damaged::DamagedUsage;
pub use emulation::{Emulation, EmulationError, Limits};
pub use error::{StorageError, StorageErrorKind, StoreError, StoreErrorKind};
pub use glob::{Glob, GlobError, name_of, path_of};
pub use handed_over::HandedOver;
pub use holes::{Segment, Segments, is_hole, is_zeros};
pub use incoming::Incoming;
pub use index::object_path;
pub use limiter::Limiter;
pub use listing::stored_objects;
pub use objects::{FreeSpace, ObjectStore, OpenObject, Presence, Seal};
pub use order::{StorageOrder, StorageTurn, TurnRequest};
pub use partial_replica::{ArrivalEnd, ArrivalProgress, PartialReplica};
pub use pieces::PIECE_BYTES;
pub use stage::StagedBy;
pub use storage::{
    ClusterFile, ClusterFiles, ContentPart, FileNames, FileParts, FoundFile, PlacesOfFile, Spot,
    Storage, StoredContent, UnpublishedOutput, UnsyncedOutput, output_mode, remove_copies,
};
pub use unstaged::{UnstagedFile, unstaged_files};
pub use url::url_of;
