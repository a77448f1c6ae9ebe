//! A dispatcher with one pool, its disk, the commands that it has started, and the batch system, on
//! one clock.

use std::collections::{BTreeMap, BTreeSet};

use eyas_faults::Dice;
use eyas_provision::{
    BatchJobId, FittingWork, NodeTraces, OutstandingWork, PoolConfig, PoolCounts, PoolDecider,
    PoolEffect, PoolEvent, PoolNodeState, PoolRequest, PoolStatus, RememberedRequest, RequestPhase,
    SavedPool, SubmissionAnswer, request_name,
};
use eyas_types::{ExecutorId, ProvisioningPolicy, Resources};

use crate::batch::{Batch, JobState, Node};

pub const SECOND_US: u64 = 1_000_000;
/// Faults happen until then.
const FAULTS_S: u64 = 1_200;
const TIME_LIMIT_S: u64 = 1_800;
/// Tasks must have their nodes within this time once the faults have ended. A request of several
/// nodes may keep the places of nodes that have died, for as long as its time limit.
const PATIENCE_S: u64 = 3 * TIME_LIMIT_S;
/// A removed pool must be gone within this time once the faults have ended: no job waits for its
/// time limit.
const REMOVAL_S: u64 = TIME_LIMIT_S / 2;
const ASK_EVERY_S: u64 = 10;
/// A command that has not answered by then is given up.
const COMMAND_DEADLINE_S: u64 = 60;
/// An answer takes up to this long.
const ANSWER_S: u64 = 5;
const POOL: &str = "mine";

/// Probabilities: for each submission, that its answer is lost, or not understood, that it is
/// refused, or taken late; for each answer, that it leaves a job out, or is missing; for each job,
/// that a withdrawal is lost, that its nodes hang or die; for each effect, that the dispatcher is
/// killed before it; for each second, that the cluster is stopped.
#[derive(Clone, Debug)]
pub struct Faults {
    pub lost: f64,
    pub garbage: f64,
    pub refused: f64,
    pub late: f64,
    pub unknown: f64,
    pub silent: f64,
    pub lost_withdrawal: f64,
    pub hangs: f64,
    pub dies: f64,
    pub killed: f64,
    pub stopped: f64,
}

/// A pool, and the faults of a run.
#[derive(Clone, Debug)]
pub struct Case {
    pub policy: ProvisioningPolicy,
    pub min_nodes: u32,
    pub max_nodes: u32,
    pub nodes_per_request: u32,
    pub backlog: u32,
    /// Tasks that a node runs at the same time.
    pub slots: u64,
    /// The longest time for which a job waits.
    pub starts_within_s: u64,
    /// Whether the user does not wait for tasks when the pool is removed.
    pub is_forced: bool,
    pub faults: Faults,
    pub seed: u64,
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub submitted: u64,
    pub joined: u64,
    pub killed: u64,
    pub stopped: u64,
    pub unclear: u64,
    pub found: u64,
    pub not_found: u64,
    /// Jobs that the batch system took after their command was given up.
    pub late: u64,
    pub lost_withdrawals: u64,
    /// Jobs that ended as they started, because no node of them was wanted.
    pub shut_out: u64,
    pub hung: u64,
    pub ended_us: u64,
}

/// A submission whose command waits for its turn, or has begun and has not reached the batch
/// system.
#[derive(Clone, Debug)]
struct Submission {
    name: String,
    request: u64,
    nodes: u32,
    has_begun: bool,
}

enum Next {
    /// The dispatcher reports its nodes and tasks.
    Report,
    Ask,
    /// The command of a submission has its turn.
    Begin(u64),
    /// The batch system takes a job; whether it answers at once.
    Take(u64),
    Start(u64),
    TimeLimit(u64),
    Die(u64),
    /// A command withdraws jobs.
    Withdraw(Vec<u64>),
    Tell(PoolEvent),
    Asked(Vec<PoolEvent>),
    StartAgain,
}

/// The files of the pool.
#[derive(Default)]
struct Disk {
    pool: Option<SavedPool>,
    requests: BTreeMap<u64, PoolRequest>,
    scripts: BTreeSet<u64>,
    access: BTreeSet<u64>,
}

