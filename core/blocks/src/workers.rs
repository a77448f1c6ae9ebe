//! The workers: their progress and rates, and the chunks of their blocks that they may begin
//! without asking.
//!
//! A worker may begin a chunk once it is *confirmed*, and confirmed chunks are never taken away. A
//! slow worker must not keep chunks that others could process, and a fast one must not wait for an
//! answer before each chunk. So the chunks that are confirmed beyond the current one are those that
//! the worker reads in [`Config::window_us`](crate::Config).

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Index;

use crate::chunks::{ChunkTable, NodeIndex, NodeTable};
use crate::event::{LeaseProgress, WorkerId};
use crate::ledger::{Block, Ledger};
use crate::measures::{self, ReadRate, duration_us};
use crate::worker_state::WorkerState;

/// Maximum number of chunks that are confirmed beyond the current one.
const MAX_CONFIRMED: u32 = 256;

/// Assumed rate of all workers while none is known, bytes per second. It only serves to compare
/// amounts.
const ANY_RATE: u64 = 100_000_000;

/// Workers with a block, and idle workers.
#[derive(Default)]
pub(crate) struct BlockWorkers {
    runs: BTreeMap<WorkerId, WorkerState>,
    /// The times at which workers are given up.
    expiries: BTreeSet<(u64, WorkerId)>,
    /// Blocks from which chunks can be taken, by the time that their workers still need,
    /// microseconds.
    tails: BTreeSet<(u64, WorkerId)>,
    /// Number of workers with a known rate, and the sum of their rates.
    rated: (u64, u64),
}

impl Index<WorkerId> for BlockWorkers {
    type Output = WorkerState;

    fn index(&self, worker: WorkerId) -> &WorkerState {
        &self.runs[&worker]
    }
}

impl BlockWorkers {
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// A message of a worker has arrived. If it is new, it is taken to read as fast as the last
    /// worker of its node.
    pub fn enter(
        &mut self,
        worker: WorkerId,
        node: Option<NodeIndex>,
        nodes: &NodeTable,
        expires_us: u64,
    ) {
        let rated = &mut self.rated;
        let run = self.runs.entry(worker).or_insert_with(|| {
            let rate = node.and_then(|node| nodes.rates[node as usize]);
            *rated = (rated.0 + u64::from(rate.is_some()), rated.1 + rate.unwrap_or(0));
            WorkerState::new(node, rate)
        });
        self.expiries.remove(&(run.expires_us, worker));
        run.expires_us = expires_us;
        self.expiries.insert((run.expires_us, worker));
    }

    /// A worker is gone.
    pub fn leave(&mut self, worker: WorkerId) {
        let Some(run) = self.runs.remove(&worker) else { return };
        self.rated =
            (self.rated.0 - u64::from(run.rate.is_some()), self.rated.1 - run.rate.unwrap_or(0));
        self.expiries.remove(&(run.expires_us, worker));
        if let Some(tail_us) = run.tail_us {
            self.tails.remove(&(tail_us, worker));
        }
    }

    /// The time at which the next worker is given up.
    pub fn next_expiry_us(&self) -> Option<u64> {
        self.expiries.first().map(|(expires_us, _)| *expires_us)
    }

    /// A worker that was silent for too long.
    pub fn expired(&self, now_us: u64) -> Option<WorkerId> {
        self.expiries
            .first()
            .filter(|(expires_us, _)| *expires_us <= now_us)
            .map(|(_, worker)| *worker)
    }

    /// The worker that still needs the longest time, of those from which chunks can be taken.
    pub fn slowest(&self) -> Option<WorkerId> {
        self.tails.last().map(|(_, worker)| *worker)
    }

    pub fn set_node(&mut self, worker: WorkerId, node: NodeIndex) {
        self.run(worker).node = Some(node);
    }

    /// A worker was granted `bytes` more.
    pub fn begin(&mut self, worker: WorkerId, now_us: u64, bytes: u64) {
        self.run(worker).begin(now_us, bytes);
    }

    /// A worker gets no more chunks.
    pub fn end(&mut self, worker: WorkerId) {
        self.run(worker).is_ending = true;
    }

    /// The whole block of a worker counts as confirmed: nothing is known of it after a restart.
    pub fn confirm_all(&mut self, worker: WorkerId, chunks: u32) {
        self.run(worker).confirmed = chunks;
    }

    /// Chunks were removed from the end of a worker's block, which has `chunks` with `block_bytes`
    /// now. Returns `false` if the worker has read one of them.
    pub fn shortened(&mut self, worker: WorkerId, chunks: u32, block_bytes: u64) -> bool {
        let run = self.run(worker);
        (run.block_bytes, run.confirmed) = (block_bytes, run.confirmed.min(chunks));
        // A restart forgets the progress of workers, so they have read none of the chunks that they
        // lose here.
        run.done <= chunks
    }

    /// Chunks that a worker has not begun were taken from it.
    pub fn robbed(&mut self, worker: WorkerId, chunks: u32, taken_bytes: u64) {
        self.run(worker).block_bytes -= taken_bytes;
        self.weigh(worker, chunks);
    }

