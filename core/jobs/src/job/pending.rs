//! Results that the journal does not have yet, cut into journal entries. An entry is
//! read, and sent to a client, as a whole; so it is bounded in bytes too.

use alloc::vec;
use alloc::vec::Vec;

use eyas_types::TaskResult;

use super::output::output_bytes;
use crate::job_end::JobEnd;

/// Results in one entry.
const ENTRY_RESULTS: usize = 4096;
/// An entry takes no more results once it has this many bytes of output. For example four results
/// with 1 MiB of output each.
const ENTRY_BYTES: u64 = 4 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pending {
    entries: Vec<Vec<JobEnd>>,
    /// Output in the last entry.
    last_bytes: u64,
}

impl Pending {
    /// Adds a result. Returns the index of its entry among the coming ones, from 0.
    pub fn push(&mut self, end: JobEnd) -> u64 {
        let bytes = output_bytes(&end.result.outcome);
        let has_room =
            |last: &&mut Vec<_>| last.len() < ENTRY_RESULTS && self.last_bytes < ENTRY_BYTES;
        match self.entries.last_mut().filter(has_room) {
            Some(last) => {
                last.push(end);
                self.last_bytes += bytes;
            }
            None => {
                self.entries.push(vec![end]);
                self.last_bytes = bytes;
            }
        }
        self.entries.len() as u64 - 1
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether an entry is full, so that waiting would not make it larger.
    pub fn has_full_entry(&self) -> bool {
        self.entries.len() > 1
    }

    /// The latest result of a task.
    pub fn last(&self, index: u32) -> Option<&TaskResult> {
        self.entries
            .iter()
            .flatten()
            .rev()
            .map(|end| &end.result)
            .find(|result| result.index == index)
    }

    /// Takes all entries, in order.
    pub fn take(&mut self) -> Vec<Vec<JobEnd>> {
        core::mem::take(self).entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{Outcome, Status};

    fn end(index: u32, bytes: u64) -> JobEnd {
        let outcome =
            Outcome { stdout: vec![b'x'; bytes as usize], ..Outcome::of(Status::Succeeded) };
        let result = TaskResult {
            index,
            attempt: 0,
            executor: "n1".into(),
            queued_us: 0,
            delivery_us: 0,
            outcome,
        };
        JobEnd { at_us: 0, ready_us: 0, output_bytes: bytes, result }
    }

    #[test]
    fn entries_are_bounded_in_results_and_in_bytes_and_keep_the_order() {
        let mut pending = Pending::default();
        for index in 0..=ENTRY_RESULTS as u32 {
            assert_eq!(pending.push(end(index, 1)), u64::from(index == ENTRY_RESULTS as u32));
        }
        let indices = [ENTRY_BYTES, 1, ENTRY_BYTES].map(|bytes| pending.push(end(7, bytes)));
        assert_eq!(indices, [1, 2, 2]);
        assert!(pending.has_full_entry());
        assert_eq!(pending.last(7).unwrap().outcome.stdout.len() as u64, ENTRY_BYTES);
        let sizes: Vec<_> = pending.take().iter().map(Vec::len).collect();
        assert_eq!(sizes, [ENTRY_RESULTS, 2, 2]);
        assert!(pending.is_empty() && pending.last(7).is_none());
    }
}
