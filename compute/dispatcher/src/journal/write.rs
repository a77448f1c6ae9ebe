//! Writing: records become rows, a batch of them in one transaction.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyas_jobs::{Entry, JobSnapshot, JobSpec, JobSummary, JournalRecord, Replay, StoredNumber};
use eyas_types::JobId;
use redb::{Database, ReadableTable, Table, WriteTransaction};

use super::JournalOptions;
use super::error::JournalProblem;
use super::mark::Mark;
use super::output::{OutputAppender, OutputFiles, OutputRange};
use super::read::{StoredEntry, apply_entries, spec_of};
use super::storing::ToStore;
use super::tables::{
    CHUNKS, CURRENT, ENTRIES, HALTS, JOBS, META, OUTPUTS, RESULTS, SNAPSHOTS, STORED, SUMMARIES,
    TRANSACTIONS, encode, put_parts, read_parts, remove_parts,
};

/// State of the journal's thread.
pub(super) struct JournalWriter {
    database: Arc<Database>,
    outputs: OutputFiles,
    mark: Option<Mark>,
    transactions: u64,
    /// The number of the next job that is stored.
    next_stored: Arc<AtomicU64>,
    options: JournalOptions,
}

impl JournalWriter {
    pub fn new(
        database: Arc<Database>,
        outputs: OutputFiles,
        mark: Option<Mark>,
        transactions: u64,
        next_stored: u64,
        options: JournalOptions,
    ) -> Self {
        let next_stored = Arc::new(AtomicU64::new(next_stored));
        JournalWriter { database, outputs, mark, transactions, next_stored, options }
    }

    /// The number of the next job that is stored. Whoever stores one takes it.
    pub fn next_stored(&self) -> Arc<AtomicU64> {
        self.next_stored.clone()
    }

    pub fn database(&self) -> Arc<Database> {
        self.database.clone()
    }

    /// Writes parts of stored jobs and then records, in one transaction. All of them are on disk,
    /// and marked, when it returns.
    pub fn write(
        &mut self,
        to_store: &[ToStore],
        batch: &[JournalRecord],
    ) -> Result<(), JournalProblem> {
        self.transactions += 1;
        let write = self.database.begin_write()?;
        to_store.iter().try_for_each(|part| part.write(&write))?;
        let mut appending = self.outputs.append();
        for record in batch {
            self.write_record(&write, record, &mut appending)?;
        }
        write.open_table(META)?.insert(TRANSACTIONS, self.transactions)?;
        if !self.options.is_scratch {
            appending.sync()?;
        }
        write.commit()?;
        if let Some(mark) = &self.mark {
            mark.set(self.transactions)?;
        }
        for record in batch {
            if let JournalRecord::Forget { job } = record {
                self.outputs.remove(*job)?;
            }
        }
        Ok(())
    }

    /// Puts a job as it was submitted, unless it was stored before.
    fn put_job(
        &self,
        write: &WriteTransaction,
        job: JobId,
        spec: &JobSpec,
    ) -> Result<(), JournalProblem> {
        let stored = match spec.stored {
            Some(StoredNumber(number)) => number,
            None => {
                let number = self.next_stored.fetch_add(1, Ordering::Relaxed);
                put_parts(&mut write.open_table(STORED)?, number, &encode(spec))?;
                if !spec.chunks.is_empty() {
                    put_parts(&mut write.open_table(CHUNKS)?, number, &encode(&spec.chunks))?;
                }
                number
            }
        };
        write.open_table(JOBS)?.insert(job.0, (stored, spec.submitted_unix_ms))?;
        if spec.halts {
            write.open_table(HALTS)?.insert(job.0, ())?;
        }
        Ok(())
    }

    fn write_record(
        &self,
        write: &WriteTransaction,
        record: &JournalRecord,
        appending: &mut OutputAppender<'_>,
    ) -> Result<(), JournalProblem> {
        match record {
            JournalRecord::Job { job, spec } => self.put_job(write, *job, spec)?,
            JournalRecord::Objects { job, current } => {
                let mut table = write.open_table(CURRENT)?;
                for (place, object) in current {
                    table.insert((job.0, *place), &encode(object)[..])?;
                }
            }
            JournalRecord::Entry { job, number, entry } => {
                write.open_table(SUMMARIES)?.remove(job.0)?;
                let large = appending.take_large(*job, entry, &mut write.open_table(OUTPUTS)?)?;
                let (entry, places) = large
                    .as_ref()
                    .map_or((&**entry, &[][..]), |(entry, places)| (entry, &places[..]));
                put_entry(write, *job, *number, entry, places)?;
            }
            JournalRecord::Snapshot { job, snapshot, summary, drops_results } => {
                if let Some(told_in) = &self.options.check
                    && !is_state_of(write, *job, snapshot)?
                {
                    tell_difference(told_in, *job, "a snapshot is not what its entries give")?;
                    return Err(JournalProblem::Differs(*job));
                }
                put_snapshot(write, *job, snapshot, summary.as_deref(), *drops_results)?;
            }
            JournalRecord::Forget { job } => {
                if let Some(stored) = write.open_table(JOBS)?.remove(job.0)? {
                    let (number, _) = stored.value();
                    remove_parts(&mut write.open_table(STORED)?, number)?;
                    remove_parts(&mut write.open_table(CHUNKS)?, number)?;
                }
                remove_parts(&mut write.open_table(SNAPSHOTS)?, job.0.into())?;
                write
                    .open_table(CURRENT)?
                    .retain_in((job.0, 0)..=(job.0, u32::MAX), |_, _| false)?;
                write
                    .open_table(ENTRIES)?
                    .retain_in((job.0, 0)..(job.0, u64::MAX), |_, _| false)?;
                write
                    .open_table(RESULTS)?
                    .retain_in((job.0, 0)..(job.0, u64::MAX), |_, _| false)?;
                write.open_table(SUMMARIES)?.remove(job.0)?;
                write.open_table(HALTS)?.remove(job.0)?;
                write.open_table(OUTPUTS)?.remove(job.0)?;
            }
        }
        Ok(())
    }
}

