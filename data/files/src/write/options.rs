//! How a file is written.

use eyas_types::dfs::{DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION, RecordFormat};

use crate::entries::Creation;

/// Options of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The format of its records.
    pub format: RecordFormat,
    /// Target size of its chunks, bytes.
    pub chunk_bytes: u64,
    /// Number of replicas of each chunk, or the number of nodes if that is smaller.
    pub replication: u8,
    /// Whether the file appears only when its content is on the disks of the nodes. Otherwise it
    /// is there soon afterwards; until then, a power failure may take the file, or bring the
    /// version before back.
    pub is_durable: bool,
    /// Owner, permissions and time of the file.
    pub creation: Creation,
}

impl WriteOptions {
    /// The default options for this format. The file belongs to the user of this process.
    pub fn of(format: impl Into<RecordFormat>) -> Self {
        let format = format.into();
        let (chunk_bytes, replication) = (DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION);
        WriteOptions {
            format,
            chunk_bytes,
            replication,
            is_durable: true,
            creation: Creation::of_process(0o666),
        }
    }
}
