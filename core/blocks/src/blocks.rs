//! The decider: which worker gets which chunks for how long, and whose work counts.

use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::chunks::{ChunkTable, NodeIndex, NodeTable};
use crate::event::{Effect, Event, LeaseId, LeaseProgress, Record, WorkerId};
use crate::idle::IdleWorkers;
use crate::ledger::{BlockState, Ledger};
use crate::measures::MeasuredLoad;
use crate::plan::ChunkPlan;
use crate::schedulers::BlockPolicy;
use crate::tasks::{TaskAnswer, TaskClaim};
use crate::workers::BlockWorkers;

mod copies;
mod steal;

/// Default time after which a silent worker loses its lease, microseconds.
pub const DEFAULT_TERM_US: u64 = 10_000_000;

/// Default window, microseconds: a worker may begin as many chunks without asking as it reads in
/// this time. It is some hundred round trips, so asking costs a worker at most a hundredth of its
/// time.
pub const DEFAULT_WINDOW_US: u64 = 50_000;

/// Number of lease ids for one start of the leader. The next start begins with higher ids: the
/// third one, which has epoch 3, with 3 * 2^40.
const LEASES_OF_AN_EPOCH: u64 = 1 << 40;

/// Maximum number of chunks in an answer to a task. The task asks again for further ones.
const MAX_TOLD_CHUNKS: usize = 1 << 16;

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
    /// The configuration for this scheduler as its authors describe it. Only lean splits leases,
    /// since the others are there for comparison.
    pub fn new(policy: BlockPolicy, slots: Vec<(NodeId, Option<u64>)>) -> Self {
        let is_lean = matches!(policy, BlockPolicy::Lean(_));
        let (term_us, window_us) = (DEFAULT_TERM_US, DEFAULT_WINDOW_US);
        Config { policy, slots, steal: is_lean, speculate: is_lean, term_us, window_us }
    }
}

/// See the [crate's](crate) documentation.
pub struct Blocks {
    config: Config,
    chunks: ChunkTable,
    nodes: NodeTable,
    ledger: Ledger,
    plan: ChunkPlan,
    workers: BlockWorkers,
    idle: IdleWorkers,
    next_lease: LeaseId,
    is_told: bool,
}

