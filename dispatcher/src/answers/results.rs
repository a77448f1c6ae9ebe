//! Results of tasks, read from the journal.

use std::collections::HashMap;

use eyas_jobs::{Entry, Job};
use eyas_types::JobId;
use eyas_wire::client::TaskResult;

use crate::dispatcher_core::DispatcherCore;

/// ResultReader as they are looked up: neighbours are in one journal entry, which is read once.
#[derive(Default)]
pub(crate) struct ResultReader {
    entry: Option<(JobId, u64)>,
    results: HashMap<u32, TaskResult>,
}

impl ResultReader {
    /// A task's last result, if it has ended.
    pub fn last(&mut self, core: &DispatcherCore, job: &Job, index: u32) -> Result<Option<TaskResult>, String> {
        let Some(entry) = job.entry_of(index) else { return Ok(None) };
        if entry >= job.entries {
            return Ok(job.pending_result(index).cloned());
        }
        if let Some(entry) = core.unwritten_entry(job.id, entry) {
            let result = entry.ends().iter().rev().map(|end| &end.result).find(|result| result.index == index);
            return Ok(result.cloned());
        }
        if self.entry != Some((job.id, entry)) {
            self.entry = Some((job.id, entry));
            let read = core.journal.read(job.id, entry, entry + 1)?;
            self.results =
                read.into_iter().flat_map(Entry::into_results).map(|result| (result.index, result)).collect();
        }
        Ok(self.results.get(&index).cloned())
    }
}
