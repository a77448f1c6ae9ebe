//! How far workers are: their rates, and what of their blocks they may begin without asking.
//!
//! A chunk may be begun once it is *confirmed*, and what is confirmed is never taken. So that a slow worker does not sit on
//! chunks that others could do, and a fast one does not wait for an answer before each, what is confirmed beyond the chunk
//! in work is what the worker reads in [`Config::window_us`](super::Config).

use alloc::vec::Vec;

use super::Blocks;
use crate::chunks::NodeIndex;
use crate::event::{Effect, LeaseProgress, Record, WorkerId};
use crate::measures::{self, ReadRate, duration_us};
use crate::worker_state::WorkerState;

/// Most chunks that are confirmed beyond the one in work.
const MAX_CONFIRMED: u32 = 256;

/// Taken for the rate of all while none is known, bytes a second: then it only says who has more.
const ANY_RATE: u64 = 100_000_000;

impl Blocks {
    /// A worker has been heard of.
    pub(super) fn enter(&mut self, worker: WorkerId, node: Option<NodeIndex>, now_us: u64) {
        let rates = &self.nodes.rates;
        let rated = &mut self.rated;
        let run = self.runs.entry(worker).or_insert_with(|| {
            let rate = node.and_then(|node| rates[node as usize]);
            *rated = (rated.0 + u64::from(rate.is_some()), rated.1 + rate.unwrap_or(0));
            WorkerState::new(node, rate)
        });
        self.expiries.remove(&(run.expires_us, worker));
        run.expires_us = now_us + self.config.term_us;
        self.expiries.insert((run.expires_us, worker));
    }

    /// A worker is not heard any more.
    pub(super) fn leave(&mut self, worker: WorkerId) {
        let Some(run) = self.runs.remove(&worker) else { return };
        self.rated = (self.rated.0 - u64::from(run.rate.is_some()), self.rated.1 - run.rate.unwrap_or(0));
        self.expiries.remove(&(run.expires_us, worker));
        if let Some(tail_us) = run.tail_us {
            self.tails.remove(&(tail_us, worker));
        }
        self.idle.remove(&worker);
    }

    /// Takes a report of one who has a block, under its last lease. False if it began what it must not.
    pub(super) fn advance(
        &mut self,
        now_us: u64,
        worker: WorkerId,
        progress: LeaseProgress,
        effects: &mut Vec<Effect>,
    ) -> bool {
        self.enter(worker, None, now_us);
        if !self.shorten(worker, progress.chunks, effects) {
            return false;
        }
        let block = self.ledger.block(worker).expect("who advances has a block");
        let run = self.runs.get_mut(&worker).expect("it has just been entered");
        if progress.done > run.confirmed {
            return false;
        }
        if progress.done > run.done {
            let done = &block.chunks[run.done as usize..progress.done as usize];
            run.done_bytes += done.iter().map(|chunk| self.chunks.size_bytes(*chunk)).sum::<u64>();
            run.done = progress.done;
        }
        let next = block.chunks.get(progress.done as usize).map_or(0, |chunk| self.chunks.size_bytes(*chunk));
        let read_bytes = run.done_bytes + if progress.done == run.done { progress.bytes.min(next) } else { 0 };
        if read_bytes > run.read_bytes {
            let [over_us, elapsed_us] = [run.progressed_us, run.began_us].map(|since| now_us.saturating_sub(since));
            let before = run.rate;
            run.rate = measures::measured(before, read_bytes - run.read_bytes, over_us, elapsed_us);
            (run.read_bytes, run.progressed_us) = (read_bytes, now_us);
            self.rated.0 += u64::from(before.is_none());
            self.rated.1 = self.rated.1 - before.unwrap_or(0) + run.rate.unwrap_or(0);
            if let Some(node) = run.node {
                self.nodes.rates[node as usize] = run.rate;
            }
        }
        self.confirm(worker);
        true
    }

    /// Takes from a worker's block what the worker knows to be another's: that was lost with the end of what was saved.
    /// False if it knows less than what it was granted before its last lease.
    fn shorten(&mut self, worker: WorkerId, chunks: u32, effects: &mut Vec<Effect>) -> bool {
        let block = self.ledger.block(worker).expect("who is shortened has a block");
        if block.len() <= chunks {
            return true;
        }
        if chunks < block.start.max(1) || block.twin.is_some() {
            return false;
        }
        self.save(Record::Shortened { worker, chunks }, effects);
        let block_bytes = self.block_bytes(worker);
        let run = self.runs.get_mut(&worker).expect("who has a block is known");
        (run.block_bytes, run.confirmed) = (block_bytes, run.confirmed.min(chunks));
        // A restart forgets how far workers are, so that they have read none of what they lose here.
        run.done <= chunks
    }

    /// Confirms as much as a worker may begin now.
    pub(super) fn confirm(&mut self, worker: WorkerId) {
        let block = self.ledger.block(worker).expect("whose chunks are confirmed has a block");
        let run = self.runs.get_mut(&worker).expect("who has a block is known");
        let len = block.len();
        if !self.config.steal || run.is_ending {
            run.confirmed = len;
        } else {
            let mut ahead_bytes = run.rate.map_or(0, |rate| {
                (u128::from(rate) * u128::from(self.config.window_us) / 1_000_000).min(u64::MAX.into()) as u64
            });
            let mut confirmed = (run.done + 1).min(len);
            while confirmed < len.min(run.done + 1 + MAX_CONFIRMED) {
                let size_bytes = self.chunks.size_bytes(block.chunks[confirmed as usize]);
                let Some(left_bytes) = ahead_bytes.checked_sub(size_bytes.max(1)) else { break };
                (ahead_bytes, confirmed) = (left_bytes, confirmed + 1);
            }
            run.confirmed = run.confirmed.max(confirmed);
        }
        self.weigh(worker);
    }

    /// Enters a worker among those from whom others may take, or not.
    pub(super) fn weigh(&mut self, worker: WorkerId) {
        let rate = self.rate_or_mean(worker);
        let len = self.ledger.block(worker).map_or(0, |block| block.len());
        let run = self.runs.get_mut(&worker).expect("who has a block is known");
        if let Some(tail_us) = run.tail_us.take() {
            self.tails.remove(&(tail_us, worker));
        }
        if run.confirmed < len {
            let tail_us = duration_us(run.left_bytes(), rate);
            run.tail_us = Some(tail_us);
            self.tails.insert((tail_us, worker));
        }
    }

    pub(super) fn rate(&self, worker: WorkerId) -> ReadRate {
        self.runs[&worker].rate
    }

    /// Of all workers whose rate is known.
    pub(super) fn mean_rate(&self) -> ReadRate {
        self.rated.1.checked_div(self.rated.0)
    }

    pub(super) fn rate_or_mean(&self, worker: WorkerId) -> u64 {
        self.rate(worker).or(self.mean_rate()).unwrap_or(ANY_RATE)
    }

    pub(super) fn block_bytes(&self, worker: WorkerId) -> u64 {
        let block = self.ledger.block(worker).expect("whose bytes are counted has a block");
        block.chunks.iter().map(|chunk| self.chunks.size_bytes(*chunk)).sum()
    }
}
