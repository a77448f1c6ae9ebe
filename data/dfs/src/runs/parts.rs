//! The results of a run so far: the workers whose output counts, and what happened to their blocks.

use std::collections::BTreeMap;

use eyas_blocks::{Blocks, Record, WorkerId};

use eyas_files::{OutputPart, RunStatus};

/// Follows the records of a run.
#[derive(Default)]
pub(crate) struct Parts {
    /// The pieces that workers have.
    blocks: BTreeMap<WorkerId, Vec<u32>>,
    /// By first piece.
    committed: BTreeMap<u32, OutputPart>,
    stolen: u32,
    speculated: u32,
}

impl Parts {
    /// Applies the next record.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Granted { worker, chunks, copy_of, .. } => {
                self.blocks.entry(*worker).or_default().extend(chunks);
                self.speculated += u32::from(copy_of.is_some());
            }
            Record::Shortened { worker, chunks } => {
                self.blocks.entry(*worker).or_default().truncate(*chunks as usize);
                self.stolen += 1;
            }
            Record::Committed { worker, done, .. } => {
                let chunks = self.blocks.remove(worker).unwrap_or_default();
                // A task has no output of ours.
                if worker.task().is_some() {
                    return;
                }
                let first = chunks.iter().take(*done as usize).min();
                self.committed.extend(first.map(|first| {
                    (*first, OutputPart { worker: *worker, first: *first, pieces: *done })
                }));
            }
            Record::Dropped { worker } => drop(self.blocks.remove(worker)),
        }
    }

    pub fn status(&self, blocks: &Blocks, pieces: u32) -> RunStatus {
        RunStatus {
            committed_chunks: blocks.committed_chunks() / pieces,
            is_complete: blocks.is_complete(),
            parts: self.committed.values().copied().collect(),
            stolen: self.stolen,
            speculated: self.speculated,
        }
    }
}

#[cfg(test)]
mod tests {
    use eyas_blocks::LeaseId;

    use super::*;

    #[test]
    fn a_part_is_what_its_worker_has_read() {
        let (a, b, c) = (WorkerId(1), WorkerId(2), WorkerId(3));
        let granted = |worker, lease, chunks: &[u32], copy_of| Record::Granted {
            worker,
            lease: LeaseId(lease),
            chunks: chunks.to_vec(),
            copy_of,
        };
        let mut parts = Parts::default();
        let records = [
            granted(a, 1, &[5, 2], None),
            granted(b, 2, &[3], None),
            granted(a, 3, &[1, 4], None),
            Record::Shortened { worker: a, chunks: 3 },
            granted(c, 4, &[3], Some(b)),
            Record::Committed { worker: a, lease: LeaseId(3), done: 2 },
            Record::Committed { worker: c, lease: LeaseId(4), done: 1 },
        ];
        records.iter().for_each(|record| parts.apply(record));
        let committed: Vec<_> =
            parts.committed.values().map(|part| (part.worker, part.first, part.pieces)).collect();
        assert_eq!(committed, [(a, 2, 2), (c, 3, 1)]);
        assert_eq!((parts.stolen, parts.speculated), (1, 1));
    }
}
