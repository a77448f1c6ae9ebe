//! Reading a journal that no dispatcher uses. Checking it: every job can be read, reading it again
//! gives the same, and every result that was acknowledged is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc;

use eyas_types::{JobId, ObjectId};

use super::error::{JournalError, JournalProblem};
use super::{Journal, JournalOptions};
use crate::log::{Log, OutputDetail};

/// Checks the journal at this path. Returns the number of its jobs. The check may repair the
/// journal and convert it to the present format: check a copy.
///
/// # Errors
/// If the journal is damaged.
pub fn check_journal(path: &Path) -> Result<usize, JournalError> {
    read_alone(path, |journal| {
        let jobs = journal.jobs()?;
        for (job, _) in &jobs {
            journal.check_job(*job).map_err(|problem| journal.error(problem))?;
        }
        Ok(jobs.len())
    })
}

/// The objects that jobs keep in the stores of executors, by the journal of a dispatcher that is
/// stopped.
///
/// # Errors
/// If the journal is damaged.
pub fn kept_objects(path: &Path) -> Result<BTreeSet<ObjectId>, JournalError> {
    if !path.exists() {
        return Ok(BTreeSet::new());
    }
    read_alone(path, |journal| {
        let mut kept = BTreeSet::new();
        // A job with a summary keeps nothing.
        for (id, _) in journal.jobs()?.into_iter().filter(|(_, summary)| summary.is_none()) {
            let job = journal.replay(id)?.into_job();
            let all = (0..job.tasks.len() as u32)
                .flat_map(|index| job.kept_by(index).map(move |left| (index, left.0)));
            kept.extend(
                all.filter(|(index, object)| job.is_wanted(*index, *object))
                    .map(|(_, object)| object),
            );
        }
        Ok(kept)
    })
}

/// Reads a journal that no dispatcher uses.
fn read_alone<T>(
    path: &Path,
    read: impl FnOnce(&Journal) -> Result<T, JournalError>,
) -> Result<T, JournalError> {
    let (until_free, is_free) = mpsc::channel::<()>();
    let journal =
        Journal::open(path, JournalOptions::default(), move |_| drop(until_free.clone()), |_| {})?;
    let read = read(&journal);
    drop(journal);
    // The file is free once the journal's thread has ended.
    let _ = is_free.recv();
    read
}

impl Journal {
    /// Checks one job.
    fn check_job(&self, job: JobId) -> Result<(), JournalProblem> {
        let replay = self.load_written(job)?;
        if self.load_written(job)?.job().snapshot() != replay.job().snapshot() {
            return Err(JournalProblem::Differs(job));
        }
        let mut results = BTreeMap::new();
        for number in 0..replay.job().entries() {
            for (entry, _) in self.read_results(job, number..number + 1, OutputDetail::Whole)? {
                results.extend(entry.ends().iter().map(|end| (end.result.index, number)));
            }
        }
        let is_there = |index: u32| match replay.job().entry_of(index) {
            Some(entry) => results.get(&index) == Some(&entry),
            None => true,
        };
        let tasks = replay.job().tasks.len() as u32;
        if (0..tasks).all(is_there) { Ok(()) } else { Err(JournalProblem::DamagedJob(job)) }
    }
}
