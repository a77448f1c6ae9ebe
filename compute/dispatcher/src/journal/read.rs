//! Reading what is on disk: whole jobs as they stand, and results.

use std::iter::Peekable;
use std::ops::Range;

use eyas_jobs::{Entry, JobSpec, JobSummary, Replay};
use eyas_types::{JobId, Name, NamedFile};
use redb::{ReadableDatabase, ReadableTable, StorageError};
use serde::{Deserialize, Serialize};

use super::Journal;
use super::error::JournalProblem;
use super::output::OutputRange;
use super::tables::{
    CHUNKS, CURRENT, ENTRIES, HALTS, JOBS, NAMES, RESULTS, SNAPSHOTS, STORED, SUMMARIES, read_parts,
};
use crate::expressions::compile;
use crate::log::OutputDetail;

/// A row of entries or results.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredEntry {
    /// The entry, without output that is in the job's file.
    pub entry: Entry,
    pub outputs: Vec<OutputRange>,
}

impl StoredEntry {
    pub fn decode(job: JobId, number: u64, row: &[u8]) -> Result<Self, JournalProblem> {
        let what = || format!("entry {number} of job {job}");
        postcard::from_bytes(row)
            .map_err(|source| JournalProblem::Undecodable { what: what(), source })
    }
}

impl Journal {
    pub(super) fn read_jobs(&self) -> Result<Vec<(JobId, Option<JobSummary>)>, JournalProblem> {
        let read = self.database.begin_read()?;
        let (jobs, summaries) = (read.open_table(JOBS)?, read.open_table(SUMMARIES)?);
        let mut found = Vec::new();
        for row in jobs.iter()? {
            let job = row?.0.value();
            let summary =
                summaries.get(job)?.map(|row| postcard::from_bytes::<JobSummary>(row.value()));
            let what = || format!("the summary of job {job}");
            let summary = summary
                .transpose()
                .map_err(|source| JournalProblem::Undecodable { what: what(), source })?;
            found.push((JobId(job), summary.filter(|summary| !summary.must_be_loaded)));
        }
        Ok(found)
    }

    pub(super) fn read_names(&self) -> Result<Vec<(Name, NamedFile)>, JournalProblem> {
        let table = self.database.begin_read()?.open_table(NAMES)?;
        let mut found = Vec::new();
        for row in table.iter()? {
            let (name, file) = row?;
            let name = Name::from(name.value());
            let decoded = postcard::from_bytes(file.value());
            let what = || format!("the places of `{name}`");
            let file =
                decoded.map_err(|source| JournalProblem::Undecodable { what: what(), source })?;
            found.push((name, file));
        }
        Ok(found)
    }

    pub(super) fn load_written(&self, job: JobId) -> Result<Replay, JournalProblem> {
        let read = self.database.begin_read()?;
        let spec = spec_of(
            &read.open_table(JOBS)?,
            &read.open_table(STORED)?,
            &read.open_table(CURRENT)?,
            job,
        )?;
        let (mut spec, stored) = spec.ok_or(JournalProblem::DamagedJob(job))?;
        if let Some(chunks) = read_parts(&read.open_table(CHUNKS)?, stored)? {
            let what = || format!("the chunks of job {job}");
            let chunks = postcard::from_bytes(&chunks);
            spec.chunks =
                chunks.map_err(|source| JournalProblem::Undecodable { what: what(), source })?;
        }
        spec.halts = read.open_table(HALTS)?.get(job.0)?.is_some();
        let snapshot = read_parts(&read.open_table(SNAPSHOTS)?, job.0.into())?;
        let mut replay = match snapshot {
            None => Replay::new(job, spec),
            Some(snapshot) => {
                let what = || format!("the snapshot of job {job}");
                let snapshot = postcard::from_bytes(&snapshot);
                let snapshot = snapshot
                    .map_err(|source| JournalProblem::Undecodable { what: what(), source })?;
                Replay::from_snapshot(job, spec, snapshot).ok_or(JournalProblem::DamagedJob(job))?
            }
        };
        apply_entries(
            &read.open_table(RESULTS)?,
            &read.open_table(ENTRIES)?,
            job,
            &mut replay,
            u64::MAX,
        )?;
        Ok(replay)
    }

