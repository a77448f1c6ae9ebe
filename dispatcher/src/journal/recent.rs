//! Entries that were just written, with their large output. A client that watches a job gets them from here; without
//! them, output that is still in memory would be read from its file, and its checksum computed again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_jobs::{Entry, JournalRecord};
use eyas_types::JobId;

use super::output::large_bytes;

/// Bytes of large output in recent entries, beside the newest entry. The oldest entries make room.
const MAX_RECENT_BYTES: u64 = 16 << 20;

/// Recent entries that have large output. Clones share them.
#[derive(Clone, Default)]
pub(super) struct RecentEntries(Arc<Mutex<Recent>>);

#[derive(Default)]
struct Recent {
    /// Oldest first.
    entries: VecDeque<RecentEntry>,
    bytes: u64,
}

struct RecentEntry {
    job: JobId,
    number: u64,
    bytes: u64,
    entry: Arc<Entry>,
}

impl RecentEntries {
    /// Adds the entries of records that are on disk. Where results were removed from the journal, entries of their job
    /// are removed here too.
    pub fn add(&self, written: Vec<JournalRecord>) {
        let mut recent = self.recent();
        for record in written {
            match record {
                JournalRecord::Entry { job, number, entry } => {
                    let bytes = large_bytes(&entry);
                    if bytes > 0 {
                        recent.bytes += bytes;
                        recent.entries.push_back(RecentEntry { job, number, bytes, entry });
                    }
                }
                JournalRecord::Snapshot { job, drops_results: true, .. } | JournalRecord::Forget { job } => {
                    recent.entries.retain(|entry| entry.job != job);
                    recent.bytes = recent.entries.iter().map(|entry| entry.bytes).sum();
                }
                JournalRecord::Job { .. } | JournalRecord::Snapshot { .. } => {}
            }
        }
        while recent.bytes > MAX_RECENT_BYTES && recent.entries.len() > 1 {
            recent.remove(0);
        }
    }

    /// Takes an entry out, if it is here. Most jobs have one watcher, which then gets the entry without a copy.
    pub fn take(&self, job: JobId, number: u64) -> Option<Entry> {
        let taken = {
            let mut recent = self.recent();
            let index = recent.entries.iter().position(|entry| (entry.job, entry.number) == (job, number))?;
            recent.remove(index)?
        };
        Some(Arc::unwrap_or_clone(taken.entry))
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        // Each change is whole before it can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn remove(&mut self, index: usize) -> Option<RecentEntry> {
        let removed = self.entries.remove(index)?;
        self.bytes -= removed.bytes;
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_jobs::JobEnd;
    use eyas_types::{Outcome, Status, TaskResult};

    fn written(number: u64, bytes: u64) -> JournalRecord {
        let outcome = Outcome { stdout: vec![b'x'; bytes as usize], ..Outcome::of(Status::Succeeded) };
        let executor = "n1".into();
        let result = TaskResult { index: 0, attempt: 0, executor, queued_us: 0, delivery_us: 0, outcome };
        let ends = vec![JobEnd { at_us: 0, ready_us: 0, output_bytes: bytes, result }];
        let entry = Arc::new(Entry::Results { ends, samples: Vec::new() });
        JournalRecord::Entry { job: JobId(1), number, entry }
    }

    #[test]
    fn the_newest_entries_with_large_output_can_be_taken_once() {
        let recent = RecentEntries::default();
        let half = MAX_RECENT_BYTES / 2;
        recent.add(vec![written(0, half), written(1, 10), written(2, half), written(3, half)]);
        let taken = |number| recent.take(JobId(1), number).map(|entry| entry.ends()[0].output_bytes);
        assert_eq!([0, 1, 2, 2, 3].map(taken), [None, None, Some(half), None, Some(half)]);
        recent.add(vec![written(4, 2 * MAX_RECENT_BYTES)]);
        assert_eq!(recent.recent().entries.len(), 1, "the newest entry stays, however large it is");
        recent.add(vec![written(5, half)]);
        assert_eq!([4, 5].map(taken), [None, Some(half)]);
        assert_eq!(recent.recent().bytes, 0);
        recent.add(vec![written(6, half), JournalRecord::Forget { job: JobId(1) }]);
        assert_eq!((taken(6), recent.recent().bytes), (None, 0));
    }
}
