//! The tables of the journal's database, and values that have several rows.

use redb::{ReadableTable, Table, TableDefinition};
use serde::Serialize;

use super::error::JournalProblem;

/// A table whose values are in parts: the number of a value, and that of its part.
pub(super) type PartsTable = TableDefinition<'static, (u64, u32), &'static [u8]>;
/// A table of what jobs have several of: the job, and the number.
pub(super) type NumberedTable = TableDefinition<'static, (u32, u64), &'static [u8]>;

/// Each job's stored job, and when it was submitted (milliseconds since 1970).
pub(super) const JOBS: TableDefinition<u32, (u64, u64)> = TableDefinition::new("jobs");
/// Jobs as they were submitted, in parts that follow each other: a value is written, read and
/// cached as a whole.
pub(super) const STORED: PartsTable = TableDefinition::new("stored");
/// Chunks of the objects of stored jobs, in parts.
pub(super) const CHUNKS: PartsTable = TableDefinition::new("chunks");
/// Versions of a job's objects, by their places, that replace those it was submitted with.
pub(super) const CURRENT: TableDefinition<(u32, u32), &[u8]> = TableDefinition::new("current");
/// Each job's last snapshot, in parts.
pub(super) const SNAPSHOTS: PartsTable = TableDefinition::new("snapshots");
/// Entries of each job after its snapshot, in order; results are in their own table.
pub(super) const ENTRIES: NumberedTable = TableDefinition::new("entries");
/// Results of each job, by the same numbers.
pub(super) const RESULTS: NumberedTable = TableDefinition::new("results");
/// Ended jobs in short. There is none of a job with entries after its snapshot.
pub(super) const SUMMARIES: TableDefinition<u32, &[u8]> = TableDefinition::new("summaries");
/// Jobs that stop when their first tasks fail in the same way. Journals of earlier versions do not
/// have the table: their jobs do not stop.
pub(super) const HALTS: TableDefinition<u32, ()> = TableDefinition::new("halts");
/// Bytes in each job's file of captured output.
pub(super) const OUTPUTS: TableDefinition<u32, u64> = TableDefinition::new("outputs");
/// Names of files, with their places. Journals of earlier versions do not have the table.
pub(super) const NAMES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("names");
/// The journal's own format, and which the cluster's file system is.
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
pub(super) const FILE_SYSTEM: &str = "file_system";
/// Number of transactions so far.
pub(super) const TRANSACTIONS: &str = "transactions";
/// The format; `journal/formats.txt` has what it consists of. `journal/fixtures/` has a journal of
/// each format that was released, and a test reads them.
pub(super) const FORMAT: u64 = 8;
/// The minor version of the format, which grows when more can be written. A journal of an earlier
/// one is read as it is.
#[cfg(test)]
pub(super) const FORMAT_MINOR: u16 = 3;
/// Bytes of a job or a snapshot in one row.
pub(super) const PART_BYTES: usize = 1 << 20;

/// A value that is in parts, if it is there.
pub(super) fn read_parts(
    table: &impl ReadableTable<(u64, u32), &'static [u8]>,
    of: u64,
) -> Result<Option<Vec<u8>>, JournalProblem> {
    let mut encoded: Option<Vec<u8>> = None;
    for row in table.range((of, 0)..=(of, u32::MAX))? {
        encoded.get_or_insert_default().extend_from_slice(row?.1.value());
    }
    Ok(encoded)
}

/// Puts a value in the table, in parts.
pub(super) fn put_parts(
    table: &mut Table<'_, (u64, u32), &[u8]>,
    of: u64,
    encoded: &[u8],
) -> Result<(), JournalProblem> {
    remove_parts(table, of)?;
    for (number, part) in encoded.chunks(PART_BYTES).enumerate() {
        table.insert((of, number as u32), part)?;
    }
    Ok(())
}

/// Removes the parts of a value from the table.
pub(super) fn remove_parts(
    table: &mut Table<'_, (u64, u32), &[u8]>,
    of: u64,
) -> Result<(), JournalProblem> {
    Ok(table.retain_in((of, 0)..=(of, u32::MAX), |_, _| false)?)
}

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("jobs and entries can be encoded")
}
