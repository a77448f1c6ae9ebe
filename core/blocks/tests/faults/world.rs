//! A leader, workers that read at their speeds, and messages between them, on one clock.

use std::collections::{BTreeMap, BTreeSet};

use eyas_blocks::{
    BlockPolicy, Blocks, Config, Effect, Event, LeaseId, Record, WorkerBlock, WorkerId,
};
use eyas_faults::Dice;
use eyas_types::dfs::NodeId;

pub const SECOND: u64 = 1_000_000;
/// A worker is given up when it was silent for this time.
const TERM_US: u64 = 6 * SECOND;
/// A job that has not ended by this time never does.
const LIMIT_US: u64 = 10_000 * SECOND;

/// The faults, and how often they happen.
#[derive(Clone, Debug)]
pub struct Faults {
    /// After this time nothing fails, so that the job ends.
    pub until_us: u64,
    /// Longest delay of a message; without faults, at least half of it.
    pub delay_us: u64,
    /// Fractions of messages that are lost or repeated.
    pub lost: f64,
    pub repeated: f64,
    /// Fractions of steps of a worker, two for each chunk, in which it dies or stalls.
    pub died: f64,
    pub stalled: f64,
    /// Mean time between restarts of the leader.
    pub leader_us: u64,
}

impl Faults {
    pub const NONE: Faults = Faults {
        until_us: 0,
        delay_us: 0,
        lost: 0.0,
        repeated: 0.0,
        died: 0.0,
        stalled: 0.0,
        leader_us: u64::MAX,
    };
}

/// A job, its workers, and the faults.
#[derive(Clone, Debug)]
pub struct Case {
    pub policy: BlockPolicy,
    pub steal: bool,
    pub speculate: bool,
    /// Whether the leader knows the speeds in advance.
    pub is_known: bool,
    pub window_us: u64,
    /// The rate of each slot, bytes per second. Each slot is on a node of its own.
    pub speeds: Vec<u64>,
    pub sizes_bytes: Vec<u64>,
    pub replication: usize,
    pub faults: Faults,
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub makespan_us: u64,
    pub restarts: u64,
    pub lost_records: u64,
    /// Number of workers that were told that their work does not count.
    pub given_up: u64,
    /// Number of those that had asked to commit.
    pub late_commits: u64,
    pub split: u64,
    pub copied: u64,
}

impl Case {
    pub fn run(&self) -> Outcome {
        let mut world = World::new(self);
        while !world.is_over() {
            let ((now_us, _), next) =
                world.agenda.pop_first().expect("a job that is not complete goes on");
            assert!(now_us < LIMIT_US, "{} chunks are committed: {self:?}", world.counted.len());
            world.now_us = now_us;
            world.happen(next);
        }
        assert_eq!(world.counted.len(), self.sizes_bytes.len(), "{self:?}");
        world.outcome.makespan_us = world.now_us;
        world.outcome
    }

    fn leader(&self, epoch: u32, records: &[Record], now_us: u64) -> Blocks {
        let nodes: Vec<_> = (0..self.speeds.len() as u64).map(NodeId).collect();
        let slots = nodes
            .iter()
            .zip(&self.speeds)
            .map(|(node, speed)| (*node, self.is_known.then_some(*speed)));
        let config = Config {
            steal: self.steal,
            speculate: self.speculate,
            term_us: TERM_US,
            window_us: self.window_us,
            ..Config::new(self.policy, slots.collect())
        };
        // Replicas of a chunk are on neighbouring nodes.
        let twice = nodes.repeat(2);
        let replicas = |chunk| &twice[chunk % nodes.len()..][..self.replication.min(nodes.len())];
        let chunks =
            self.sizes_bytes.iter().enumerate().map(|(chunk, size)| (*size, replicas(chunk)));
        Blocks::new(config, chunks, epoch, records.iter().cloned(), now_us)
    }
}

enum Next {
    ToLeader(Event),
    ToWorker(WorkerId, Effect),
    /// The leader's timer, set in this epoch.
    Timer(u32),
    /// The leader crashes and restarts.
    Crash,
    Restart,
    /// A worker has read half of a chunk.
    Step(WorkerId),
    /// A worker sends a heartbeat.
    Beat(WorkerId),
    /// A stalled worker continues.
    Resume(WorkerId),
    /// A slot gets a new worker.
    Start(usize),
}

struct Worker {
    owner: WorkerBlock,
    slot: usize,
    is_reading: bool,
    is_half: bool,
    is_stalled: bool,
    has_ended: bool,
}

