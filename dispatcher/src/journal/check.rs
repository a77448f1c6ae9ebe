//! Checking a journal that no dispatcher uses: every job can be read, reading it again gives the same, and every result
//! that was acknowledged is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

use eyas_types::JobId;

use super::{Journal, JournalError, JournalOptions, JournalProblem};

/// Checks the journal at this path. Returns the number of its jobs. The check may repair the journal and convert it to
/// the present format: check a copy.
///
/// # Errors
/// If the journal is damaged.
pub fn check_journal(path: &Path) -> Result<usize, JournalError> {
    let (until_free, is_free) = mpsc::channel::<()>();
    let journal = Journal::open(path, JournalOptions::default(), move |_| drop(until_free.clone()), |_| {})?;
    let jobs = journal.jobs()?;
    for (job, _) in &jobs {
        journal.check_job(*job).map_err(|problem| journal.error(problem))?;
    }
    drop(journal);
    // The file is free once the journal's thread has ended.
    let _ = is_free.recv();
    Ok(jobs.len())
}

impl Journal {
    /// Checks one job.
    fn check_job(&self, job: JobId) -> Result<(), JournalProblem> {
        let replay = self.load_written(job)?;
        if self.load_written(job)?.job().snapshot() != replay.job().snapshot() {
            return Err(JournalProblem::Differs(job));
        }
        let mut results = BTreeMap::new();
        for number in 0..replay.job().entries {
            for entry in self.read_results(job, number, number + 1, true)? {
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