struct World<'a> {
    case: &'a Case,
    dice: Dice,
    now_us: u64,
    /// What happens, by time, then in the order in which it was added; what ends with a life of
    /// the dispatcher has the number of that life.
    agenda: BTreeMap<(u64, u64), (Option<u64>, Next)>,
    added: u64,
    /// The dispatcher, while it runs.
    decider: Option<PoolDecider>,
    life: u64,
    is_asking: bool,
    draining: BTreeSet<u32>,
    executors: u32,
    disk: Disk,
    submissions: BTreeMap<u64, Submission>,
    names: BTreeSet<String>,
    batch: Batch,
    /// Tasks that wait or run.
    tasks: u64,
    has_faults: bool,
    is_removing: bool,
    /// The pool was removed, and is forgotten.
    is_gone: bool,
    outcome: Outcome,
}

impl Case {
    pub fn run(&self) -> Outcome {
        let mut world = World {
            case: self,
            dice: Dice::new(self.seed),
            now_us: SECOND_US,
            agenda: BTreeMap::new(),
            added: 0,
            decider: None,
            life: 0,
            is_asking: false,
            draining: BTreeSet::new(),
            executors: 0,
            disk: Disk::default(),
            submissions: BTreeMap::new(),
            names: BTreeSet::new(),
            batch: Batch::default(),
            tasks: 0,
            has_faults: true,
            is_removing: false,
            is_gone: false,
            outcome: Outcome::default(),
        };
        let counts = PoolCounts::default();
        world.disk.pool = Some(SavedPool { paused: None, is_closing: false, counts });
        world.start();
        world.later(0, Next::Report);
        world.later(0, Next::Ask);
        world.pass(FAULTS_S, |_| false);
        world.has_faults = false;
        world.tasks = 1 + world.dice.below(2 * self.slots * u64::from(self.max_nodes));
        assert!(
            world.pass(PATIENCE_S, World::is_satisfied),
            "{} tasks wait for ever: {}",
            world.tasks,
            world.story()
        );
        // The user removes the pool, while things fail again for a while.
        (world.is_removing, world.has_faults) = (true, true);
        world.pass(FAULTS_S / 4, |_| false);
        world.has_faults = false;
        assert!(
            world.pass(REMOVAL_S, World::is_removed),
            "something stays for ever: {}",
            world.story()
        );
        world.outcome.ended_us = world.now_us;
        world.outcome
    }

    fn config(&self, seed: u64) -> PoolConfig {
        PoolConfig {
            name: POOL.into(),
            seed,
            policy: self.policy,
            min_nodes: self.min_nodes,
            max_nodes: self.max_nodes,
            backlog: self.backlog,
            nodes_per_request: self.nodes_per_request,
            time_limit_us: TIME_LIMIT_S * SECOND_US,
            idle_timeout_us: 30 * SECOND_US,
            keep_us: 0,
            target_us: 10 * SECOND_US,
            join_timeout_us: 60 * SECOND_US,
            max_node_hours: None,
            max_cost: None,
            price: 0.0,
            labels: Default::default(),
            cpus: Some(self.slots as u32),
            memory_bytes: None,
            resources: Vec::new(),
        }
    }
}

