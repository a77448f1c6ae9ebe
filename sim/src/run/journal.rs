//! A dispatcher's journal: what of its job survives when it dies. Entries are on disk a while after they are written,
//! in
//! order; then clients are told of them. A dispatcher that is started again has the state that these entries give.

use std::collections::VecDeque;
use std::sync::Arc;

use eyas_jobs::{Entry, JobSpec, JournalRecord, Replay};

use super::job::JOB;
use crate::clock::{MICROSECOND, Ns};

/// From writing an entry until it is on disk: a write to a solid-state disk, synchronised.
pub(super) const WRITTEN_AFTER_NS: Ns = 500 * MICROSECOND;

pub(super) struct SimJournal {
    spec: JobSpec,
    /// Entries are kept; otherwise no dispatcher is ever started again, and what is written is forgotten.
    pub is_kept: bool,
    /// Entries on disk.
    entries: Vec<Arc<Entry>>,
    /// Entries that were written and are not on disk, in order.
    on_the_way: VecDeque<Arc<Entry>>,
    /// Results may have gathered since the last entry.
    pub is_behind: bool,
    /// Results that may have gathered since then.
    pub gathered: u64,
    /// How often its dispatcher has died: what was on the way then never arrives.
    pub deaths: u32,
}

impl SimJournal {
    pub fn new(spec: JobSpec) -> Self {
        let (entries, on_the_way) = (Vec::new(), VecDeque::new());
        SimJournal { spec, is_kept: false, entries, on_the_way, is_behind: false, gathered: 0, deaths: 0 }
    }

    pub fn spec(&self) -> JobSpec {
        self.spec.clone()
    }

    /// Writes a record; whether something is on its way to the disk that was not before.
    pub fn write(&mut self, record: JournalRecord) -> bool {
        let JournalRecord::Entry { number, entry, .. } = record else { return false };
        if self.is_kept {
            assert_eq!(number, self.written(), "entries have no gaps");
            self.on_the_way.push_back(entry);
        }
        self.is_kept
    }

    /// How many entries were written.
    pub fn written(&self) -> u64 {
        (self.entries.len() + self.on_the_way.len()) as u64
    }

    /// How many entries are on disk.
    pub fn on_disk(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The next entry is on disk.
    pub fn arrived(&mut self) -> Arc<Entry> {
        let entry = self.on_the_way.pop_front().expect("as many arrive as were written");
        self.entries.push(entry.clone());
        entry
    }

    /// Its dispatcher has died.
    pub fn die(&mut self) {
        self.on_the_way.clear();
        (self.is_behind, self.deaths) = (false, self.deaths + 1);
    }

    /// The job, as its entries on disk have it.
    pub fn replay(&self) -> Replay {
        let mut replay = Replay::new(JOB, self.spec.clone());
        self.entries.iter().for_each(|entry| replay.apply((**entry).clone()));
        replay
    }
}
