//! Jobs that are written before they are submitted. A job with a million inputs has some 100 MB: as
//! one record, all other records, and the answers that wait for them, would wait until it is on
//! disk. So it is written part by part by whoever submits it, and other records go in between. Its
//! record then only names it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use eyas_jobs::{JobSpec, StoredNumber};
use redb::{Database, ReadableDatabase, ReadableTable, WriteTransaction};

use super::write::{PART_BYTES, remove_parts};
use super::{CHUNKS, JOBS, Journal, JournalProblem, Parts, STORED, ToWrite, encode};

/// A job that is on disk, and goes unless it is submitted.
#[derive(Debug)]
pub(crate) struct StoredJob {
    number: StoredNumber,
    /// Where its removal is sent.
    unless_submitted: Option<mpsc::SyncSender<ToWrite>>,
}

impl StoredJob {
    /// By which the job's record names it.
    pub fn number(&self) -> StoredNumber {
        self.number
    }

    /// The job is submitted: what is on disk stays.
    pub fn keep(mut self) {
        self.unless_submitted = None;
    }
}

impl Drop for StoredJob {
    fn drop(&mut self) {
        if let Some(to_write) = self.unless_submitted.take() {
            // If it fails, the next start removes it.
            let _ = to_write.send(ToWrite::Store(ToStore::Remove(self.number)));
        }
    }
}

/// What is done about stored jobs in one transaction.
pub(super) enum ToStore {
    /// Puts one part into a table.
    Part {
        table: Parts,
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
pub(super) fn store(journal: &Journal, spec: &JobSpec) -> Option<StoredJob> {
    let number = StoredNumber(journal.next_stored.fetch_add(1, Ordering::Relaxed));
    let stored = StoredJob { number, unless_submitted: Some(journal.to_write.clone()) };
    put(journal, STORED, number, &encode(spec))?;
    if !spec.chunks.is_empty() {
        put(journal, CHUNKS, number, &encode(&spec.chunks))?;
    }
    Some(stored)
}

fn put(journal: &Journal, table: Parts, of: StoredNumber, encoded: &[u8]) -> Option<()> {
    let (written, is_written) = mpsc::channel();
    for (number, bytes) in (0..).zip(encoded.chunks(PART_BYTES)) {
        let part =
            ToStore::Part { table, of, number, bytes: bytes.to_vec(), written: written.clone() };
        journal.to_write.send(ToWrite::Store(part)).ok()?;
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
