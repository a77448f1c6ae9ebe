//! The decider: which worker gets which chunks for how long, and whose work counts.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::chunks::{ChunkTable, NodeIndex, NodeTable};
use crate::event::{Effect, Event, LeaseId, LeaseProgress, Record, WorkerId};
use crate::ledger::Ledger;
use crate::measures::ReadRate;
use crate::schedulers::{self, AssignmentInput, BlockPolicy, BlockScheduler};
use crate::sizes::{Sizer, Sizes};
use crate::supply::Supply;
use crate::worker_state::WorkerState;

mod copies;
mod progress;
mod steal;
mod validate;

/// Default time after which a silent worker loses its lease, microseconds.
pub const DEFAULT_TERM_US: u64 = 10_000_000;

/// Default window, microseconds: a worker may begin as many chunks without asking as it reads in this time. It is some
/// hundred round trips, so asking costs a worker at most a hundredth of its time.
pub const DEFAULT_WINDOW_US: u64 = 50_000;

/// Number of lease ids for one start of the leader. The next start begins with higher ids.
const LEASES_OF_AN_EPOCH: u64 = 1 << 40;

/// The configuration of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How chunks are assigned.
    pub policy: BlockPolicy,
    /// The expected workers: the node of each, and its rate in bytes per second, if known.
    pub slots: Vec<(NodeId, Option<u64>)>,
    /// Whether idle workers take chunks from the tails of others' leases.
    pub steal: bool,
    /// Whether workers that are idle at the end repeat the work of slow ones.
    pub speculate: bool,
    /// A worker that is silent for this time loses its block, microseconds.
    pub term_us: u64,
    /// A worker may begin as many chunks without asking as it reads in this time, microseconds.
    pub window_us: u64,
}

impl Config {
    /// The configuration for this scheduler as its authors describe it. Only lean splits leases, since the others are
    /// there for comparison.
    pub fn new(policy: BlockPolicy, slots: Vec<(NodeId, Option<u64>)>) -> Self {
        let is_lean = matches!(policy, BlockPolicy::Lean(_));
        let (term_us, window_us) = (DEFAULT_TERM_US, DEFAULT_WINDOW_US);
        Config { policy, slots, steal: is_lean, speculate: is_lean, term_us, window_us }
    }
}

/// See the [crate's](crate) documentation.
pub struct Blocks {
    config: Config,
    scheduler: Box<dyn BlockScheduler>,
    sizer: Sizer,
    chunks: ChunkTable,
    nodes: NodeTable,
    slots: Vec<(NodeIndex, ReadRate)>,
    ledger: Ledger,
    supply: Supply,
    /// Workers with a block, and idle workers.
    runs: BTreeMap<WorkerId, WorkerState>,
    /// The times at which workers are given up.
    expiries: BTreeSet<(u64, WorkerId)>,
    /// Blocks from which chunks can be taken, by the time that their workers still need, microseconds.
    tails: BTreeSet<(u64, WorkerId)>,
    /// Workers without a block.
    idle: BTreeSet<WorkerId>,
    /// Number of workers with a known rate, and the sum of their rates.
    rated: (u64, u64),
    next_lease: LeaseId,
    is_planned: bool,
    is_told: bool,
    /// When idle workers look for others' work again, and which of them looked last.
    look_us: Option<u64>,
    looked: WorkerId,
}

