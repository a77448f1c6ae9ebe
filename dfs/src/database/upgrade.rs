//! Upgrade of databases of earlier formats. In format 2, records had no kind and no owner: each becomes a file of root
//! that all users may read. In format 3, all content was on the disks of its nodes, as far as the records said.

use eyas_ring::{NameEntry, RecordVersion, Stored};
use eyas_types::dfs::{Attributes, Chunk, FileId, FileKind, FileName, FileRecord, Format, Quota};
use redb::{ReadableTable, Table};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{BadValue, Key, bytes_of, of_bytes};

/// The formats that are upgraded.
pub const UPGRADED: [u32; 2] = [2, 3];

/// Permission bits of files of format 2.
const MODE: u16 = 0o644;

/// An entry of an earlier format. Entries are decoded by position: the order of fields and variants is that of their
/// format.
#[derive(Deserialize)]
struct StoredBefore<E> {
    version: RecordVersion,
    entry: E,
}

#[derive(Deserialize)]
enum Entry2 {
    File(Record2),
    Removed { id: FileId, is_gone: bool },
    Arriving { from: FileName, version: RecordVersion, id: FileId },
    Departed { to: FileName, token: RecordVersion, record: Record2 },
}

#[derive(Deserialize)]
enum Entry3 {
    File(Record3),
    Removed { id: FileId, is_gone: bool },
    Arriving { from: FileName, version: RecordVersion, id: FileId, over: Option<Record3> },
    Departed { to: FileName, token: RecordVersion, record: Record3 },
}

#[derive(Deserialize)]
struct Record2 {
    id: FileId,
    format: Format,
    chunk_bytes: u64,
    replication: u8,
    modified_us: u64,
    chunks: Vec<Chunk>,
}

#[derive(Deserialize)]
struct Record3 {
    id: FileId,
    kind: FileKind,
    attributes: Attributes3,
    quota: Option<Quota>,
    format: Format,
    chunk_bytes: u64,
    replication: u8,
    chunks: Vec<Chunk>,
}

#[derive(Deserialize)]
struct Attributes3 {
    mode: u16,
    uid: u32,
    gid: u32,
    modified_ns: u64,
    changed_ns: u64,
}

impl From<Record2> for FileRecord {
    fn from(before: Record2) -> Self {
        let Record2 { id, format, chunk_bytes, replication, modified_us, chunks } = before;
        let modified_ns = modified_us.saturating_mul(1000);
        let attributes = Attributes { mode: MODE, uid: 0, gid: 0, modified_ns, changed_ns: modified_ns };
        let record = FileRecord::without_content(id, FileKind::File, attributes);
        FileRecord { format: format.into(), chunk_bytes, replication, chunks, ..record }
    }
}

impl From<Record3> for FileRecord {
    fn from(before: Record3) -> Self {
        let Record3 { id, kind, attributes, quota, format, chunk_bytes, replication, chunks } = before;
        let Attributes3 { mode, uid, gid, modified_ns, changed_ns } = attributes;
        let attributes = Attributes { mode, uid, gid, modified_ns, changed_ns };
        FileRecord {
            id,
            kind,
            attributes,
            quota,
            format: format.into(),
            chunk_bytes,
            replication,
            chunks,
            unsynced: None,
        }
    }
}

impl From<Entry2> for NameEntry {
    fn from(before: Entry2) -> Self {
        match before {
            Entry2::File(record) => NameEntry::File(record.into()),
            Entry2::Removed { id, is_gone } => NameEntry::Removed { id, is_gone },
            Entry2::Arriving { from, version, id } => NameEntry::Arriving { from, version, id, over: None },
            Entry2::Departed { to, token, record } => NameEntry::Departed { to, token, record: record.into() },
        }
    }
}

impl From<Entry3> for NameEntry {
    fn from(before: Entry3) -> Self {
        match before {
            Entry3::File(record) => NameEntry::File(record.into()),
            Entry3::Removed { id, is_gone } => NameEntry::Removed { id, is_gone },
            Entry3::Arriving { from, version, id, over } => {
                NameEntry::Arriving { from, version, id, over: over.map(FileRecord::from) }
            }
            Entry3::Departed { to, token, record } => NameEntry::Departed { to, token, record: record.into() },
        }
    }
}

/// Writes every record of this format in the present one.
pub fn upgrade(format: u32, records: &mut Table<Key, &'static [u8]>) -> Result<(), UpgradeError> {
    match format {
        2 => upgrade_from::<Entry2>(records),
        _ => upgrade_from::<Entry3>(records),
    }
}

/// Reads one record at a time.
fn upgrade_from<E: DeserializeOwned + Into<NameEntry>>(
    records: &mut Table<Key, &'static [u8]>,
) -> Result<(), UpgradeError> {
    let mut next = (0, String::new());
    loop {
        let (partition, name, StoredBefore::<E> { version, entry }) = {
            let Some(found) = records.range((next.0, next.1.as_str())..)?.next() else { return Ok(()) };
            let (key, value) = found?;
            let (partition, name) = key.value();
            (partition, name.to_owned(), of_bytes(value.value())?)
        };
        records.insert((partition, name.as_str()), &*bytes_of(&Stored { version, entry: entry.into() }))?;
        // Names contain no NUL, so no name is between the two.
        next = (partition, format!("{name}\0"));
    }
}

/// A database of an earlier format could not be upgraded.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// A record cannot be read or written.
    #[error(transparent)]
    Storage(#[from] redb::StorageError),
    /// A record cannot be decoded.
    #[error(transparent)]
    Value(#[from] BadValue),
}
