//! Work for idle workers: chunks that came back, chunks that others have not begun, and at the end a copy of a slow
//! worker's block. Of a block and its copy, the first to commit counts.

use alloc::vec::Vec;
use core::ops::Bound;

use super::Blocks;
use crate::event::{Effect, WorkerId};
use crate::measures::duration_us;

/// Maximum number of copies of a block. Workers read one of them at a time.
const MAX_COPIES: u32 = 3;

/// Number of idle workers that look for work at a time; they take turns.
const IDLE_LOOKS: usize = 16;

/// Idle workers look for work again after this time, microseconds.
const LOOK_US: u64 = 100_000;

impl Blocks {
    /// Gives idle workers the work that is available now.
    pub(super) fn serve_idle(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let is_time = self.look_us.is_some_and(|look_us| look_us <= now_us);
        if self.is_complete() {
            self.idle.clone().into_iter().for_each(|worker| self.serve(now_us, worker, effects));
        } else if is_time {
            let later = self.idle.range((Bound::Excluded(self.looked), Bound::Unbounded));
            let turns: Vec<_> = later.chain(self.idle.range(..=self.looked)).copied().take(IDLE_LOOKS).collect();
            self.looked = turns.last().copied().unwrap_or(self.looked);
            turns.into_iter().for_each(|worker| self.serve(now_us, worker, effects));
        }
        while !self.supply.is_empty()
            && let Some(worker) = self.idle.first().copied()
        {
            self.give(now_us, worker, effects);
        }
        let next_us = if is_time { None } else { self.look_us };
        self.look_us = (!self.idle.is_empty()).then(|| next_us.unwrap_or(now_us + LOOK_US));
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

    /// Gives a worker a copy of the block that it would finish earliest in comparison with the block's worker.
    fn copy(&mut self, now_us: u64, worker: WorkerId, effects: &mut Vec<Effect>) {
        let Some(rate) = self.rate(worker).or(self.mean_rate()) else { return };
        let gain_us = |other: &WorkerId| {
            let run = &self.runs[other];
            run.left_us(now_us).checked_sub(duration_us(run.block_bytes, rate)).filter(|gain_us| *gain_us > 0)
        };
        let open = self.ledger.blocks().filter(|(_, block)| block.twin.is_none() && block.generation < MAX_COPIES);
        let gains = open.filter_map(|(other, _)| Some((gain_us(&other)?, other)));
        let Some((_, first)) = gains.max() else { return };
        // From now on both workers have the same chunks.
        self.runs.get_mut(&first).expect("a worker with a block is known").is_ending = true;
        self.confirm(first);
        let chunks = self.ledger.block(first).expect("it was found there").chunks.clone();
        self.lend(now_us, worker, chunks, Some(first), effects);
    }
}
