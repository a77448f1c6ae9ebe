//! Invariants of a job's blocks.

use super::Blocks;
use crate::ledger::BlockState;

impl Blocks {
    /// Checks that every chunk is committed, held or free, and that the indexes agree with the ledger.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn validate(&self) {
        self.ledger.validate();
        if self.is_planned {
            let supply = self.supply.validate(&self.chunks);
            for chunk in 0..self.chunks.len() as u32 {
                assert_eq!(self.ledger.state(chunk) == BlockState::Free, supply.contains(&chunk), "chunk {chunk}");
            }
        }
        for (worker, block) in self.ledger.blocks() {
            let run = &self.runs[&worker];
            assert!(run.done <= run.confirmed && run.confirmed <= block.len(), "{worker:?}");
            assert_eq!(run.block_bytes, self.block_bytes(worker), "{worker:?}");
            assert_eq!(run.tail_us.is_some(), run.confirmed < block.len(), "{worker:?}");
            assert!(!self.idle.contains(&worker), "{worker:?}");
        }
        let rates = || self.runs.values().filter_map(|run| run.rate);
        assert_eq!(self.rated, (rates().count() as u64, rates().sum()));
        assert_eq!(self.tails.len(), self.runs.values().filter(|run| run.tail_us.is_some()).count());
        assert_eq!(self.expiries.len(), self.runs.len());
        assert_eq!(self.runs.len(), self.idle.len() + self.ledger.blocks().count());
    }
}