impl Blocks {
    /// The blocks of a job over these chunks, each given as its size and the nodes that have a replica.
    ///
    /// `records` are the saved records of this job in order; `epoch` is greater than at each earlier start. Records at
    /// the end may be missing, unless [`Effect::Committed`] was sent because of one of them.
    ///
    /// # Panics
    /// If the records are not of this job, or of a later epoch.
    pub fn new<'a>(
        config: Config,
        chunks: impl IntoIterator<Item = (u64, &'a [NodeId])>,
        epoch: u32,
        records: impl IntoIterator<Item = Record>,
        now_us: u64,
    ) -> Self {
        let (mut nodes, mut all) = (NodeTable::new(), ChunkTable::default());
        let slots: Vec<_> =
            config.slots.iter().map(|(node, rate)| (nodes.place(*node), rate.map(|rate| rate.max(1)))).collect();
        for (size_bytes, replicas) in chunks {
            all.push(size_bytes, replicas.iter().map(|node| nodes.place(*node)));
        }
        for (node, rate) in &slots {
            nodes.rates[*node as usize] = *rate;
        }
        let sizes = if let BlockPolicy::Lean(lean) = config.policy { lean.sizes } else { Sizes::Factoring };
        let mut blocks = Blocks {
            scheduler: schedulers::of(config.policy),
            sizer: Sizer::new(sizes),
            ledger: Ledger::new(all.len()),
            chunks: all,
            nodes,
            slots,
            supply: Supply::default(),
            runs: BTreeMap::new(),
            expiries: BTreeSet::new(),
            tails: BTreeSet::new(),
            idle: BTreeSet::new(),
            rated: (0, 0),
            next_lease: LeaseId(u64::from(epoch) * LEASES_OF_AN_EPOCH),
            is_planned: false,
            is_told: false,
            look_us: None,
            looked: WorkerId(0),
            config,
        };
        blocks.recover(records, now_us);
        blocks
    }

    /// Applies saved records. The node of a worker is unknown until the worker asks again; until then its whole block
    /// counts as confirmed.
    fn recover(&mut self, records: impl IntoIterator<Item = Record>, now_us: u64) {
        let mut freed = Vec::new();
        for record in records {
            if let Record::Granted { lease, .. } = &record {
                assert!(*lease < self.next_lease, "{lease:?} is of a later epoch");
            }
            self.ledger.apply(&record, &mut freed);
        }
        let held: Vec<_> = self.ledger.blocks().map(|(worker, block)| (worker, block.len())).collect();
        for (worker, confirmed) in held {
            self.enter(worker, None, now_us);
            let bytes = self.block_bytes(worker);
            let run = self.runs.get_mut(&worker).expect("it has just come");
            run.begin(now_us, bytes);
            run.confirmed = confirmed;
        }
    }

