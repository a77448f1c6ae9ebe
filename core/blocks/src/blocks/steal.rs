//! Splitting a running lease: its worker continues at the head, and an idle worker takes chunks
//! from the tail.

use alloc::vec::Vec;

use super::Blocks;
use crate::event::{Effect, Record, WorkerId};
use crate::measures::duration_us;

impl Blocks {
    /// Takes chunks from the worker with the longest remaining time, so that thief and victim
    /// finish at about the same time. Returns `None` if nothing can be taken. If both read 10 MB/s
    /// and the victim has 10 chunks of 4 MB left, of which it has not begun 8, the thief takes 5.
    pub(super) fn steal(&mut self, thief: WorkerId, effects: &mut Vec<Effect>) -> Option<Vec<u32>> {
        let victim = self.workers.slowest()?;
        let [thief_rate, victim_rate] =
            [thief, victim].map(|worker| self.workers.rate_or_mean(worker));
        let block = self.ledger.block(victim).expect("the victim has a block");
        let run = &self.workers[victim];
        let (mut left_bytes, mut taken_bytes) = (run.left_bytes(), 0);
        let mut chunks = block.len();
        while chunks > run.confirmed {
            let size_bytes = self.chunks.size_bytes(block.chunks[chunks as usize - 1]);
            // Taking the first chunk pays if the thief finishes it before the victim would finish
            // its block.
            let rest_bytes = if taken_bytes == 0 { left_bytes } else { left_bytes - size_bytes };
            if duration_us(taken_bytes + size_bytes, thief_rate)
                > duration_us(rest_bytes, victim_rate)
            {
                break;
            }
            (left_bytes, taken_bytes, chunks) =
                (left_bytes - size_bytes, taken_bytes + size_bytes, chunks - 1);
        }
        if chunks == block.len() {
            return None;
        }
        let taken = self.record(Record::Shortened { worker: victim, chunks }, effects);
        self.workers.robbed(victim, chunks, taken_bytes);
        Some(taken)
    }
}