    /// Applies a worker's report of its progress in its block. Returns `false` if the worker began
    /// a chunk that was not confirmed.
    pub fn progressed(
        &mut self,
        (worker, block): (WorkerId, &Block),
        chunks: &ChunkTable,
        nodes: &mut NodeTable,
        progress: LeaseProgress,
        now_us: u64,
    ) -> bool {
        let run = self.runs.get_mut(&worker).expect("a worker with a block is known");
        if progress.done > run.confirmed {
            return false;
        }
        if progress.done > run.done {
            let done = &block.chunks[run.done as usize..progress.done as usize];
            run.done_bytes += done.iter().map(|chunk| chunks.size_bytes(*chunk)).sum::<u64>();
            run.done = progress.done;
        }
        let next =
            block.chunks.get(progress.done as usize).map_or(0, |chunk| chunks.size_bytes(*chunk));
        let read_bytes =
            run.done_bytes + if progress.done == run.done { progress.bytes.min(next) } else { 0 };
        if read_bytes > run.read_bytes {
            let [over_us, elapsed_us] =
                [run.progressed_us, run.began_us].map(|since| now_us.saturating_sub(since));
            let before = run.rate;
            run.rate = measures::measured(before, read_bytes - run.read_bytes, over_us, elapsed_us);
            (run.read_bytes, run.progressed_us) = (read_bytes, now_us);
            self.rated.0 += u64::from(before.is_none());
            self.rated.1 = self.rated.1 - before.unwrap_or(0) + run.rate.unwrap_or(0);
            if let Some(node) = run.node {
                nodes.rates[node as usize] = run.rate;
            }
        }
        true
    }

    /// Confirms the chunks that a worker may begin now: up to those that it reads in this window,
    /// or all of its block if nothing is taken from it. A worker that reads 100 MB/s and is in its
    /// third chunk of 4 MB may, with a window of 100 ms, begin the fourth and the fifth without
    /// asking: 8 of 10 MB.
    pub fn confirm(
        &mut self,
        (worker, block): (WorkerId, &Block),
        chunks: &ChunkTable,
        window_us: Option<u64>,
    ) {
        let run = self.run(worker);
        let len = block.len();
        match window_us {
            Some(window_us) if !run.is_ending => {
                let mut ahead_bytes = run.rate.map_or(0, |rate| {
                    (u128::from(rate) * u128::from(window_us) / 1_000_000).min(u64::MAX.into())
                        as u64
                });
                let mut confirmed = (run.done + 1).min(len);
                while confirmed < len.min(run.done + 1 + MAX_CONFIRMED) {
                    let size_bytes = chunks.size_bytes(block.chunks[confirmed as usize]);
                    let Some(left_bytes) = ahead_bytes.checked_sub(size_bytes.max(1)) else {
                        break;
                    };
                    (ahead_bytes, confirmed) = (left_bytes, confirmed + 1);
                }
                run.confirmed = run.confirmed.max(confirmed);
            }
            _ => run.confirmed = len,
        }
        self.weigh(worker, len);
    }

    /// Adds or removes a worker, whose block has this number of chunks, in the list of those from
    /// which others may take chunks.
    fn weigh(&mut self, worker: WorkerId, chunks: u32) {
        let rate = self.rate_or_mean(worker);
        let run = self.runs.get_mut(&worker).expect("a worker with a block is known");
        if let Some(tail_us) = run.tail_us.take() {
            self.tails.remove(&(tail_us, worker));
        }
        if run.confirmed < chunks {
            let tail_us = duration_us(run.left_bytes(), rate);
            run.tail_us = Some(tail_us);
            self.tails.insert((tail_us, worker));
        }
    }

    /// The mean rate of all workers with a known rate: of 100, 50 and an unknown one, 75.
    pub fn mean_rate(&self) -> ReadRate {
        self.rated.1.checked_div(self.rated.0)
    }

    pub fn rate_or_mean(&self, worker: WorkerId) -> u64 {
        self[worker].rate.or(self.mean_rate()).unwrap_or(ANY_RATE)
    }

    fn run(&mut self, worker: WorkerId) -> &mut WorkerState {
        self.runs.get_mut(&worker).expect("the caller knows the worker")
    }

    /// Checks that the indexes agree with the workers and their blocks.
    ///
    /// # Panics
    /// If they do not.
    pub fn validate(&self, ledger: &Ledger, chunks: &ChunkTable) {
        for (worker, block) in ledger.blocks() {
            let run = &self[worker];
            assert!(run.done <= run.confirmed && run.confirmed <= block.len(), "{worker:?}");
            assert_eq!(run.block_bytes, block.bytes(chunks), "{worker:?}");
            assert_eq!(run.tail_us.is_some(), run.confirmed < block.len(), "{worker:?}");
        }
        let rates = || self.runs.values().filter_map(|run| run.rate);
        assert_eq!(self.rated, (rates().count() as u64, rates().sum()));
        assert_eq!(
            self.tails.len(),
            self.runs.values().filter(|run| run.tail_us.is_some()).count()
        );
        assert_eq!(self.expiries.len(), self.runs.len());
    }
}