    /// Applies one event and appends the resulting actions to `effects`. `now_us` may stay the same between events,
    /// and never goes back.
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        self.expire(now_us, effects);
        match event {
            Event::RequestLease { worker, node, lease, progress } => {
                self.claim(now_us, worker, node, lease, progress, effects);
            }
            Event::Renew { worker, lease, progress } => self.renew(now_us, worker, lease, progress, effects),
            Event::Commit { worker, lease, done } => self.commit(worker, lease, done, effects),
            Event::Gone { worker } => self.give_up(worker, effects),
            Event::Measured { node, disk, load } => {
                let node = self.nodes.place(node);
                self.nodes.measures[node as usize].measured(now_us, disk, load);
            }
            Event::Tick => {}
        }
        self.serve_idle(now_us, effects);
        if self.ledger.is_complete() && !self.is_told {
            self.is_told = true;
            effects.push(Effect::Complete);
        }
    }

    /// The time at which it must be sent [`Event::Tick`], if no event comes before.
    pub fn next_timeout(&self) -> Option<u64> {
        let expiry = self.expiries.first().map(|(expires_us, _)| *expires_us);
        expiry.into_iter().chain(self.look_us).min()
    }

    /// Number of committed chunks.
    pub fn committed_chunks(&self) -> u32 {
        self.ledger.committed()
    }

    /// Whether all chunks are committed.
    pub fn is_complete(&self) -> bool {
        self.ledger.is_complete()
    }

    // ---- events of workers

    fn claim(
        &mut self,
        now_us: u64,
        worker: WorkerId,
        node: NodeId,
        lease: Option<LeaseId>,
        progress: LeaseProgress,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(lease) = self.ledger.ended(worker) {
            effects.push(Effect::Committed { worker, lease });
            return;
        }
        let Some(block) = self.ledger.block(worker) else {
            match lease {
                Some(_) => effects.push(Effect::Discard { worker }),
                None => {
                    let node = self.nodes.place(node);
                    self.enter(worker, Some(node), now_us);
                    self.idle.insert(worker);
                    self.serve(now_us, worker, effects);
                }
            }
            return;
        };
        let (last, previous) = (block.lease, block.previous);
        if lease == previous {
            // The worker has not received the answer to its last request.
            self.enter(worker, None, now_us);
            let granted = self.granted(worker);
            effects.push(granted);
        } else if lease > Some(last) || lease == Some(last) && !self.advance(now_us, worker, progress, effects) {
            self.discard(worker, effects);
        } else if lease == Some(last) {
            let node = self.nodes.place(node);
            self.runs.get_mut(&worker).expect("a worker with a block is known").node = Some(node);
            self.more(now_us, worker, effects);
        }
    }

    fn renew(
        &mut self,
        now_us: u64,
        worker: WorkerId,
        lease: LeaseId,
        progress: LeaseProgress,
        effects: &mut Vec<Effect>,
    ) {
        let Some(block) = self.ledger.block(worker) else {
            // The worker may have committed after this message was sent.
            if self.ledger.ended(worker).is_none() {
                effects.push(Effect::Discard { worker });
            }
            return;
        };
        let last = block.lease;
        if lease > last || lease == last && !self.advance(now_us, worker, progress, effects) {
            self.discard(worker, effects);
        } else if lease == last {
            effects.push(self.renewed(worker));
        }
    }

    fn commit(&mut self, worker: WorkerId, lease: LeaseId, done: u32, effects: &mut Vec<Effect>) {
        if let Some(ended) = self.ledger.ended(worker) {
            let answer = if ended == lease { Effect::Committed { worker, lease } } else { Effect::Discard { worker } };
            effects.push(answer);
        } else if !self.ledger.may_commit(worker, lease, done) {
            // The block may come from a delayed request; no worker works on it.
            self.discard(worker, effects);
        } else {
            let twin = self.ledger.block(worker).and_then(|block| block.twin);
            self.save(Record::Committed { worker, lease, done }, effects);
            effects.push(Effect::Committed { worker, lease });
            self.leave(worker);
            if let Some(twin) = twin {
                self.leave(twin);
                effects.push(Effect::Discard { worker: twin });
            }
        }
    }

    /// Takes a worker's block from it, and tells the worker.
    fn discard(&mut self, worker: WorkerId, effects: &mut Vec<Effect>) {
        self.give_up(worker, effects);
        effects.push(Effect::Discard { worker });
    }

    fn give_up(&mut self, worker: WorkerId, effects: &mut Vec<Effect>) {
        if self.ledger.block(worker).is_some() {
            self.save(Record::Dropped { worker }, effects);
        }
        self.leave(worker);
    }

    fn expire(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        while let Some((expires_us, worker)) = self.expiries.first().copied()
            && expires_us <= now_us
        {
            self.discard(worker, effects);
        }
    }

    // ---- assignment of chunks

    /// Gives a worker at the end of its block: more of the block confirmed, or more chunks, or the answer that there
    /// is no more.
    fn more(&mut self, now_us: u64, worker: WorkerId, effects: &mut Vec<Effect>) {
        let (block, run) =
            (self.ledger.block(worker).expect("a worker that asks for more has a block"), &self.runs[&worker]);
        let chunks = block.len();
        if run.confirmed < chunks {
            effects.push(self.renewed(worker));
        } else if run.is_ending || block.twin.is_some() {
            effects.push(Effect::NoMore { worker, chunks });
        } else if !self.give(now_us, worker, effects) {
            self.runs.get_mut(&worker).expect("it is known").is_ending = true;
            effects.push(Effect::NoMore { worker, chunks });
        }
    }

    /// Gives a worker free chunks, or chunks that another worker has not begun. Returns `false` if there are none.
    fn give(&mut self, now_us: u64, worker: WorkerId, effects: &mut Vec<Effect>) -> bool {
        self.plan();
        let node = self.runs[&worker].node.expect("a request names the worker's node");
        let Some(chunks) = self.next_chunks(worker, node).or_else(|| self.steal(worker, effects)) else { return false };
        self.lend(now_us, worker, chunks, None, effects);
        true
    }

    /// The next chunks for a worker: local ones first, then chunks of the node that has most left (elastic-blocks
    /// §2.5).
    fn next_chunks(&mut self, worker: WorkerId, node: NodeIndex) -> Option<Vec<u32>> {
        if let Some(share) = self.supply.take_own_share(node) {
            return Some(share);
        }
        if self.supply.rest() > 0 {
            let speed = self.rate(worker).zip(self.mean_rate());
            let workers = self.runs.len().max(self.slots.len()) as u32;
            let count = self.sizer.next(self.supply.rest(), workers, speed);
            return Some(self.supply.take(&self.chunks, node, count));
        }
        let all = self.chunks.len() as f64;
        let need = |node: NodeIndex, left| self.scheduler.need(left as f64 / all, &self.nodes.measures[node as usize]);
        self.supply.take_neediest_share(need)
    }

    fn lend(
        &mut self,
        now_us: u64,
        worker: WorkerId,
        chunks: Vec<u32>,
        copy_of: Option<WorkerId>,
        effects: &mut Vec<Effect>,
    ) {
        let lease = self.next_lease;
        self.next_lease.0 += 1;
        self.idle.remove(&worker);
        let bytes: u64 = chunks.iter().map(|chunk| self.chunks.size_bytes(*chunk)).sum();
        let run = self.runs.get_mut(&worker).expect("a worker that gets chunks is known");
        run.begin(now_us, bytes);
        run.is_ending |= copy_of.is_some();
        self.save(Record::Granted { worker, lease, chunks, copy_of }, effects);
        self.confirm(worker);
        let granted = self.granted(worker);
        effects.push(granted);
    }

    /// Assigns chunks in advance. This is done as late as the first request, so that current measurements count.
    fn plan(&mut self) {
        if core::mem::replace(&mut self.is_planned, true) {
            return;
        }
        let free: Vec<u32> = self.ledger.free().collect();
        let mut is_shared = alloc::vec![false; self.chunks.len()];
        if !self.slots.is_empty() {
            let measures = &self.nodes.measures;
            let input = AssignmentInput { chunks: &self.chunks, free: &free, slots: &self.slots, measures };
            for share in self.scheduler.shares(&input) {
                share.chunks.iter().for_each(|chunk| is_shared[*chunk as usize] = true);
                self.supply.add_share(share);
            }
        }
        for chunk in free.into_iter().filter(|chunk| !is_shared[*chunk as usize]) {
            self.supply.add(&self.chunks, chunk);
        }
    }

    /// Saves a record and applies it.
    fn save(&mut self, record: Record, effects: &mut Vec<Effect>) {
        let freed = self.record(record, effects);
        // Before chunks are assigned in advance, only the ledger knows which are free.
        if self.is_planned {
            freed.into_iter().for_each(|chunk| self.supply.add(&self.chunks, chunk));
        }
    }

    /// Saves a record, and returns the chunks that it frees.
    fn record(&mut self, record: Record, effects: &mut Vec<Effect>) -> Vec<u32> {
        let mut freed = Vec::new();
        self.ledger.apply(&record, &mut freed);
        effects.push(Effect::Save(record));
        freed
    }

    fn granted(&self, worker: WorkerId) -> Effect {
        let block = self.ledger.block(worker).expect("a worker that was granted chunks has a block");
        let chunks = block.chunks[block.start as usize..].to_vec();
        let confirmed = self.runs[&worker].confirmed;
        Effect::Granted { worker, lease: block.lease, kept: block.start, chunks, confirmed }
    }

    fn renewed(&self, worker: WorkerId) -> Effect {
        let block = self.ledger.block(worker).expect("a worker with a renewed lease has a block");
        let confirmed = self.runs[&worker].confirmed;
        Effect::Renewed { worker, lease: block.lease, chunks: block.len(), confirmed }
    }
}
