//! The progress of workers: their rates, and the chunks of their blocks that they may begin without asking.
//!
//! A worker may begin a chunk once it is *confirmed*, and confirmed chunks are never taken away. A slow worker must
//! not keep chunks that others could process, and a fast one must not wait for an answer before each chunk. So the
//! chunks that are confirmed beyond the current one are those that the worker reads in
//! [`Config::window_us`](super::Config).

use alloc::vec::Vec;

use super::Blocks;
use crate::chunks::NodeIndex;
use crate::event::{Effect, LeaseProgress, Record, WorkerId};
use crate::measures::{self, ReadRate, duration_us};
use crate::worker_state::WorkerState;

/// Maximum number of chunks that are confirmed beyond the current one.
const MAX_CONFIRMED: u32 = 256;

/// Assumed rate of all workers while none is known, bytes per second. It only serves to compare amounts.
const ANY_RATE: u64 = 100_000_000;

impl Blocks {
    /// A message of a worker has arrived.
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

    /// A worker is gone.
    pub(super) fn leave(&mut self, worker: WorkerId) {
        let Some(run) = self.runs.remove(&worker) else { return };
        self.rated = (self.rated.0 - u64::from(run.rate.is_some()), self.rated.1 - run.rate.unwrap_or(0));
        self.expiries.remove(&(run.expires_us, worker));
        if let Some(tail_us) = run.tail_us {
            self.tails.remove(&(tail_us, worker));
        }
        self.idle.remove(&worker);
    }

    /// Applies a progress report of a worker under its last lease. Returns `false` if the worker began a chunk that
    /// was not confirmed.
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
        let block = self.ledger.block(worker).expect("a worker that reports progress has a block");
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

    /// Removes chunks from a worker's block that the worker knows to be another's, because the record of this was
    /// lost. Returns `false` if the worker knows fewer chunks than it was granted before its last lease.
    fn shorten(&mut self, worker: WorkerId, chunks: u32, effects: &mut Vec<Effect>) -> bool {
        let block = self.ledger.block(worker).expect("a worker whose block is shortened has one");
        if block.len() <= chunks {
            return true;
        }
        if chunks < block.start.max(1) || block.twin.is_some() {
            return false;
        }
        self.save(Record::Shortened { worker, chunks }, effects);
        let block_bytes = self.block_bytes(worker);
        let run = self.runs.get_mut(&worker).expect("a worker with a block is known");
        (run.block_bytes, run.confirmed) = (block_bytes, run.confirmed.min(chunks));
        // A restart forgets the progress of workers, so they have read none of the chunks that they lose here.
        run.done <= chunks
    }

    /// Confirms the chunks that a worker may begin now.
    pub(super) fn confirm(&mut self, worker: WorkerId) {
        let block = self.ledger.block(worker).expect("a worker with confirmed chunks has a block");
        let run = self.runs.get_mut(&worker).expect("a worker with a block is known");
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

    /// Adds or removes a worker in the list of those from which others may take chunks.
    pub(super) fn weigh(&mut self, worker: WorkerId) {
        let rate = self.rate_or_mean(worker);
        let len = self.ledger.block(worker).map_or(0, |block| block.len());
        let run = self.runs.get_mut(&worker).expect("a worker with a block is known");
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

    /// The mean rate of all workers with a known rate.
    pub(super) fn mean_rate(&self) -> ReadRate {
        self.rated.1.checked_div(self.rated.0)
    }

    pub(super) fn rate_or_mean(&self, worker: WorkerId) -> u64 {
        self.rate(worker).or(self.mean_rate()).unwrap_or(ANY_RATE)
    }

    pub(super) fn block_bytes(&self, worker: WorkerId) -> u64 {
        let block = self.ledger.block(worker).expect("the worker has a block");
        block.chunks.iter().map(|chunk| self.chunks.size_bytes(*chunk)).sum()
    }
}
