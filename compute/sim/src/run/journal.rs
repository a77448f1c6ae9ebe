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

pub(super) struct SimJournal {
    spec: JobSpec,
    /// Entries are kept. Otherwise no dispatcher is ever started again, and written entries are
    /// dropped.
    pub is_kept: bool,
    /// Entries on disk.
    entries: Vec<Arc<Entry>>,
    /// Entries that are written and not yet on disk, in order.
    on_the_way: VecDeque<Arc<Entry>>,
    /// Results may have accumulated since the last entry.
    pub is_behind: bool,
    /// Number of results since the last entry.
    pub gathered: u64,
    /// Number of deaths of the dispatcher. Entries in flight at a death never reach the disk.
    pub deaths: u32,
}

impl SimJournal {
    pub fn new(spec: JobSpec) -> Self {
        let (entries, on_the_way) = (Vec::new(), VecDeque::new());
        SimJournal {
            spec,
            is_kept: false,
            entries,
            on_the_way,
            is_behind: false,
            gathered: 0,
            deaths: 0,
        }
    }

    pub fn spec(&self) -> JobSpec {
        self.spec.clone()
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

    /// The dispatcher has died: entries in flight are lost.
    pub fn die(&mut self) {
        self.on_the_way.clear();
        (self.is_behind, self.deaths) = (false, self.deaths + 1);
    }

    /// The job, as the entries on disk give it.
    pub fn replay(&self) -> Replay {
        let mut replay = Replay::new(JOB, self.spec.clone());
        self.entries.iter().for_each(|entry| replay.apply((**entry).clone()));
        replay
    }
}
