//! Upgrade of a database of format 2, in which records had no kind and no owner: each becomes a file of root that all
//! users may read.

use eyas_ring::{NameEntry, RecordVersion, Stored};
use eyas_types::dfs::{Attributes, Chunk, FileId, FileKind, FileName, FileRecord, Format};
use redb::{ReadableTable, Table};
use serde::Deserialize;

use super::{BadValue, Key, bytes_of, of_bytes};

/// The format that is upgraded.
pub const UPGRADED: u32 = 2;

/// Permission bits of files of format 2.
const MODE: u16 = 0o644;

/// Entries are decoded by position: the order of fields and variants is that of format 2.
#[derive(Deserialize)]
struct StoredBefore {
    version: RecordVersion,
    entry: EntryBefore,
}

#[derive(Deserialize)]
enum EntryBefore {
    File(RecordBefore),
    Removed { id: FileId, is_gone: bool },
    Arriving { from: FileName, version: RecordVersion, id: FileId },
    Departed { to: FileName, token: RecordVersion, record: RecordBefore },
}

#[derive(Deserialize)]
struct RecordBefore {
    id: FileId,
    format: Format,
    chunk_bytes: u64,
    replication: u8,
    modified_us: u64,
    chunks: Vec<Chunk>,
}

impl From<RecordBefore> for FileRecord {
    fn from(before: RecordBefore) -> Self {
        let RecordBefore { id, format, chunk_bytes, replication, modified_us, chunks } = before;
        let modified_ns = modified_us.saturating_mul(1000);
        let attributes = Attributes { mode: MODE, uid: 0, gid: 0, modified_ns, changed_ns: modified_ns };
        let record = FileRecord::without_content(id, FileKind::File, attributes);
        FileRecord { format, chunk_bytes, replication, chunks, ..record }
    }
}

impl From<StoredBefore> for Stored {
    fn from(before: StoredBefore) -> Self {
        let entry = match before.entry {
            EntryBefore::File(record) => NameEntry::File(record.into()),
            EntryBefore::Removed { id, is_gone } => NameEntry::Removed { id, is_gone },
            EntryBefore::Arriving { from, version, id } => NameEntry::Arriving { from, version, id, over: None },
            EntryBefore::Departed { to, token, record } => NameEntry::Departed { to, token, record: record.into() },
        };
        Stored { version: before.version, entry }
    }
}

/// Writes every record in the present format. Reads one record at a time.
pub fn upgrade(records: &mut Table<Key, &'static [u8]>) -> Result<(), UpgradeError> {
    let mut next = (0, String::new());
    loop {
        let (partition, name, stored) = {
            let Some(found) = records.range((next.0, next.1.as_str())..)?.next() else { return Ok(()) };
            let (key, value) = found?;
            let (partition, name) = key.value();
            (partition, name.to_owned(), of_bytes::<StoredBefore>(value.value())?)
        };
        records.insert((partition, name.as_str()), &*bytes_of(&Stored::from(stored)))?;
        // Names contain no NUL, so no name is between the two.
        next = (partition, format!("{name}\0"));
    }
}

/// A database of format 2 could not be upgraded.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// A record cannot be read or written.
    #[error(transparent)]
    Storage(#[from] redb::StorageError),
    /// A record cannot be decoded.
    #[error(transparent)]
    Value(#[from] BadValue),
}
