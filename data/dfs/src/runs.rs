//! The runs that a node leads: jobs over the blocks of files (elastic-blocks §2.5).
//!
//! A run is led by the node that leads its first file. One thread has the deciders of all runs.
//! Workers report events to it. A client that *attends* a run as one of its workers gets the
//! decisions for this worker. The state that a run must not forget is in the node's database, so
//! the run continues when the node's process is restarted. There is no other copy: when the node is
//! lost for good, so is the run, and clients get `NotFound`.

pub(crate) mod abandoned;
mod parts;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use eyas_blocks::{
    BlockPolicy, Blocks, Config, Effect, Event, Record, TaskAnswer, TaskClaim, WorkerId,
};
use eyas_files::protocol::{NodeLoad, RunReply, RunRequest};
use eyas_files::{BlockRunId, RunSpec, RunSpecError};
use eyas_types::dfs::{Chunk, NodeId};
use thiserror::Error;
use tokio::sync::mpsc::Sender;

use crate::database::{Database, DatabaseError, RunSave};
use parts::Parts;

/// Maximum number of answers to one request that wait to be sent. Further ones are lost, and the
/// client asks again.
pub(crate) const MAX_WAITING_REPLIES: usize = 64;

/// Maximum number of runs that a node leads at a time.
const MAX_RUNS: usize = 1024;

/// The thread checks the time at least at this interval.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Maximum number of abandoned runs whose folders wait to be removed. Folders of further ones stay
/// until a person removes them.
pub(crate) const MAX_ABANDONED: usize = MAX_RUNS;

/// Maximum number of inputs that wait for the thread. Further ones are lost, and are repeated by
/// their senders.
pub(crate) const MAX_QUEUED_INPUTS: usize = 1 << 16;

/// Maximum number of inputs that are decided together.
const MAX_TOGETHER: usize = 4096;

/// A run cannot be led.
#[derive(Debug, Error)]
enum RunError {
    #[error(transparent)]
    Spec(#[from] RunSpecError),
    #[error(
        "this node leads {MAX_RUNS} jobs over blocks already, which is the limit: wait until some \
         have ended"
    )]
    TooManyRuns,
}

/// An input of the thread.
pub(crate) enum RunInput {
    Asked {
        run: BlockRunId,
        request: RunRequest,
        replies: Sender<RunReply>,
    },
    Event {
        run: BlockRunId,
        event: Event,
    },
    /// The loads of all nodes that have measured theirs.
    Loads(BTreeMap<NodeId, NodeLoad>),
    End,
}

/// All runs of a node.
pub(crate) struct Runs {
    database: Arc<Database>,
    inputs: mpsc::Receiver<RunInput>,
    runs: BTreeMap<BlockRunId, LedRun>,
    /// The loads of nodes, as they last came by gossip.
    loads: BTreeMap<NodeId, NodeLoad>,
    /// Number of starts of this node, so that new leases are later than those of earlier starts.
    epoch: u32,
    /// The start of the clock of `now_us`.
    began: Instant,
    /// Receives runs that were forgotten because no client asked for them.
    abandoned: Sender<BlockRunId>,
}

struct LedRun {
    spec: Arc<RunSpec>,
    blocks: Blocks,
    parts: Parts,
    attending: HashMap<WorkerId, Sender<RunReply>>,
    /// Number of records saved so far.
    saved: u64,
    heard: Instant,
}

/// The consequences of inputs that are decided together.
#[derive(Default)]
struct RunBatch {
    saves: Vec<RunSave>,
    /// Whether the changes must be durable before answers are sent.
    is_promised: bool,
    replies: Vec<(Sender<RunReply>, RunReply)>,
}

impl Runs {
    /// Continues the runs in the database.
    pub fn open(
        database: Arc<Database>,
        inputs: mpsc::Receiver<RunInput>,
        abandoned: Sender<BlockRunId>,
    ) -> Result<Self, DatabaseError> {
        let epoch = database.next_epoch()?;
        let mut runs = BTreeMap::new();
        for (run, spec, records) in database.runs()? {
            runs.insert(run, LedRun::new(Arc::new(spec), epoch, records, 0));
        }
        let (loads, began) = (BTreeMap::new(), Instant::now());
        Ok(Runs { database, inputs, runs, loads, epoch, began, abandoned })
    }

