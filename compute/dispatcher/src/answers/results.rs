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
        if let Some(entry) = records.unwritten_entry(job.id, entry) {
            let result = entry
                .ends()
                .iter()
                .rev()
                .map(|end| &end.result)
                .find(|result| result.index == index);
            return Ok(result.cloned());
        }
        if self.entry != Some((job.id, entry)) {
            self.entry = Some((job.id, entry));
            let captured = if self.is_in_full { OutputDetail::Whole } else { OutputDetail::Short };
            let read = records.log().results(job.id, entry..entry + 1, captured)?;
            let results = read.into_iter().flat_map(|(entry, _)| entry.into_results());
            self.results = results.map(|result| (result.index, result)).collect();
        }
        Ok(self.results.get(&index).cloned())
    }
}
