//! Runs: jobs over the blocks of files, as far as a node leads them (elastic-blocks §2.5).
//!
//! A run is led where the first of its files is. One thread has the deciders of all runs; workers tell it what happens, and
//! who *attends* a run as one of its workers is told what that one is to do. What a run must not forget is in the node's
//! database, so that it goes on where it was when the node's process is started again. It is nowhere else: when the node is
//! gone for good, so is the run, and whoever waits for it sees that nobody leads it any more.

pub(crate) mod abandoned;
mod parts;
mod spec;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use eyas_blocks::{Blocks, Config, Effect, Event, Record, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;

use crate::database::{Database, DatabaseError, RunSave};
use parts::Parts;
pub use parts::{Part, RunStatus};
pub use spec::{RunId, RunPlace, RunSpec};

/// Replies to one request that were not sent yet; further ones are lost, and are asked for again.
pub(crate) const MAX_WAITING_REPLIES: usize = 64;

/// Runs that a node leads at a time.
const MAX_RUNS: usize = 1024;

/// The thread looks that often at least whether it is time for something.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Runs whose folders are to be emptied; those of further ones stay until somebody removes them.
pub(crate) const MAX_ABANDONED: usize = MAX_RUNS;

/// What the thread was told and has not heard; further words are lost, and said again.
pub(crate) const MAX_TOLD: usize = 1 << 16;

/// What was told meanwhile is decided together.
const MAX_TOGETHER: usize = 4096;

/// What a client wants of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RunRequest {
    /// Lead it; again is all right. Answered by [`RunReply::Opened`].
    Open(Box<RunSpec>),
    /// Answered by [`RunReply::Spec`].
    Spec,
    /// Be told what this worker is to do. Answered by [`RunReply::Attending`], and from then on by [`RunReply::Effect`].
    Attend(WorkerId),
    /// Answered by [`RunReply::Status`].
    Status,
    /// Forget it. Answered by [`RunReply::Closed`].
    Close,
}

/// See [`RunRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RunReply {
    /// Or why not, for a person.
    Opened(Result<(), String>),
    Spec(Box<RunSpec>),
    Attending,
    Effect(Effect),
    Status(RunStatus),
    Closed,
    /// There is no such run.
    Unknown,
}

/// What the thread is told.
pub(crate) enum Told {
    Asked { run: RunId, request: RunRequest, replies: Sender<RunReply> },
    Event { run: RunId, event: Event },
    End,
}

/// All runs of a node.
pub(crate) struct Runs {
    database: Arc<Database>,
    told: mpsc::Receiver<Told>,
    runs: BTreeMap<RunId, Run>,
    /// Counts the starts of this node, so that leases of this one are newer than those of earlier ones.
    epoch: u32,
    /// Of `now_us`.
    began: Instant,
    /// Who is told of runs that nobody has need of any more.
    abandoned: Sender<RunId>,
}

struct Run {
    spec: Arc<RunSpec>,
    blocks: Blocks,
    parts: Parts,
    attending: HashMap<WorkerId, Sender<RunReply>>,
    /// Records saved so far.
    saved: u64,
    heard: Instant,
}

/// What comes of what was told together.
#[derive(Default)]
struct Turn {
    saves: Vec<RunSave>,
    /// Whether that has to be on disk before anything is said.
    is_promised: bool,
    replies: Vec<(Sender<RunReply>, RunReply)>,
}

impl Runs {
    /// The runs that the database knows.
    pub fn open(
        database: Arc<Database>,
        told: mpsc::Receiver<Told>,
        abandoned: Sender<RunId>,
    ) -> Result<Self, DatabaseError> {
        let epoch = database.next_epoch()?;
        let mut runs = BTreeMap::new();
        for (run, spec, records) in database.runs()? {
            runs.insert(run, Run::new(Arc::new(spec), epoch, records, 0));
        }
        Ok(Runs { database, told, runs, epoch, began: Instant::now(), abandoned })
    }