struct World<'a> {
    case: &'a Case,
    dice: Dice,
    now_us: u64,
    /// Events by time, and by order of arrival at the same time.
    agenda: BTreeMap<(u64, u64), Next>,
    arrivals: u64,
    leader: Option<Blocks>,
    epoch: u32,
    timer_us: Option<u64>,
    saved: Vec<Record>,
    /// Number of saved records that are durable.
    synced: usize,
    workers: BTreeMap<WorkerId, Worker>,
    started: u64,
    /// The chunks that each run that asked to commit has read.
    read: BTreeMap<(WorkerId, LeaseId), Vec<u32>>,
    committed: BTreeSet<WorkerId>,
    /// Chunks of committed runs.
    counted: BTreeSet<u32>,
    outcome: Outcome,
}

impl<'a> World<'a> {
    fn new(case: &'a Case) -> Self {
        let mut world = World {
            case,
            dice: Dice::new(case.seed),
            now_us: 0,
            agenda: BTreeMap::new(),
            arrivals: 0,
            leader: Some(case.leader(1, &[], 0)),
            epoch: 1,
            timer_us: None,
            saved: Vec::new(),
            synced: 0,
            workers: BTreeMap::new(),
            started: 0,
            read: BTreeMap::new(),
            committed: BTreeSet::new(),
            counted: BTreeSet::new(),
            outcome: Outcome::default(),
        };
        (0..case.speeds.len()).for_each(|slot| world.after(0, Next::Start(slot)));
        world.crash_later();
        world
    }

    fn is_over(&self) -> bool {
        self.leader.as_ref().is_some_and(Blocks::is_complete)
    }

    fn after(&mut self, us: u64, next: Next) {
        self.arrivals += 1;
        self.agenda.insert((self.now_us + us, self.arrivals), next);
    }

    fn is_faulty(&self) -> bool {
        self.now_us < self.case.faults.until_us
    }

    fn fails(&mut self, probability: f64) -> bool {
        self.is_faulty() && self.dice.happens(probability)
    }

    /// Sends a message, loses it, or sends it twice, each time with its own delay.
    fn send(&mut self, message: impl Fn() -> Next) {
        let Faults { delay_us, lost, repeated, .. } = self.case.faults;
        let copies = if self.fails(lost) { 0 } else { 1 + u32::from(self.fails(repeated)) };
        for _ in 0..copies {
            let delay_us =
                if self.is_faulty() { self.dice.below(delay_us) } else { delay_us.min(1_000) };
            self.after(delay_us, message());
        }
    }

