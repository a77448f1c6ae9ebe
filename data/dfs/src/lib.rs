//! The distributed file system: large files in chunks on the executors' own disks, without a master (elastic-blocks
//! §2.4).
//!
//! A [`DfsNode`] is one node of it. It runs in the process of an executor and shares the executor's store.
//! [`DfsClient`] is the interface for clients. `eyas_ring` decides which node leads which file and which nodes keep
//! what; `eyas_blocks` decides where files are cut.

mod audit;
mod change_log;
mod chunks;
mod client;
mod database;
mod gossip;
mod links;
mod node;
mod protocol;
mod record_index;
mod rights;
mod ring_thread;
mod runs;
mod sealer;
mod serve;
mod space;
mod storage;

pub use change_log::DEFAULT_AUDIT_BYTES;
pub use client::{
    Background, BlockHolder, BlockPlace, Changes, ChunkCache, ChunkContent, ContentSource, CopyOptions, Creation,
    DfsClient, File, FilePart, FileReader, FileWriter, FilesError, FilesErrorKind, FolderPage, FolderUsage, Gathering,
    HiddenFile, LostChunk, MAX_CHUNK_BYTES, NearNode, OpenChunk, Reading, Recovery, RenameOptions, RetainedFile,
    RunAttendance, SMALL_CHUNK_BYTES, SparseFile, Verified, WriteOptions, own_as,
};
pub use client::{
    Change, ContentDraft, DraftContent, DraftSnapshot, EarlyContent, EarlyUploads, NewContent, READ_BYTES, Scratch,
    SentRecords, holes, new_file_id, renamed,
};
pub use database::DatabaseError;
pub use eyas_blocks as blocks;
pub use eyas_ring::{Listing, View};
pub use eyas_store::is_hole;
pub use node::{DfsNode, NodeError, PreparedNode};
pub use protocol::{ChangeEntry, DfsMembership, FilesOrigin, Member, Usage};
pub use record_index::{RecordsError, bytes_of_records};
pub use runs::{BlockRunId, OutputPart, RunAddress, RunSpec, RunStatus};
pub use space::{BoxedFuture, ChunkSpace, SpaceError};
pub use storage::FilesStorage;