    /// Leads them until it is to end, or nobody can tell it anything any more.
    pub fn live(mut self) -> Result<(), DatabaseError> {
        loop {
            let first = match self.told.recv_timeout(self.due()) {
                Ok(told) => Some(told),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let more: Vec<_> = self.told.try_iter().take(MAX_TOGETHER).collect();
            let mut turn = Turn::default();
            for told in first.into_iter().chain(more) {
                match told {
                    Told::Asked { run, request, replies } => self.asked(run, request, replies, &mut turn),
                    Told::Event { run, event } => {
                        let now_us = self.now_us();
                        if let Some(state) = self.runs.get_mut(&run) {
                            state.heard = Instant::now();
                            state.handle(run, now_us, event, &mut turn);
                        }
                    }
                    Told::End => return Ok(()),
                }
            }
            self.pass_time(&mut turn);
            self.database.save_runs(&turn.saves, turn.is_promised)?;
            for (replies, reply) in turn.replies {
                // Who has gone needs no answer; who is slow asks again.
                let _ = replies.try_send(reply);
            }
        }
    }

    fn asked(&mut self, run: RunId, request: RunRequest, replies: Sender<RunReply>, turn: &mut Turn) {
        if let RunRequest::Open(spec) = request {
            let opened = self.lead(run, *spec, turn);
            turn.replies.push((replies, RunReply::Opened(opened)));
            return;
        }
        let Some(state) = self.runs.get_mut(&run) else {
            turn.replies.push((replies, RunReply::Unknown));
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
            RunRequest::Status => RunReply::Status(state.parts.status(&state.blocks)),
            RunRequest::Close => {
                self.forget(run, turn);
                RunReply::Closed
            }
        };
        turn.replies.push((replies, reply));
    }

    fn lead(&mut self, run: RunId, spec: RunSpec, turn: &mut Turn) -> Result<(), String> {
        if self.runs.contains_key(&run) {
            return Ok(());
        }
        if self.runs.len() >= MAX_RUNS {
            return Err(format!("this node leads {MAX_RUNS} jobs over blocks already: wait until some have ended"));
        }
        spec.check()?;
        let spec = Arc::new(spec);
        turn.saves.push(RunSave::Spec(run, spec.clone()));
        turn.is_promised = true;
        self.runs.insert(run, Run::new(spec, self.epoch, Vec::new(), self.now_us()));
        Ok(())
    }

    /// Tells deciders that it is time, and forgets runs that nobody has need of.
    fn pass_time(&mut self, turn: &mut Turn) {
        let now_us = self.now_us();
        for (run, state) in &mut self.runs {
            if state.blocks.next_timeout().is_some_and(|due_us| due_us <= now_us) {
                state.handle(*run, now_us, Event::Tick, turn);
            }
        }
        let idle: Vec<_> = self.runs.iter().filter(|(_, state)| state.idle_in().is_zero()).collect();
        let idle: Vec<_> = idle.into_iter().map(|(run, _)| *run).collect();
        for run in idle {
            tracing::info!(%run, "nobody asks for a run any more; forgotten");
            self.forget(run, turn);
            let _ = self.abandoned.try_send(run);
        }
    }

    fn forget(&mut self, run: RunId, turn: &mut Turn) {
        let attending = self.runs.remove(&run).map(|state| state.attending).unwrap_or_default();
        turn.replies.extend(attending.into_values().map(|replies| (replies, RunReply::Unknown)));
        turn.saves.push(RunSave::Forget(run));
    }

    /// How long until it is time for something.
    fn due(&self) -> Duration {
        let now_us = self.now_us();
        let timeout = |due_us: u64| Duration::from_micros(due_us.saturating_sub(now_us));
        let due = |state: &Run| state.blocks.next_timeout().map_or(LOOK_EVERY, timeout).min(state.idle_in());
        self.runs.values().map(due).min().unwrap_or(LOOK_EVERY)
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

impl Run {
    fn new(spec: Arc<RunSpec>, epoch: u32, records: Vec<Record>, now_us: u64) -> Self {
        let slots = spec.slots.iter().map(|node| (*node, None)).collect();
        let config = Config { term_us: spec.term_us, ..Config::new(spec.policy, slots) };
        let mut parts = Parts::default();
        records.iter().for_each(|record| parts.apply(record));
        let saved = records.len() as u64;
        let chunks = spec.chunks().map(|(_, _, chunk)| (chunk.size_bytes, &chunk.replicas[..]));
        let blocks = Blocks::new(config, chunks, epoch, records, now_us);
        Run { blocks, parts, attending: HashMap::new(), saved, heard: Instant::now(), spec }
    }

    /// How long until nobody has said anything of it for too long.
    fn idle_in(&self) -> Duration {
        self.spec.idle.saturating_sub(self.heard.elapsed())
    }

    fn handle(&mut self, run: RunId, now_us: u64, event: Event, turn: &mut Turn) {
        let mut effects = Vec::new();
        self.blocks.handle(now_us, event, &mut effects);
        for effect in effects {
            turn.is_promised |= matches!(effect, Effect::Committed { .. } | Effect::Complete);
            match (effect.worker(), effect) {
                (_, Effect::Save(record)) => {
                    self.parts.apply(&record);
                    turn.saves.push(RunSave::Record(run, self.saved, record));
                    self.saved += 1;
                }
                (Some(worker), effect) => self.say(worker, effect, turn),
                (None, _) => {}
            }
        }
    }

    /// Tells a worker, if it attends.
    fn say(&mut self, worker: WorkerId, effect: Effect, turn: &mut Turn) {
        let is_last =
            matches!(effect, Effect::Committed { .. } | Effect::Discard { .. } | Effect::NoMore { chunks: 0, .. });
        let replies = match is_last {
            true => self.attending.remove(&worker),
            false => self.attending.get(&worker).cloned(),
        };
        turn.replies.extend(replies.map(|replies| (replies, RunReply::Effect(effect))));
    }
}
