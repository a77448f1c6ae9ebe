//! Jobs that are written before they are submitted. A job with a million inputs has some 100 MB: as
//! one record, all other records, and the answers that wait for them, would wait until it is on
//! disk. So it is written part by part by whoever submits it, and other records go in between. Its
//! record then only names it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use eyas_jobs::{JobSpec, JournalRecord, StoredNumber};
use redb::{Database, ReadableDatabase, ReadableTable, WriteTransaction};

use super::error::JournalProblem;
use super::tables::{CHUNKS, JOBS, PART_BYTES, PartsTable, STORED, encode, remove_parts};
use crate::log::{RecordNumber, StoredJob};

/// What the journal's thread writes.
pub(super) enum ToWrite {
    Record(RecordNumber, JournalRecord),
    Store(ToStore),
}

/// What is done about stored jobs in one transaction.
pub(super) enum ToStore {
    /// Puts one part into a table.
    Part {
        table: PartsTable,
        of: StoredNumber,
        number: u32,
        bytes: Vec<u8>,
        /// Told when the part is on disk.
        written: mpsc::Sender<()>,
    },
    /// Removes a job that was not submitted.
    Remove(StoredNumber),
}

impl ToStore {
    pub fn write(&self, write: &WriteTransaction) -> Result<(), JournalProblem> {
        match self {
            ToStore::Part { table, of, number, bytes, .. } => {
                write.open_table(*table)?.insert((of.0, *number), &bytes[..])?;
            }
            ToStore::Remove(of) => {
                remove_parts(&mut write.open_table(STORED)?, of.0)?;
                remove_parts(&mut write.open_table(CHUNKS)?, of.0)?;
            }
        }
        Ok(())
    }

    /// It is on disk.
    pub fn written(self) {
        if let ToStore::Part { written, .. } = self {
            // Whoever stores the job may have gone away.
            let _ = written.send(());
        }
    }
}

/// Writes a job, one part after the other. `None` if the journal is no longer written.
pub(super) fn store(
    to_write: &mpsc::SyncSender<ToWrite>,
    next_stored: &AtomicU64,
    spec: &JobSpec,
) -> Option<StoredJob> {
    let number = StoredNumber(next_stored.fetch_add(1, Ordering::Relaxed));
    let removes = to_write.clone();
    let stored = StoredJob::new(number, move || {
        // If it fails, the next start removes it.
        let _ = removes.send(ToWrite::Store(ToStore::Remove(number)));
    });
    put(to_write, STORED, number, &encode(spec))?;
    if !spec.chunks.is_empty() {
        put(to_write, CHUNKS, number, &encode(&spec.chunks))?;
    }
    Some(stored)
}

fn put(
    to_write: &mpsc::SyncSender<ToWrite>,
    table: PartsTable,
    of: StoredNumber,
    encoded: &[u8],
) -> Option<()> {
    let (written, is_written) = mpsc::channel();
    for (number, bytes) in (0..).zip(encoded.chunks(PART_BYTES)) {
        let part =
            ToStore::Part { table, of, number, bytes: bytes.to_vec(), written: written.clone() };
        to_write.send(ToWrite::Store(part)).ok()?;
        // One part at a time, so that records never wait for more than one.
        is_written.recv().ok()?;
    }
    Some(())
}

/// Removes jobs that were stored and not submitted before the last dispatcher ended. Returns the
/// first number that is free.
pub(super) fn remove_unsubmitted(database: &Database) -> Result<u64, JournalProblem> {
    let read = database.begin_read()?;
    let mut submitted = BTreeSet::new();
    for row in read.open_table(JOBS)?.iter()? {
        submitted.insert(row?.1.value().0);
    }
    let mut others = BTreeSet::new();
    for table in [STORED, CHUNKS] {
        let (table, mut next) = (read.open_table(table)?, 0);
        while let Some(row) = table.range((next, 0)..)?.next() {
            let number = row?.0.value().0;
            others.extend(Some(number).filter(|number| !submitted.contains(number)));
            next = number + 1;
        }
    }
    if !others.is_empty() {
        let write = database.begin_write()?;
        others
            .iter()
            .try_for_each(|number| ToStore::Remove(StoredNumber(*number)).write(&write))?;
        write.commit()?;
    }
    Ok(submitted.last().into_iter().chain(others.last()).max().map_or(0, |last| last + 1))
}
