//! Results of tasks, read from the journal.

use std::collections::HashMap;

use eyas_jobs::Job;
use eyas_types::JobId;
use eyas_wire::client::TaskResult;

use crate::journal::JournalError;
use crate::log::OutputDetail;
use crate::records::JobRecords;

/// Looks results up. Neighbouring tasks often share a journal entry, so the last entry that was
/// read is kept.
#[derive(Default)]
pub(crate) struct ResultReader {
    /// Large captured output is read too.
    is_in_full: bool,
    entry: Option<(JobId, u64)>,
    results: HashMap<u32, TaskResult>,
}

impl ResultReader {
    /// Reads results with all of their captured output.
    pub fn in_full() -> Self {
        ResultReader { is_in_full: true, ..ResultReader::default() }
    }

    /// A task's last result, if it has ended.
    pub fn last(
        &mut self,
        records: &JobRecords,
        job: &Job,
        index: u32,
    ) -> Result<Option<TaskResult>, JournalError> {
        let Some(entry) = job.entry_of(index) else { return Ok(None) };
        if entry >= job.entries() {
            return Ok(job.pending_result(index).cloned());
        }
        if self.entry != Some((job.id, entry)) {
            self.results = self.read(records, job.id, entry)?;
            self.entry = Some((job.id, entry));
        }
        Ok(self.results.get(&index).cloned())
    }

    /// The results in an entry, which need not be on disk yet. Of two results of a task, the last.
    fn read(
        &self,
        records: &JobRecords,
        job: JobId,
        entry: u64,
    ) -> Result<HashMap<u32, TaskResult>, JournalError> {
        let by_index = |result: TaskResult| (result.index, result);
        if let Some(unwritten) = records.unwritten_entry(job, entry) {
            let results = unwritten.ends().iter().map(|end| end.result.clone());
            return Ok(results.map(by_index).collect());
        }
        let captured = if self.is_in_full { OutputDetail::Whole } else { OutputDetail::Short };
        let read = records.log().results(job, entry..entry + 1, captured)?;
        Ok(read.into_iter().flat_map(|(entry, _)| entry.into_results()).map(by_index).collect())
    }
}
