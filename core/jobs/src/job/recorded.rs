//! What the journal has of a job, and what it is about to get.

use super::pending::Pending;

/// Entries and results of a job, as they are counted.
#[derive(Debug, Default)]
pub(crate) struct RecordedJob {
    /// Journal entries written or on their way.
    pub entries: u64,
    /// How many entries the last snapshot covers, if there is one.
    pub snapshot_entries: Option<u64>,
    /// Entries and earlier results that a snapshot would replace.
    pub uncovered: u64,
    /// Results in its entries, also those that were removed since.
    pub results: u64,
    /// Results that were removed from its entries because the task has a later one.
    pub dropped_results: u64,
    /// Results that were not put to be written yet.
    pub pending: Pending,
    /// Bytes of captured output in its results.
    pub output_bytes: u64,
    /// Output was cut because there was no room for it.
    pub lacked_output_room: bool,
}

impl RecordedJob {
    /// The number of an entry that is going to be written.
    pub fn next_entry(&mut self) -> u64 {
        self.entries += 1;
        self.entries - 1
    }

    /// Whether the last snapshot is of the job as it is.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot_entries == Some(self.entries)
    }

    /// A snapshot is written of it.
    pub fn cover(&mut self) {
        (self.uncovered, self.snapshot_entries) = (0, Some(self.entries));
    }
}
