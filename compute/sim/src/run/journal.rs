//! A dispatcher's journal: the part of its job that survives its death. An entry is on disk some
//! time after it was written, in order. Then the client is told of it. A dispatcher that is started
//! again has the state that the entries on disk give.

use std::collections::VecDeque;
use std::sync::Arc;

use eyas_jobs::{Entry, JobSpec, JournalRecord, Replay};

use super::job::JOB;
use crate::clock::{MICROSECOND, Ns};

/// Time until a written entry is on disk: a synchronised write to a solid-state disk.
pub(super) const WRITTEN_AFTER_NS: Ns = 500 * MICROSECOND;
/// Number of results that are written at once when journals are not kept.
const WRITTEN_AT_ONCE: u64 = 1_024;

#[derive(Default)]
pub(super) struct SimJournal {
    /// Entries are kept. Otherwise no dispatcher is ever started again, and written entries are
    /// dropped.
    is_kept: bool,
    /// Entries on disk.
    entries: Vec<Arc<Entry>>,
    /// Entries that are written and not yet on disk, in order.
    on_the_way: VecDeque<Arc<Entry>>,
    /// Results may have accumulated since the last entry.
    is_behind: bool,
    /// Number of results since the last entry.
    gathered: u64,
    /// Number of deaths of the dispatcher. Entries in flight at a death never reach the disk.
    deaths: u32,
}

impl SimJournal {
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Writes a record. Returns whether an entry is now on its way to the disk.
    pub fn write(&mut self, record: JournalRecord) -> bool {
        let JournalRecord::Entry { number, entry, .. } = record else { return false };
        if self.is_kept {
            assert_eq!(number, self.written(), "entries have no gaps");
            self.on_the_way.push_back(entry);
        }
        self.is_kept
    }

    /// Number of entries written.
    pub fn written(&self) -> u64 {
        (self.entries.len() + self.on_the_way.len()) as u64
    }

    /// Number of entries on disk.
    pub fn on_disk(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The oldest entry in flight is now on disk.
    pub fn arrived(&mut self) -> Arc<Entry> {
        let entry = self.on_the_way.pop_front().expect("as many arrive as were written");
        self.entries.push(entry.clone());
        entry
    }

    /// A result has come, which will be in an entry.
    pub fn gather(&mut self) {
        (self.is_behind, self.gathered) = (true, self.gathered + 1);
    }

    /// Whether it is time to write the accumulated results: there are some, and no others are being
    /// written. If so, they count as written.
    pub fn take_results(&mut self) -> bool {
        let is_time = if self.is_kept {
            self.is_behind && self.written() == self.on_disk()
        } else {
            self.gathered >= WRITTEN_AT_ONCE
        };
        if is_time {
            (self.is_behind, self.gathered) = (false, 0);
        }
        is_time
    }

    pub fn deaths(&self) -> u32 {
        self.deaths
    }

    /// The dispatcher has died: entries in flight are lost.
    pub fn die(&mut self) {
        self.on_the_way.clear();
        (self.is_behind, self.deaths) = (false, self.deaths + 1);
    }

    /// The job with this specification, as the entries on disk give it.
    pub fn replay(&self, spec: JobSpec) -> Replay {
        let mut replay = Replay::new(JOB, spec);
        self.entries.iter().for_each(|entry| replay.apply((**entry).clone()));
        replay
    }
}