    /// Leads the runs until it has to end, or all senders of inputs are gone.
    pub fn run(mut self) -> Result<(), DatabaseError> {
        loop {
            let first = match self.inputs.recv_timeout(self.due()) {
                Ok(input) => Some(input),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let more: Vec<_> = self.inputs.try_iter().take(MAX_TOGETHER).collect();
            let mut batch = RunBatch::default();
            for input in first.into_iter().chain(more) {
                match input {
                    RunInput::Asked { run, request, replies } => {
                        self.asked(run, request, replies, &mut batch)
                    }
                    // Workers of earlier versions report the load of their machine.
                    RunInput::Event { event: Event::Measured { .. }, .. } => {}
                    RunInput::Event { run, event } => {
                        let now_us = self.now_us();
                        if let Some(state) = self.runs.get_mut(&run) {
                            state.heard = Instant::now();
                            state.handle(run, now_us, event, &mut batch);
                        }
                    }
                    RunInput::Loads(loads) => {
                        let now_us = self.now_us();
                        self.runs
                            .iter_mut()
                            .for_each(|(run, led)| led.measured(*run, now_us, &loads, &mut batch));
                        self.loads = loads;
                    }
                    RunInput::End => return Ok(()),
                }
            }
            self.pass_time(&mut batch);
            self.database.save_runs(&batch.saves, batch.is_promised)?;
            for (replies, reply) in batch.replies {
                // A client that is gone needs no answer. A slow one asks again.
                let _ = replies.try_send(reply);
            }
        }
    }

    fn asked(
        &mut self,
        run: BlockRunId,
        request: RunRequest,
        replies: Sender<RunReply>,
        batch: &mut RunBatch,
    ) {
        if let RunRequest::Open(spec) = request {
            let opened = self.lead(run, *spec, batch);
            let failure = opened.err().map(|error| error.to_string());
            batch.replies.push((replies, RunReply::Opened { failure }));
            return;
        }
        let now_us = self.now_us();
        let Some(state) = self.runs.get_mut(&run) else {
            batch.replies.push((replies, RunReply::Unknown));
            return;
        };
        state.heard = Instant::now();
        let reply = match request {
            RunRequest::Open(_) => unreachable!("it was opened above"),
            RunRequest::Spec => RunReply::Spec(Box::new(RunSpec::clone(&state.spec))),
            RunRequest::Attend(worker) => {
                state.attending.insert(worker, replies.clone());
                RunReply::Attending
            }
            RunRequest::Status => {
                RunReply::Status(state.parts.status(&state.blocks, state.spec.pieces))
            }
            RunRequest::Claim(claim) => RunReply::Task(state.claim(run, now_us, &claim, batch)),
            RunRequest::Close => {
                self.forget(run, batch);
                RunReply::Closed
            }
        };
        batch.replies.push((replies, reply));
    }

    fn lead(
        &mut self,
        run: BlockRunId,
        spec: RunSpec,
        batch: &mut RunBatch,
    ) -> Result<(), RunError> {
        if self.runs.contains_key(&run) {
            return Ok(());
        }
        if self.runs.len() >= MAX_RUNS {
            return Err(RunError::TooManyRuns);
        }
        spec.check()?;
        let spec = Arc::new(spec);
        batch.saves.push(RunSave::Spec(run, spec.clone()));
        batch.is_promised = true;
        let now_us = self.now_us();
        let mut led = LedRun::new(spec, self.epoch, Vec::new(), now_us);
        // Before the first worker asks, since its answer depends on the loads.
        led.measured(run, now_us, &self.loads, batch);
        self.runs.insert(run, led);
        Ok(())
    }

    /// Sends due timeouts to the deciders, and forgets idle runs.
    fn pass_time(&mut self, batch: &mut RunBatch) {
        let now_us = self.now_us();
        for (run, state) in &mut self.runs {
            if state.blocks.next_timeout().is_some_and(|due_us| due_us <= now_us) {
                state.handle(*run, now_us, Event::Tick, batch);
            }
        }
        let idle: Vec<_> =
            self.runs.iter().filter(|(_, state)| state.idle_in().is_zero()).collect();
        let idle: Vec<_> = idle.into_iter().map(|(run, _)| *run).collect();
        for run in idle {
            tracing::info!(
                %run,
                "no client has asked for this run for a long time; it is forgotten"
            );
            self.forget(run, batch);
            let _ = self.abandoned.try_send(run);
        }
    }

    fn forget(&mut self, run: BlockRunId, batch: &mut RunBatch) {
        let attending = self.runs.remove(&run).map(|state| state.attending).unwrap_or_default();
        batch.replies.extend(attending.into_values().map(|replies| (replies, RunReply::Unknown)));
        batch.saves.push(RunSave::Forget(run));
    }

    /// Time until the next timeout.
    fn due(&self) -> Duration {
        let now_us = self.now_us();
        let timeout = |due_us: u64| Duration::from_micros(due_us.saturating_sub(now_us));
        let due = |state: &LedRun| {
            state.blocks.next_timeout().map_or(MAX_WAIT, timeout).min(state.idle_in())
        };
        self.runs.values().map(due).min().unwrap_or(MAX_WAIT)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

impl LedRun {
    fn new(spec: Arc<RunSpec>, epoch: u32, records: Vec<Record>, now_us: u64) -> Self {
        let slots = spec.slots.iter().map(|node| (*node, None)).collect();
        let config = Config { term_us: spec.term_us, ..Config::new(spec.policy, slots) };
        let mut parts = Parts::default();
        records.iter().for_each(|record| parts.apply(record));
        let saved = records.len() as u64;
        let pieces = u64::from(spec.pieces);
        let begin = |chunks: &[Chunk], piece| {
            chunks.iter().map(|chunk| chunk.size_bytes).sum::<u64>() * piece / pieces
        };
        let size_bytes = |chunks, piece| begin(chunks, piece + 1) - begin(chunks, piece);
        let units = spec.chunks().flat_map(|(_, _, chunks)| {
            (0..pieces).map(move |piece| (size_bytes(chunks, piece), &chunks[0].replicas[..]))
        });
        let blocks = Blocks::new(config, units, epoch, records, now_us);
        LedRun { blocks, parts, attending: HashMap::new(), saved, heard: Instant::now(), spec }
    }

    /// Time until the run has been idle for too long.
    fn idle_in(&self) -> Duration {
        self.spec.idle.saturating_sub(self.heard.elapsed())
    }

    /// Passes the loads of nodes to the decider, if its policy looks at them.
    fn measured(
        &mut self,
        run: BlockRunId,
        now_us: u64,
        loads: &BTreeMap<NodeId, NodeLoad>,
        batch: &mut RunBatch,
    ) {
        if !matches!(self.spec.policy, BlockPolicy::IoAware(_)) {
            return;
        }
        for (node, load) in loads {
            let (disk, load) = (load.disk(), load.processors());
            self.handle(run, now_us, Event::Measured { node: *node, disk, load }, batch);
        }
    }

    fn handle(&mut self, run: BlockRunId, now_us: u64, event: Event, batch: &mut RunBatch) {
        let mut effects = Vec::new();
        self.blocks.handle(now_us, event, &mut effects);
        self.carry_out(run, effects, batch);
    }

    fn claim(
        &mut self,
        run: BlockRunId,
        now_us: u64,
        claim: &TaskClaim,
        batch: &mut RunBatch,
    ) -> TaskAnswer {
        let mut effects = Vec::new();
        let answer = self.blocks.claim_task(now_us, claim, &mut effects);
        // What an attempt is told of its task's list must never be forgotten.
        batch.is_promised |= effects.iter().any(|effect| matches!(effect, Effect::Save(_)));
        self.carry_out(run, effects, batch);
        answer
    }

    fn carry_out(&mut self, run: BlockRunId, effects: Vec<Effect>, batch: &mut RunBatch) {
        for effect in effects {
            batch.is_promised |= matches!(effect, Effect::Committed { .. } | Effect::Complete);
            match (effect.worker(), effect) {
                (_, Effect::Save(record)) => {
                    self.parts.apply(&record);
                    batch.saves.push(RunSave::Record(run, self.saved, record));
                    self.saved += 1;
                }
                (Some(worker), effect) => self.send_effect(worker, effect, batch),
                (None, _) => {}
            }
        }
    }

    /// Sends a decision to a worker, if a client attends as this worker.
    fn send_effect(&mut self, worker: WorkerId, effect: Effect, batch: &mut RunBatch) {
        let is_last = matches!(
            effect,
            Effect::Committed { .. } | Effect::Discard { .. } | Effect::NoMore { chunks: 0, .. }
        );
        let replies = if is_last {
            self.attending.remove(&worker)
        } else {
            self.attending.get(&worker).cloned()
        };
        batch.replies.extend(replies.map(|replies| (replies, RunReply::Effect(effect))));
    }
}
