//! The cluster's files as their clients use them: the protocol of clients and nodes, and a client's
//! side of it (elastic-blocks listing 1).
//!
//! [`DfsClient`] is the interface. A client finds the leader of a name itself, from the view that
//! it knows. A node that is asked by mistake answers with the current leader. Chunks are
//! transferred directly between clients and nodes. The nodes are in `eyas_dfs`, of which this crate
//! knows nothing. `eyas_blocks` decides where files are cut, `eyas_reading` what a reader requests.

mod background;
mod backoff;
mod calls;
mod changes;
mod chunk_sizes;
mod chunk_stream;
mod client;
mod copy;
mod draft;
mod entries;
mod error;
mod file;
mod file_writer;
mod folders;
mod groups;
mod memory;
mod names;
mod near;
mod outgoing;
mod places;
pub mod protocol;
mod publish;
mod quota;
mod random;
mod read;
mod reader;
mod record_index;
mod rename;
mod replicas;
mod routes;
mod runs;
mod source;
mod source_chunks;
mod storage;
mod store_folder;
mod upkeep;
mod uploads;
mod write;

pub use eyas_blocks as blocks;
pub use eyas_ring::{Listing, View};
pub use eyas_store::is_hole;

pub use background::Background;
pub use changes::Changes;
pub use chunk_sizes::{MAX_CHUNK_BYTES, SMALL_CHUNK_BYTES};
pub use chunk_stream::{ChunkStream, FilePart};
pub use client::DfsClient;
pub use copy::CopyOptions;
pub use copy::retained::RetainedFile;
pub use draft::content::{DraftContent, READ_BYTES};
pub use draft::{ContentDraft, DraftSnapshot, EarlyUploads, Scratch, holes, renamed};
pub use entries::{Creation, own_as};
pub use error::{FilesError, FilesErrorKind};
pub use file::File;
pub use file_writer::FileWriter;
pub use folders::list::FolderPage;
pub use memory::ChunkMemory;
pub use near::mapped::LockedFile;
pub use near::node::NearNode;
pub use near::{CheckedFile, ChunkContent, OpenChunk};
pub use places::{BlockHolder, BlockPlace};
pub use protocol::{
    ChangeEntry, DfsMembership, FilesOrigin, Member, MemoryAccount, MemoryUse, NodeLoad, Usage,
};
pub use publish::HiddenFile;
pub use quota::FolderUsage;
pub use random::new_file_id;
pub use reader::{ChunkCache, FileReader};
pub use record_index::{RecordsError, bytes_of_records, probe};
pub use rename::RenameOptions;
pub use routes::gather::JoinProgress;
pub use routes::recover::Recovery;
pub use runs::RunAttendance;
pub use runs::spec::{BlockRunId, OutputPart, RunAddress, RunSpec, RunSpecError, RunStatus};
pub use source::{ContentSource, SparseFile};
pub use source_chunks::{SourceChunk, SourceChunks};
pub use storage::FilesStorage;
pub use upkeep::{LostChunk, VerifyReport};
pub use write::options::WriteOptions;
pub use write::rewrite::{Change, NewContent, NewFile, SentRecords, UnclaimedContent};