impl Blocks {
    /// The blocks of a job over these chunks, each given as its size and the nodes that have a
    /// replica.
    ///
    /// `records` are the saved records of this job in order; `epoch` is greater than at each
    /// earlier start. Records at the end may be missing, unless [`Effect::Committed`] was sent
    /// because of one of them.
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
        let plan = ChunkPlan::new(config.policy, &config.slots, &mut nodes);
        for (size_bytes, replicas) in chunks {
            all.push(size_bytes, replicas.iter().map(|node| nodes.index_of(*node)));
        }
        let mut blocks = Blocks {
            config,
            ledger: Ledger::new(all.len()),
            chunks: all,
            nodes,
            plan,
            workers: BlockWorkers::default(),
            idle: IdleWorkers::new(),
            next_lease: LeaseId(u64::from(epoch) * LEASES_OF_AN_EPOCH),
            is_told: false,
        };
        blocks.recover(records, now_us);
        blocks
    }

    /// Applies saved records. The node of a worker is unknown until the worker asks again; until
    /// then its whole block counts as confirmed.
    fn recover(&mut self, records: impl IntoIterator<Item = Record>, now_us: u64) {
        let mut freed = Vec::new();
        for record in records {
            if let Record::Granted { lease, .. } = &record {
                assert!(*lease < self.next_lease, "{lease:?} is of a later epoch");
            }
            self.ledger.apply(&record, &mut freed);
        }
        for (worker, block) in self.ledger.blocks() {
            self.workers.enter(worker, None, &self.nodes, now_us + self.config.term_us);
            self.workers.begin(worker, now_us, block.bytes(&self.chunks));
            self.workers.confirm_all(worker, block.len());
        }
    }

    /// Applies one event and appends the resulting actions to `effects`. `now_us` may stay the same
    /// between events, and never goes back.
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        self.expire(now_us, effects);
        match event {
            Event::RequestLease { worker, node, lease, progress } => {
                self.claim(now_us, worker, node, lease, progress, effects);
            }
            Event::Renew { worker, lease, progress } => {
                self.renew(now_us, worker, lease, progress, effects)
            }
            Event::Commit { worker, lease, done } => self.commit(worker, lease, done, effects),
            Event::Gone { worker } => self.give_up(worker, effects),
            Event::Measured { node, disk, load } => {
                let node = self.nodes.index_of(node);
                self.nodes.set_load(node, MeasuredLoad::new(disk, load));
            }
            Event::Tick => {}
        }
        self.conclude(now_us, effects);
    }

    /// Answers an attempt of a task. If there are records among the effects, they must be durable
    /// before the answer is sent: an attempt may read a list to its end, and be counted by its
    /// framework, without asking again.
    pub fn claim_task(
        &mut self,
        now_us: u64,
        claim: &TaskClaim,
        effects: &mut Vec<Effect>,
    ) -> TaskAnswer {
        self.expire(now_us, effects);
        let answer = self.answer_task(now_us, claim, effects);
        self.conclude(now_us, effects);
        answer
    }

    /// Gives out what has become free, and says once that all is committed.
    fn conclude(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        self.serve_idle(now_us, effects);
        if self.ledger.is_complete() && !self.is_told {
            self.is_told = true;
            effects.push(Effect::Complete);
        }
    }

    /// The time at which it must be sent [`Event::Tick`], if no event comes before.
    pub fn next_timeout(&self) -> Option<u64> {
        self.workers.next_expiry_us().into_iter().chain(self.idle.look_us()).min()
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
                    let node = self.nodes.index_of(node);
                    self.enter(worker, Some(node), now_us);
                    self.idle.add(worker);
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
        } else if lease > Some(last)
            || lease == Some(last) && !self.advance(now_us, worker, progress, effects)
        {
            self.discard(worker, effects);
        } else if lease == Some(last) {
            let node = self.nodes.index_of(node);
            self.workers.set_node(worker, node);
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
            let answer = if ended == lease {
                Effect::Committed { worker, lease }
            } else {
                Effect::Discard { worker }
            };
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

    // ---- attempts of tasks

    fn answer_task(
        &mut self,
        now_us: u64,
        claim: &TaskClaim,
        effects: &mut Vec<Effect>,
    ) -> TaskAnswer {
        let incarnation = self.ledger.incarnation(claim.task);
        let worker = WorkerId::of_task(claim.task, incarnation);
        if !claim.is_of(incarnation) {
            return TaskAnswer::Discard;
        }
        if self.ledger.sealed(worker).is_none() {
            if self.ledger.block(worker).is_some() {
                self.report(now_us, worker, claim);
            } else if claim.incarnation.is_some() {
                return TaskAnswer::Discard;
            }
            let confirmed = self.ledger.block(worker).map(|_| self.workers[worker].confirmed);
            if claim.wants_more && confirmed.is_none_or(|confirmed| claim.done >= confirmed) {
                self.continue_list(now_us, worker, claim.node, effects);
            }
        }
        let (list, is_sealed) = match (self.ledger.sealed(worker), self.ledger.block(worker)) {
            (Some(sealed), _) => (sealed, true),
            (None, Some(block)) => {
                (&block.chunks[..self.workers[worker].confirmed as usize], false)
            }
            // It is alive, and has no list.
            (None, None) => return TaskAnswer::Discard,
        };
        let Some(rest) = list.get(claim.known as usize..) else { return TaskAnswer::Discard };
        let told = &rest[..rest.len().min(MAX_TOLD_CHUNKS)];
        let is_sealed = is_sealed && told.len() == rest.len();
        TaskAnswer::List { incarnation, chunks: told.to_vec(), is_sealed }
    }

    /// An attempt of a task that has a list is alive. The attempt that has read most tells how fast
    /// the task is.
    fn report(&mut self, now_us: u64, worker: WorkerId, claim: &TaskClaim) {
        let node = self.nodes.index_of(claim.node);
        self.enter(worker, None, now_us);
        self.workers.set_node(worker, node);
        let block = self.ledger.block(worker).expect("the caller has found it");
        let progress = LeaseProgress { chunks: block.len(), done: claim.done, bytes: 0 };
        let (chunks, nodes) = (&self.chunks, &mut self.nodes);
        if self.workers.progressed((worker, block), chunks, nodes, progress, now_us) {
            self.confirm(worker);
        }
    }

    /// Appends free chunks to the list of a task, or seals the list if there are none.
    fn continue_list(
        &mut self,
        now_us: u64,
        worker: WorkerId,
        node: NodeId,
        effects: &mut Vec<Effect>,
    ) {
        let node = self.nodes.index_of(node);
        self.enter(worker, Some(node), now_us);
        if self.give(now_us, worker, effects) {
            return;
        }
        if self.ledger.block(worker).is_none() {
            // An empty list is sealed, too: a later attempt must not find chunks that came back.
            self.lend(now_us, worker, Vec::new(), None, effects);
        }
        let block = self.ledger.block(worker).expect("the task has a list");
        let (lease, done) = (block.lease, block.len());
        self.save(Record::Committed { worker, lease, done }, effects);
        self.leave(worker);
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
        while let Some(worker) = self.workers.expired(now_us) {
            self.discard(worker, effects);
        }
    }

    /// A message of a worker has arrived.
    fn enter(&mut self, worker: WorkerId, node: Option<NodeIndex>, now_us: u64) {
        self.workers.enter(worker, node, &self.nodes, now_us + self.config.term_us);
    }

    /// A worker is gone.
    fn leave(&mut self, worker: WorkerId) {
        self.workers.leave(worker);
        self.idle.remove(worker);
    }

    /// Applies a progress report of a worker under its last lease. Returns `false` if the worker
    /// began a chunk that was not confirmed.
    fn advance(
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
        let is_right = self.workers.progressed(
            (worker, block),
            &self.chunks,
            &mut self.nodes,
            progress,
            now_us,
        );
        if is_right {
            self.confirm(worker);
        }
        is_right
    }

    /// Removes chunks from a worker's block that the worker knows to be another's, because the
    /// record of this was lost. Returns `false` if the worker knows fewer chunks than it was
    /// granted before its last lease.
    fn shorten(&mut self, worker: WorkerId, chunks: u32, effects: &mut Vec<Effect>) -> bool {
        let block = self.ledger.block(worker).expect("a worker whose block is shortened has one");
        if block.len() <= chunks {
            return true;
        }
        if chunks < block.start.max(1) || block.twin.is_some() {
            return false;
        }
        self.save(Record::Shortened { worker, chunks }, effects);
        let block = self.ledger.block(worker).expect("a shortened block has chunks");
        self.workers.shortened(worker, chunks, block.bytes(&self.chunks))
    }

    /// Confirms the chunks that a worker may begin now.
    fn confirm(&mut self, worker: WorkerId) {
        let block = self.ledger.block(worker).expect("a worker with confirmed chunks has a block");
        let window_us = self.config.steal.then_some(self.config.window_us);
        self.workers.confirm((worker, block), &self.chunks, window_us);
    }

    // ---- assignment of chunks

    /// Gives a worker at the end of its block: more of the block confirmed, or more chunks, or the
    /// answer that there is no more.
    fn more(&mut self, now_us: u64, worker: WorkerId, effects: &mut Vec<Effect>) {
        let (block, run) = (
            self.ledger.block(worker).expect("a worker that asks for more has a block"),
            &self.workers[worker],
        );
        let chunks = block.len();
        if run.confirmed < chunks {
            effects.push(self.renewed(worker));
        } else if run.is_ending || block.twin.is_some() {
            effects.push(Effect::NoMore { worker, chunks });
        } else if !self.give(now_us, worker, effects) {
            self.workers.end(worker);
            effects.push(Effect::NoMore { worker, chunks });
        }
    }

    /// Gives a worker free chunks, or chunks that another worker has not begun. Returns `false` if
    /// there are none.
    fn give(&mut self, now_us: u64, worker: WorkerId, effects: &mut Vec<Effect>) -> bool {
        self.plan.plan(&self.chunks, &self.nodes, self.ledger.free());
        let run = &self.workers[worker];
        let node = run.node.expect("a request names the worker's node");
        let speed = run.rate.zip(self.workers.mean_rate());
        let next = self.plan.next(&self.chunks, &self.nodes, node, speed, self.workers.len());
        let Some(chunks) = next.or_else(|| self.steal(worker, effects)) else { return false };
        self.lend(now_us, worker, chunks, None, effects);
        true
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
        self.idle.remove(worker);
        let bytes: u64 = chunks.iter().map(|chunk| self.chunks.size_bytes(*chunk)).sum();
        self.workers.begin(worker, now_us, bytes);
        if copy_of.is_some() {
            self.workers.end(worker);
        }
        self.save(Record::Granted { worker, lease, chunks, copy_of }, effects);
        self.confirm(worker);
        let granted = self.granted(worker);
        effects.push(granted);
    }

    /// Saves a record and applies it.
    fn save(&mut self, record: Record, effects: &mut Vec<Effect>) {
        let freed = self.record(record, effects);
        self.plan.add_freed(&self.chunks, freed);
    }

    /// Saves a record, and returns the chunks that it frees.
    fn record(&mut self, record: Record, effects: &mut Vec<Effect>) -> Vec<u32> {
        let mut freed = Vec::new();
        self.ledger.apply(&record, &mut freed);
        effects.push(Effect::Save(record));
        freed
    }

    fn granted(&self, worker: WorkerId) -> Effect {
        let block =
            self.ledger.block(worker).expect("a worker that was granted chunks has a block");
        let chunks = block.chunks[block.start as usize..].to_vec();
        let confirmed = self.workers[worker].confirmed;
        Effect::Granted { worker, lease: block.lease, kept: block.start, chunks, confirmed }
    }

    fn renewed(&self, worker: WorkerId) -> Effect {
        let block = self.ledger.block(worker).expect("a worker with a renewed lease has a block");
        let confirmed = self.workers[worker].confirmed;
        Effect::Renewed { worker, lease: block.lease, chunks: block.len(), confirmed }
    }

    /// Checks that every chunk is committed, held or free, and that the indexes agree with the
    /// ledger.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn validate(&self) {
        self.ledger.validate();
        if let Some(free) = self.plan.validate(&self.chunks) {
            for chunk in 0..self.chunks.len() as u32 {
                assert_eq!(
                    self.ledger.state(chunk) == BlockState::Free,
                    free.contains(&chunk),
                    "chunk {chunk}"
                );
            }
        }
        self.workers.validate(&self.ledger, &self.chunks);
        assert!(
            self.ledger.blocks().all(|(worker, _)| !self.idle.contains(worker)),
            "an idle worker has a block"
        );
        assert_eq!(self.workers.len(), self.idle.len() + self.ledger.blocks().count());
    }
}
