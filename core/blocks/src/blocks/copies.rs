//! Work for idle workers: chunks that came back, chunks that others have not begun, and at the end
//! a copy of a slow worker's block. Of a block and its copy, the first to commit counts.

use alloc::vec::Vec;

use super::Blocks;
use crate::event::{Effect, WorkerId};
use crate::measures::duration_us;

/// Maximum number of copies of a block. Workers read one of them at a time.
const MAX_COPIES: u32 = 3;

impl Blocks {
    /// Gives idle workers the work that is available now.
    pub(super) fn serve_idle(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let is_time = self.idle.is_time(now_us);
        if self.is_complete() {
            self.idle.all().into_iter().for_each(|worker| self.serve(now_us, worker, effects));
        } else if is_time {
            self.idle
                .take_turns()
                .into_iter()
                .for_each(|worker| self.serve(now_us, worker, effects));
        }
        while self.plan.has_free()
            && let Some(worker) = self.idle.first()
        {
            self.give(now_us, worker, effects);
        }
        self.idle.wait(now_us, is_time);
    }

    /// Gives an idle worker work, if there is any.
    pub(super) fn serve(&mut self, now_us: u64, worker: WorkerId, effects: &mut Vec<Effect>) {
        if self.is_complete() {
            self.leave(worker);
            effects.push(Effect::NoMore { worker, chunks: 0 });
        } else if !self.give(now_us, worker, effects) && self.config.speculate {
            self.copy(now_us, worker, effects);
        }
    }

    /// Gives a worker a copy of the block that it would finish earliest in comparison with the
    /// block's worker. With 10 MB/s, the copy of a block of 100 MB for which its worker still needs
    /// 30 s gains 20 s.
    fn copy(&mut self, now_us: u64, worker: WorkerId, effects: &mut Vec<Effect>) {
        let Some(rate) = self.workers[worker].rate.or(self.workers.mean_rate()) else { return };
        let gain_us = |other: &WorkerId| {
            let run = &self.workers[*other];
            run.left_us(now_us)
                .checked_sub(duration_us(run.block_bytes, rate))
                .filter(|gain_us| *gain_us > 0)
        };
        // The framework of a task runs its copies.
        let open = self.ledger.blocks().filter(|(other, block)| {
            other.task().is_none() && block.twin.is_none() && block.generation < MAX_COPIES
        });
        let gains = open.filter_map(|(other, _)| Some((gain_us(&other)?, other)));
        let Some((_, first)) = gains.max() else { return };
        // From now on both workers have the same chunks.
        self.workers.end(first);
        self.confirm(first);
        let chunks = self.ledger.block(first).expect("it was found there").chunks.clone();
        self.lend(now_us, worker, chunks, Some(first), effects);
    }
}
