//! Entries that were just written, with their large output. A client that watches a job gets them
//! from here; without them, output that is still in memory would be read from its file, and its
//! checksum computed again.

use std::collections::VecDeque;
use std::ops::Range;
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
    /// Adds the entries of records that are on disk. Where results were removed from the journal,
    /// entries of their job are removed here too.
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
                JournalRecord::Snapshot { job, drops_results: true, .. }
                | JournalRecord::Forget { job } => {
                    recent.entries.retain(|entry| entry.job != job);
                    recent.bytes = recent.entries.iter().map(|entry| entry.bytes).sum();
                }
                JournalRecord::Job { .. }
                | JournalRecord::Objects { .. }
                | JournalRecord::Snapshot { .. } => {}
            }
        }
        while recent.bytes > MAX_RECENT_BYTES && recent.entries.len() > 1 {
            recent.bytes -= recent.entries.pop_front().map_or(0, |oldest| oldest.bytes);
        }
    }

    /// Removes the recent entries of a job in this range of numbers, and returns them in order.
    /// Most jobs have one watcher, which then gets the entries without a copy.
    pub fn take(&self, job: JobId, numbers: Range<u64>) -> Vec<(u64, Entry)> {
        let is_asked = |entry: &RecentEntry| entry.job == job && numbers.contains(&entry.number);
        let taken: Vec<_> = {
            let mut recent = self.recent();
            let (taken, kept) = std::mem::take(&mut recent.entries).into_iter().partition(is_asked);
            recent.entries = kept;
            recent.bytes = recent.entries.iter().map(|entry| entry.bytes).sum();
            Vec::from(taken)
        };
        taken.into_iter().map(|taken| (taken.number, Arc::unwrap_or_clone(taken.entry))).collect()
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        // Each change is whole before it can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_jobs::JobEnd;
    use eyas_types::{Outcome, Status, TaskResult};

    fn written(number: u64, bytes: u64) -> JournalRecord {
        let outcome =
            Outcome { stdout: vec![b'x'; bytes as usize], ..Outcome::of(Status::Succeeded) };
        let executor = "n1".into();
        let result =
            TaskResult { index: 0, attempt: 0, executor, queued_us: 0, delivery_us: 0, outcome };
        let ends = vec![JobEnd { at_us: 0, ready_us: 0, output_bytes: bytes, result }];
        let entry = Arc::new(Entry::Results { ends, samples: Vec::new() });
        JournalRecord::Entry { job: JobId(1), number, entry }
    }

    #[test]
    fn the_newest_entries_with_large_output_can_be_taken_once() {
        let recent = RecentEntries::default();
        let half = MAX_RECENT_BYTES / 2;
        recent.add(vec![written(0, half), written(1, 10), written(2, half), written(3, half)]);
        let taken = |numbers| {
            let taken = recent.take(JobId(1), numbers).into_iter();
            taken.map(|(number, entry)| (number, entry.ends()[0].output_bytes)).collect::<Vec<_>>()
        };
        assert_eq!([0..3, 0..3, 0..9].map(taken), [vec![(2, half)], vec![], vec![(3, half)]]);
        recent.add(vec![written(4, 2 * MAX_RECENT_BYTES)]);
        assert_eq!(recent.recent().entries.len(), 1, "the newest entry stays, however large it is");
        recent.add(vec![written(5, half)]);
        assert_eq!(taken(4..6), [(5, half)]);
        assert_eq!(recent.recent().bytes, 0);
        recent.add(vec![written(6, half), JournalRecord::Forget { job: JobId(1) }]);
        assert_eq!((taken(0..9), recent.recent().bytes), (vec![], 0));
    }
}