impl World<'_> {
    fn later(&mut self, after_us: u64, next: Next) {
        self.add(after_us, None, next);
    }

    /// As [`later`](Self::later), unless the dispatcher ends before.
    fn later_in_life(&mut self, after_us: u64, next: Next) {
        self.add(after_us, Some(self.life), next);
    }

    fn add(&mut self, after_us: u64, life: Option<u64>, next: Next) {
        self.added += 1;
        self.agenda.insert((self.now_us + after_us, self.added), (life, next));
    }

    fn some_us(&mut self, most_s: u64) -> u64 {
        self.dice.below(most_s * SECOND_US)
    }

    fn fails(&mut self, of: fn(&Faults) -> f64) -> bool {
        self.has_faults && self.dice.happens(of(&self.case.faults))
    }

    /// Lets time pass until something is so, but no longer than that. Returns whether it is so.
    fn pass(&mut self, most_s: u64, is_so: fn(&Self) -> bool) -> bool {
        let until_us = self.now_us + most_s * SECOND_US;
        while !is_so(self) {
            let Some(((now_us, _), (life, next))) = self.agenda.pop_first() else { return false };
            if now_us > until_us {
                self.added += 1;
                self.agenda.insert((now_us, self.added), (life, next));
                self.now_us = until_us;
                return false;
            }
            self.now_us = now_us;
            if life.is_none_or(|life| life == self.life) {
                self.happen(next);
            }
            self.validate();
        }
        true
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Report => self.report(),
            Next::Ask => self.ask(),
            Next::Begin(number) => self.begin(number),
            Next::Take(number) => self.take(number),
            Next::Start(job) => self.start_job(job),
            Next::TimeLimit(job) => self.batch.end(self.now_us, job, "TIMEOUT", false),
            Next::Die(node) => self.batch.node_ends(self.now_us, node, true),
            Next::Withdraw(jobs) => self.withdraw(jobs),
            Next::Tell(event) => self.tell(event),
            Next::Asked(answers) => {
                self.is_asking = false;
                answers.into_iter().for_each(|answer| self.tell(answer));
            }
            Next::StartAgain => self.start(),
        }
    }

    // ---- the dispatcher

    fn start(&mut self) {
        if self.is_gone {
            return;
        }
        let saved = self.disk.pool.clone().expect("a pool is saved when it is added");
        let remembered = |(number, request): (&u64, &PoolRequest)| {
            let has_script = self.disk.scripts.contains(number);
            (*number, RememberedRequest { request: request.clone(), has_script })
        };
        let requests = self.disk.requests.iter().map(remembered).collect();
        let config = self.case.config(self.dice.next_u64());
        self.decider = Some(PoolDecider::new(self.now_us, config, saved, requests));
        (self.is_asking, self.draining) = (false, BTreeSet::new());
        // Nodes connect again, as other executors.
        for node in self.batch.nodes.values_mut().filter(|node| node.joins_us != u64::MAX) {
            self.executors += 1;
            node.executor = self.executors;
            node.joins_us = node.joins_us.max(self.now_us + self.dice.below(20 * SECOND_US));
        }
    }

    /// The dispatcher ends, and starts again after a while. Commands that have begun go on.
    fn die(&mut self) {
        self.decider = None;
        self.life += 1;
        self.submissions.retain(|_, submission| submission.has_begun);
        let after_us = SECOND_US + self.some_us(60);
        self.later(after_us, Next::StartAgain);
    }

    fn tell(&mut self, event: PoolEvent) {
        let Some(decider) = &mut self.decider else { return };
        let mut effects = Vec::new();
        decider.handle(self.now_us, event, &mut effects);
        for effect in effects {
            if self.fails(|faults| faults.killed) {
                self.outcome.killed += 1;
                return self.die();
            }
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: PoolEffect) {
        match effect {
            PoolEffect::SavePool(saved) => self.disk.pool = Some(saved),
            PoolEffect::SaveRequest { request, state } => {
                _ = self.disk.requests.insert(request, state)
            }
            PoolEffect::ShutOut { request } => _ = self.disk.access.remove(&request),
            PoolEffect::ForgetRequest { request } => {
                self.disk.requests.remove(&request);
                self.disk.scripts.remove(&request);
                self.disk.access.remove(&request);
            }
            PoolEffect::Submit { request, nodes, mark, excluded } => {
                assert!(excluded.is_empty(), "no host has failed");
                let saved = self.disk.requests.get(&request).map(|saved| &saved.mark);
                assert_eq!(saved, Some(&mark), "request {request} is submitted before it is saved");
                let next = self.disk.pool.as_ref().expect("it is there").counts.next_request;
                assert!(
                    next > request,
                    "request {request} is submitted, and its number may be used again"
                );
                let name = request_name(POOL, request, &mark);
                assert!(self.names.insert(name.clone()), "{name} is submitted twice");
                self.submissions
                    .insert(request, Submission { name, request, nodes, has_begun: false });
                self.outcome.submitted += 1;
                let turn_us = self.some_us(3);
                self.later_in_life(turn_us, Next::Begin(request));
            }
            PoolEffect::Withdraw(jobs) => {
                let jobs =
                    jobs.into_iter().map(|(_, job)| job.id.parse().expect("a number")).collect();
                let turn_us = self.some_us(3);
                self.later_in_life(turn_us, Next::Withdraw(jobs));
            }
            PoolEffect::Drain { node } => _ = self.draining.insert(node.0),
            PoolEffect::Release { node } => {
                let released = self
                    .batch
                    .nodes
                    .iter()
                    .find(|(_, of)| of.executor == node.0)
                    .map(|(id, _)| *id);
                released.into_iter().for_each(|id| self.batch.node_ends(self.now_us, id, false));
            }
            PoolEffect::Note(_) => {}
        }
    }

    /// Once a second: what users do, which nodes there are, and what work there is.
    fn report(&mut self) {
        self.later(SECOND_US, Next::Report);
        self.use_pool();
        let seen = self.seen();
        let waiting = self.tasks - seen.iter().map(|node| node.tasks).sum::<u64>();
        self.tell(PoolEvent::NodesSeen(seen));
        let fitting = FittingWork {
            fits: 1,
            tasks: waiting,
            cpus_milli: 1000 * waiting,
            ..FittingWork::default()
        };
        self.tell(PoolEvent::Work { fitting, measured: OutstandingWork::default() });
        let is_due = |decider: &PoolDecider| {
            decider.next_timeout().is_some_and(|due_us| due_us <= self.now_us)
        };
        if self.decider.as_ref().is_some_and(is_due) {
            self.tell(PoolEvent::TimePassed);
        }
        if self.decider.as_ref().is_some_and(PoolDecider::is_closed) {
            (self.decider, self.disk, self.is_gone) = (None, Disk::default(), true);
            self.life += 1;
        }
    }

    fn use_pool(&mut self) {
        if self.has_faults && !self.is_removing && self.dice.below(60) == 0 {
            self.tasks = self.dice.below(3)
                * self.dice.below(2 * self.case.slots * u64::from(self.case.max_nodes));
        }
        if self.fails(|faults| faults.stopped) && self.decider.is_some() {
            return self.stop();
        }
        let Some(status) = self.decider.as_ref().map(|decider| decider.status().clone()) else {
            return;
        };
        if self.is_removing && status != PoolStatus::Closing {
            self.tell(PoolEvent::StatusSet(PoolStatus::Closing));
            if self.case.is_forced {
                self.tell(PoolEvent::GivenUp);
            }
        } else if matches!(status, PoolStatus::Paused(_)) && self.dice.below(20) == 0 {
            self.tell(PoolEvent::StatusSet(PoolStatus::Active));
        } else if status == PoolStatus::Active && self.has_faults && self.dice.below(600) == 0 {
            self.tell(PoolEvent::StatusSet(PoolStatus::Paused("a user has paused it".into())));
        }
    }

    /// The nodes that are connected. Tasks of nodes that drain go on elsewhere.
    fn seen(&self) -> Vec<PoolNodeState> {
        let mut left = self.tasks;
        let connected = self.batch.nodes.iter().filter(|(_, node)| node.joins_us <= self.now_us);
        let state = |(id, node): (&u64, &Node)| {
            let is_draining = self.draining.contains(&node.executor);
            let tasks = if is_draining { 0 } else { left.min(self.case.slots) };
            left -= tasks;
            PoolNodeState {
                executor: ExecutorId(node.executor),
                name: format!("n{id}"),
                host: format!("host{id}"),
                incarnation: format!("process {id}"),
                pool: POOL.into(),
                request: node.request,
                left_us: None,
                capacity: Resources {
                    cpus_milli: 1000 * self.case.slots as u32,
                    ..Resources::default()
                },
                tasks,
                lacks_time: false,
                refill_us: 0,
                ended: 0,
                is_draining,
                is_emptied: is_draining,
            }
        };
        connected.map(state).collect()
    }

    /// The cluster stops, and starts again later. Its nodes stop. Nodes that start meanwhile find
    /// no dispatcher.
    fn stop(&mut self) {
        let life = self.life;
        self.submissions.retain(|_, submission| submission.has_begun);
        self.tell(PoolEvent::Stopping);
        if self.life != life {
            return;
        }
        self.outcome.stopped += 1;
        let Some(decider) = &self.decider else { return };
        let mut jobs: Vec<u64> = decider
            .jobs_without_nodes()
            .map(|(_, job)| job.id.parse().expect("a number"))
            .collect();
        let names =
            decider.unclear().map(|(number, request)| request_name(POOL, number, &request.mark));
        jobs.extend(names.filter_map(|name| self.batch.find(self.now_us, &name)));
        if !self.fails(|faults| faults.lost_withdrawal) {
            jobs.into_iter().for_each(|job| self.batch.end(self.now_us, job, "CANCELLED", false));
            self.tell(PoolEvent::AllWithdrawn);
        }
        for node in self.batch.nodes.keys().copied().collect::<Vec<_>>() {
            self.batch.node_ends(self.now_us, node, false);
        }
        if self.life == life {
            self.die();
        }
    }

    // ---- commands

    fn begin(&mut self, number: u64) {
        let Some(submission) = self.submissions.get_mut(&number) else { return };
        submission.has_begun = true;
        self.disk.access.insert(number);
        self.disk.scripts.insert(number);
        let answer_us = self.some_us(ANSWER_S);
        if self.fails(|faults| faults.refused) {
            self.submissions.remove(&number);
            let answer = SubmissionAnswer::Refused("invalid partition".into());
            return self.later_in_life(
                answer_us,
                Next::Tell(PoolEvent::Submitted { request: number, answer }),
            );
        }
        if self.fails(|faults| faults.lost) {
            self.outcome.unclear += 1;
            let answer = SubmissionAnswer::Unclear("no answer".into());
            let event = PoolEvent::Submitted { request: number, answer };
            self.later_in_life(COMMAND_DEADLINE_S * SECOND_US, Next::Tell(event));
            let is_late = self.fails(|faults| faults.late);
            self.outcome.late += u64::from(is_late);
            // Half of the others never reach the batch system.
            if !is_late && self.dice.below(2) == 0 {
                self.submissions.remove(&number);
                return;
            }
            let after_us = if is_late {
                COMMAND_DEADLINE_S * SECOND_US + self.some_us(300)
            } else {
                answer_us
            };
            return self.later(after_us, Next::Take(number));
        }
        // It has an answer, which reaches the dispatcher if that still lives.
        self.later(answer_us, Next::Take(number));
    }

    fn take(&mut self, number: u64) {
        let Some(Submission { name, request, nodes, .. }) = self.submissions.remove(&number) else {
            return;
        };
        let listed_us = self.now_us + if self.has_faults { self.some_us(15) } else { 0 };
        let job = self.batch.take(name, request, nodes, listed_us);
        // An answer that says that a job is not there comes before the job starts.
        let start_us = listed_us - self.now_us
            + 2 * ANSWER_S * SECOND_US
            + self.some_us(self.case.starts_within_s);
        self.later(start_us, Next::Start(job));
        let answer = if self.fails(|faults| faults.garbage) {
            self.outcome.unclear += 1;
            SubmissionAnswer::Unclear("welcome".into())
        } else {
            SubmissionAnswer::Accepted(id_of(job))
        };
        let is_waited_for = |decider: &PoolDecider| {
            decider
                .request_of(request)
                .is_some_and(|request| request.phase() == RequestPhase::Submitting)
        };
        if self.decider.as_ref().is_some_and(is_waited_for) && !self.is_given_up(request) {
            let answer_us = self.some_us(ANSWER_S);
            self.later_in_life(answer_us, Next::Tell(PoolEvent::Submitted { request, answer }));
        }
    }

    /// Whether the command of a submission will be given up, so that its answer is lost.
    fn is_given_up(&self, number: u64) -> bool {
        let is_it = |next: &Next| match next {
            Next::Tell(PoolEvent::Submitted { request, .. }) => *request == number,
            _ => false,
        };
        self.agenda.values().any(|(life, next)| *life == Some(self.life) && is_it(next))
    }

    fn withdraw(&mut self, jobs: Vec<u64>) {
        for job in jobs {
            if self.fails(|faults| faults.lost_withdrawal) {
                self.outcome.lost_withdrawals += 1;
            } else {
                self.batch.end(self.now_us, job, "CANCELLED", false);
            }
        }
    }

    fn ask(&mut self) {
        self.later(ASK_EVERY_S * SECOND_US, Next::Ask);
        let Some(decider) = self.decider.as_ref().filter(|_| !self.is_asking) else { return };
        let open: Vec<(u64, u64)> = decider
            .open_jobs()
            .map(|(number, job)| (number, job.id.parse().expect("a number")))
            .collect();
        let unclear: Vec<_> = decider
            .unclear()
            .map(|(number, request)| (number, request_name(POOL, number, &request.mark)))
            .collect();
        let mut answers = Vec::new();
        if self.fails(|faults| faults.silent) {
            answers.push(PoolEvent::StatesUnknown { why: "no answer".into() });
        } else {
            for (request, job) in open {
                let leaves_out = self.fails(|faults| faults.unknown);
                let report = self.batch.says(self.now_us, job, leaves_out).into();
                answers.push(PoolEvent::StateSeen {
                    request,
                    report,
                    traces: NodeTraces::default(),
                });
            }
            for (request, name) in unclear {
                answers.push(match self.batch.find(self.now_us, &name) {
                    Some(job) => {
                        self.outcome.found += 1;
                        PoolEvent::Found { request, job: id_of(job) }
                    }
                    None => {
                        self.outcome.not_found += 1;
                        PoolEvent::NotFound { request, traces: NodeTraces::default() }
                    }
                });
            }
        }
        self.is_asking = true;
        let answer_us = self.some_us(ANSWER_S);
        self.later_in_life(answer_us, Next::Asked(answers));
    }

    // ---- the batch system

    fn start_job(&mut self, id: u64) {
        let job = self.batch.jobs.get(&id).expect("it was taken");
        if job.state != JobState::Pending {
            return;
        }
        let (request, nodes) = (job.request, job.nodes);
        if !self.disk.access.contains(&request) {
            self.outcome.shut_out += 1;
            return self.batch.end(self.now_us, id, "FAILED", false);
        }
        self.batch.jobs.get_mut(&id).expect("it is there").state = JobState::Running;
        self.later(TIME_LIMIT_S * SECOND_US, Next::TimeLimit(id));
        let hangs = self.fails(|faults| faults.hangs);
        self.outcome.hung += u64::from(hangs);
        self.outcome.joined += if hangs { 0 } else { u64::from(nodes) };
        for _ in 0..nodes {
            self.executors += 1;
            let joins_us = if hangs { u64::MAX } else { self.now_us + self.some_us(8) };
            let node = u64::from(self.executors);
            self.batch
                .nodes
                .insert(node, Node { job: id, request, joins_us, executor: self.executors });
            if self.fails(|faults| faults.dies) {
                let dies_us = self.some_us(200);
                self.later(dies_us, Next::Die(node));
            }
        }
    }

    // ---- what must hold

    /// Nodes that a job has, or may have when it starts.
    fn nodes_of(&self, id: u64) -> u32 {
        let job = &self.batch.jobs[&id];
        match job.state {
            JobState::Pending if self.disk.access.contains(&job.request) => job.nodes,
            JobState::Running => self.batch.running(id),
            JobState::Pending | JobState::Ended { .. } => 0,
        }
    }

    fn validate(&self) {
        let mut nodes = BTreeMap::<u64, u32>::new();
        for (id, job) in &self.batch.jobs {
            *nodes.entry(job.request).or_default() += self.nodes_of(*id);
        }
        let may_start = |submission: &&Submission| {
            !submission.has_begun || self.disk.access.contains(&submission.request)
        };
        for submission in self.submissions.values().filter(may_start) {
            *nodes.entry(submission.request).or_default() += submission.nodes;
        }
        nodes.retain(|_, nodes| *nodes > 0);
        let all = nodes.values().sum::<u32>();
        assert!(
            all <= self.case.max_nodes,
            "{all} nodes are there or may start: {nodes:?}, {}",
            self.story()
        );
        let Some(decider) = &self.decider else { return };
        for number in nodes.keys() {
            let is_open = decider.request_of(*number).is_some_and(PoolRequest::is_open);
            assert!(
                is_open,
                "request {number} is over, and a node of it may come: {}",
                self.story()
            );
        }
    }

    fn is_satisfied(&self) -> bool {
        let nodes = self.seen();
        let staying = nodes.iter().filter(|node| !node.is_draining).count() as u32;
        let has_all = nodes.iter().map(|node| node.tasks).sum::<u64>() == self.tasks;
        self.decider.is_some() && (has_all || staying == self.case.max_nodes)
    }

    fn is_removed(&self) -> bool {
        let is_alive = self.batch.jobs.values().any(|job| job.is_alive());
        self.is_gone && !is_alive && self.submissions.is_empty()
    }

    /// What is known of the run, for a message.
    fn story(&self) -> String {
        let requests = self
            .decider
            .iter()
            .flat_map(PoolDecider::requests)
            .filter(|(_, request)| request.is_open());
        let jobs: BTreeMap<_, _> =
            self.batch.jobs.iter().filter(|(_, job)| job.is_alive()).collect();
        format!(
            "at {} s, jobs {jobs:?}, nodes {:?}, submissions {:?}, requests {:#?}, {:?}",
            self.now_us / SECOND_US,
            self.batch.nodes,
            self.submissions,
            requests.collect::<Vec<_>>(),
            self.case
        )
    }
}

fn id_of(job: u64) -> BatchJobId {
    BatchJobId { id: job.to_string(), cluster: None }
}