/// Adds a line to the file in which differences between memory and journal are told.
pub(crate) fn tell_difference(
    told_in: &Path,
    job: JobId,
    what: &str,
) -> Result<(), std::io::Error> {
    tracing::error!(%job, "{what}");
    let mut file = std::fs::File::options().create(true).append(true).open(told_in)?;
    writeln!(file, "job {job}: {what}")
}

/// Puts an entry in its table.
pub(super) fn put_entry(
    write: &WriteTransaction,
    job: JobId,
    number: u64,
    entry: &Entry,
    places: &[OutputRange],
) -> Result<(), JournalProblem> {
    let table = if matches!(entry, Entry::Results { .. }) { RESULTS } else { ENTRIES };
    write.open_table(table)?.insert((job.0, number), &encode(&(entry, places))[..])?;
    Ok(())
}

/// Puts a snapshot instead of what it replaces.
fn put_snapshot(
    write: &WriteTransaction,
    job: JobId,
    snapshot: &JobSnapshot,
    summary: Option<&JobSummary>,
    drops_results: bool,
) -> Result<(), JournalProblem> {
    put_parts(&mut write.open_table(SNAPSHOTS)?, job.0.into(), &encode(snapshot))?;
    let covered = (job.0, 0)..(job.0, snapshot.entries());
    write.open_table(ENTRIES)?.retain_in(covered, |_, _| false)?;
    if drops_results {
        drop_earlier_results(&mut write.open_table(RESULTS)?, job, snapshot)?;
    }
    let mut summaries = write.open_table(SUMMARIES)?;
    match summary {
        Some(summary) => summaries.insert(job.0, &encode(summary)[..])?,
        None => summaries.remove(job.0)?,
    };
    Ok(())
}

/// Removes results of tasks that have a later one, or run again.
fn drop_earlier_results(
    results: &mut Table<'_, (u32, u64), &[u8]>,
    job: JobId,
    snapshot: &JobSnapshot,
) -> Result<(), JournalProblem> {
    let mut next = 0;
    loop {
        let row = results.range((job.0, next)..(job.0, snapshot.entries()))?.next().transpose()?;
        let Some((number, row)) = row.map(|(key, row)| (key.value().1, row.value().to_vec()))
        else {
            return Ok(());
        };
        next = number + 1;
        let StoredEntry { entry, outputs } = StoredEntry::decode(job, number, &row)?;
        let Entry::Results { ends, samples } = entry else { continue };
        let is_last = |index: u32| snapshot.entry_of(index) == Some(number);
        if ends.iter().all(|end| is_last(end.result.index)) {
            continue;
        }
        let (mut left, mut places) = (Vec::new(), Vec::new());
        for (place, end) in
            ends.into_iter().enumerate().filter(|(_, end)| is_last(end.result.index))
        {
            let output = outputs.iter().find(|output| output.end == place as u32);
            places.extend(output.map(|output| output.of_end(left.len() as u32)));
            left.push(end);
        }
        if left.is_empty() {
            results.remove((job.0, number))?;
        } else {
            results.insert(
                (job.0, number),
                &encode(&(Entry::Results { ends: left, samples }, places))[..],
            )?;
        }
    }
}

/// Whether a snapshot is what the snapshot before it, and the entries after that, give.
fn is_state_of(
    write: &WriteTransaction,
    job: JobId,
    snapshot: &JobSnapshot,
) -> Result<bool, JournalProblem> {
    let spec = spec_of(
        &write.open_table(JOBS)?,
        &write.open_table(STORED)?,
        &write.open_table(CURRENT)?,
        job,
    )?;
    let Some((spec, _)) = spec else { return Ok(false) };
    let before = read_parts(&write.open_table(SNAPSHOTS)?, job.0.into())?;
    let mut replay = match before {
        Some(before) => {
            let before = postcard::from_bytes(&before);
            let before = before.map_err(|source| JournalProblem::Undecodable {
                what: format!("job {job}"),
                source,
            })?;
            Replay::from_snapshot(job, spec, before).ok_or(JournalProblem::DamagedJob(job))?
        }
        None => Replay::new(job, spec),
    };
    apply_entries(
        &write.open_table(RESULTS)?,
        &write.open_table(ENTRIES)?,
        job,
        &mut replay,
        snapshot.entries(),
    )?;
    Ok(replay.job().snapshot().agrees_with(snapshot))
}