    /// Reads results with all captured output, for a client that watches the job: such a client
    /// reads entries soon after they are written, and each entry once.
    pub(super) fn read_new_results(
        &self,
        job: JobId,
        numbers: Range<u64>,
    ) -> Result<Vec<(Entry, Vec<OutputRange>)>, JournalProblem> {
        let mut entries = Vec::new();
        let mut unread = numbers.start;
        for (number, entry) in self.recent.take(job, numbers.clone()) {
            entries.extend(self.read_results(job, unread..number, OutputDetail::Whole)?);
            entries.push((entry, Vec::new()));
            unread = number + 1;
        }
        entries.extend(self.read_results(job, unread..numbers.end, OutputDetail::Whole)?);
        Ok(entries)
    }

    pub(super) fn read_results(
        &self,
        job: JobId,
        numbers: Range<u64>,
        captured: OutputDetail,
    ) -> Result<Vec<(Entry, Vec<OutputRange>)>, JournalProblem> {
        let results = self.database.begin_read()?.open_table(RESULTS)?;
        let mut entries = Vec::new();
        for row in results.range((job.0, numbers.start)..(job.0, numbers.end))? {
            let (key, row) = row?;
            let StoredEntry { mut entry, mut outputs } =
                StoredEntry::decode(job, key.value().1, row.value())?;
            if matches!(captured, OutputDetail::Whole | OutputDetail::New) {
                self.outputs.restore(job, &mut entry, &outputs)?;
            }
            if captured != OutputDetail::Places {
                outputs.clear();
            }
            entries.push((entry, outputs));
        }
        Ok(entries)
    }
}

/// A job as it was submitted, with the present versions of its objects, checked; also the number of
/// the stored job.
pub(super) fn spec_of(
    jobs: &impl ReadableTable<u32, (u64, u64)>,
    stored: &impl ReadableTable<(u64, u32), &'static [u8]>,
    current: &impl ReadableTable<(u32, u32), &'static [u8]>,
    job: JobId,
) -> Result<Option<(JobSpec, u64)>, JournalProblem> {
    let undecodable = |source| JournalProblem::Undecodable { what: format!("job {job}"), source };
    let Some((number, submitted_unix_ms)) = jobs.get(job.0)?.map(|row| row.value()) else {
        return Ok(None);
    };
    let Some(encoded) = read_parts(stored, number)? else {
        return Err(JournalProblem::DamagedJob(job));
    };
    let spec = postcard::from_bytes(&encoded).map_err(undecodable)?;
    let mut spec = JobSpec { submitted_unix_ms, ..spec };
    for row in current.range((job.0, 0)..=(job.0, u32::MAX))? {
        let (key, row) = row?;
        let object =
            spec.objects.get_mut(key.value().1 as usize).ok_or(JournalProblem::DamagedJob(job))?;
        *object = postcard::from_bytes(row.value()).map_err(undecodable)?;
    }
    if spec.is_sound(&compile) {
        Ok(Some((spec, number)))
    } else {
        Err(JournalProblem::DamagedJob(job))
    }
}

/// Applies the entries and results that follow, before entry `to`, in their order. Large output is
/// not read.
pub(super) fn apply_entries(
    results: &impl ReadableTable<(u32, u64), &'static [u8]>,
    entries: &impl ReadableTable<(u32, u64), &'static [u8]>,
    job: JobId,
    replay: &mut Replay,
    to: u64,
) -> Result<(), JournalProblem> {
    let range = (job.0, replay.next_entry())..(job.0, to);
    let mut results = results.range(range.clone())?.peekable();
    let mut entries = entries.range(range)?.peekable();
    while let Some((number, row)) = next_of(&mut results, &mut entries)? {
        if number != replay.next_entry() {
            return Err(JournalProblem::DamagedJob(job));
        }
        replay.apply(StoredEntry::decode(job, number, &row)?.entry);
    }
    Ok(())
}

/// The row of the two tables with the lower number.
fn next_of<'a>(
    results: &mut Peekable<redb::Range<'a, (u32, u64), &'static [u8]>>,
    entries: &mut Peekable<redb::Range<'a, (u32, u64), &'static [u8]>>,
) -> Result<Option<(u64, Vec<u8>)>, StorageError> {
    let number = |rows: &mut Peekable<redb::Range<'a, (u32, u64), &'static [u8]>>| {
        rows.peek().and_then(|row| row.as_ref().ok()).map(|(key, _)| key.value().1)
    };
    let take_result = match (number(results), number(entries)) {
        (Some(result), Some(entry)) => result < entry,
        (_, entry) => entry.is_none(),
    };
    let row = if take_result { results.next() } else { entries.next() };
    let row = row.or_else(|| results.next()).or_else(|| entries.next());
    row.transpose().map(|row| row.map(|(key, row)| (key.value().1, row.value().to_vec())))
}