    fn crash_later(&mut self) {
        if self.is_faulty() && self.case.faults.leader_us < u64::MAX {
            let after_us = self.dice.below(2 * self.case.faults.leader_us);
            self.after(after_us, Next::Crash);
        }
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::ToLeader(event) => self.lead(event),
            Next::ToWorker(worker, effect) => self.tell(worker, &effect),
            Next::Timer(epoch) => {
                if epoch == self.epoch && self.timer_us == Some(self.now_us) {
                    self.timer_us = None;
                    self.lead(Event::Tick);
                }
            }
            Next::Crash => {
                self.leader = None;
                let kept = self.synced
                    + self.dice.below((self.saved.len() - self.synced) as u64 + 1) as usize;
                self.outcome.lost_records += (self.saved.len() - kept) as u64;
                self.saved.truncate(kept);
                self.after(SECOND, Next::Restart);
            }
            Next::Restart => {
                self.epoch += 1;
                self.outcome.restarts += 1;
                self.timer_us = None;
                self.synced = self.saved.len();
                self.leader = Some(self.case.leader(self.epoch, &self.saved, self.now_us));
                self.lead(Event::Tick);
                self.crash_later();
            }
            Next::Step(worker) => self.step(worker),
            Next::Beat(worker) => self.beat(worker),
            Next::Resume(worker) => {
                if let Some(state) = self.workers.get_mut(&worker) {
                    state.is_stalled = false;
                    self.drive(worker);
                }
            }
            Next::Start(slot) => self.start(slot),
        }
    }

    // ---- the leader

    fn lead(&mut self, event: Event) {
        let Some(leader) = &mut self.leader else { return };
        let mut effects = Vec::new();
        leader.handle(self.now_us, event, &mut effects);
        if self.case.faults.until_us > 0 {
            leader.validate();
        }
        let timer_us = leader.next_timeout();
        assert!(timer_us.is_none_or(|timer_us| timer_us > self.now_us), "it has just looked");
        if let Some(timer_us) = timer_us.filter(|timer_us| Some(*timer_us) != self.timer_us) {
            self.timer_us = Some(timer_us);
            self.after(timer_us - self.now_us, Next::Timer(self.epoch));
        }
        for effect in effects {
            let worker = match &effect {
                Effect::Save(record) => {
                    self.outcome.split += u64::from(matches!(record, Record::Shortened { .. }));
                    self.outcome.copied +=
                        u64::from(matches!(record, Record::Granted { copy_of: Some(_), .. }));
                    self.saved.push(record.clone());
                    continue;
                }
                Effect::Complete => {
                    self.synced = self.saved.len();
                    continue;
                }
                Effect::Committed { worker, lease } => {
                    self.synced = self.saved.len();
                    self.count(*worker, *lease);
                    *worker
                }
                Effect::Granted { worker, .. }
                | Effect::Renewed { worker, .. }
                | Effect::NoMore { worker, .. }
                | Effect::Discard { worker } => *worker,
            };
            self.send(|| Next::ToWorker(worker, effect.clone()));
        }
    }

    /// The chunks that a committed run has read count.
    fn count(&mut self, worker: WorkerId, lease: LeaseId) {
        if self.committed.insert(worker) {
            for chunk in &self.read[&(worker, lease)] {
                assert!(self.counted.insert(*chunk), "chunk {chunk} counts twice: {:?}", self.case);
            }
        }
    }

    // ---- workers

    fn start(&mut self, slot: usize) {
        self.started += 1;
        let worker = WorkerId(self.started);
        let owner = WorkerBlock::new(worker, NodeId(slot as u64));
        let state = Worker {
            owner,
            slot,
            is_reading: false,
            is_half: false,
            is_stalled: false,
            has_ended: false,
        };
        self.workers.insert(worker, state);
        self.after(TERM_US / 4, Next::Beat(worker));
        self.drive(worker);
    }

    /// A worker is gone; its slot gets another one.
    fn end(&mut self, worker: WorkerId, after_us: u64) {
        let slot = self.workers.remove(&worker).expect("a worker that ends was known").slot;
        self.after(after_us, Next::Start(slot));
    }

    fn tell(&mut self, worker: WorkerId, effect: &Effect) {
        let Some(state) = self.workers.get_mut(&worker) else { return };
        if state.is_stalled {
            // Its node is cut off from the network.
            return;
        }
        state.owner.told(effect);
        match effect {
            Effect::Discard { .. } => {
                self.outcome.given_up += 1;
                self.outcome.late_commits += u64::from(state.has_ended);
                self.end(worker, 1_000);
            }
            Effect::Committed { .. } => self.end(worker, 1_000),
            Effect::NoMore { chunks: 0, .. } => self.end(worker, SECOND),
            _ => self.drive(worker),
        }
    }

    /// Lets a worker do what it can, and ask for what it needs.
    fn drive(&mut self, worker: WorkerId) {
        let Some(state) = self.workers.get_mut(&worker).filter(|state| !state.is_stalled) else {
            return;
        };
        if !state.is_reading
            && let Some(chunk) = state.owner.current()
        {
            state.is_reading = true;
            let half_us =
                self.case.sizes_bytes[chunk as usize] * SECOND / 2 / self.case.speeds[state.slot];
            self.after(half_us.max(1), Next::Step(worker));
        }
        let state = self.workers.get_mut(&worker).expect("it is still there");
        if state.owner.is_at_end() {
            self.commit(worker);
        } else if let Some(event) = state.owner.request() {
            self.send(|| Next::ToLeader(event.clone()));
        }
    }

    fn step(&mut self, worker: WorkerId) {
        let Faults { died, stalled, .. } = self.case.faults;
        let [dies, stalls] = [died, stalled].map(|share| self.fails(share));
        let after_us = self.dice.below(4 * TERM_US);
        let Some(state) = self.workers.get_mut(&worker) else { return };
        state.is_reading = false;
        if dies {
            self.end(worker, after_us);
            if after_us.is_multiple_of(2) {
                self.send(|| Next::ToLeader(Event::Gone { worker }));
            }
            return;
        }
        let chunk = state.owner.current().expect("what was confirmed stays so");
        state.owner.read(self.case.sizes_bytes[chunk as usize] / 2);
        state.is_half = !state.is_half;
        if !state.is_half {
            state.owner.end_chunk();
        }
        if stalls {
            state.is_stalled = true;
            self.after(after_us, Next::Resume(worker));
        }
        self.drive(worker);
    }

    fn beat(&mut self, worker: WorkerId) {
        let Some(state) = self.workers.get(&worker) else { return };
        let event =
            if state.has_ended { state.owner.commit() } else { Some(state.owner.heartbeat()) };
        if let Some(event) = event.filter(|_| !state.is_stalled) {
            self.send(|| Next::ToLeader(event.clone()));
        }
        self.after(TERM_US / 4, Next::Beat(worker));
    }

    fn commit(&mut self, worker: WorkerId) {
        let state = self.workers.get_mut(&worker).expect("a worker that commits is known");
        state.has_ended = true;
        let event = state.owner.commit().expect("a worker that has read chunks has a lease");
        let Event::Commit { lease, done, .. } = event else { unreachable!("it commits") };
        assert_eq!(done as usize, state.owner.chunks().len());
        self.read.insert((worker, lease), state.owner.chunks().to_vec());
        self.send(|| Next::ToLeader(event.clone()));
    }
}
