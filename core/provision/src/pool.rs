//! The decider of a pool: its requests to a batch system, its nodes, its limits.
//!
//! [`PoolDecider`] drives a [`Provisioner`], which says how many nodes the work is worth, and
//! decides what becomes of each request: whether it is submitted, looked for, withdrawn, has failed
//! or is over. It is told what the batch system and the dispatcher report ([`PoolEvent`]), and says
//! what to run, to save and to tell the user ([`PoolEffect`]). What it saves is enough to go on
//! after the dispatcher was killed between any two effects.
//!
//! It must never read a clock or a file, run a command, or forget a request that the batch system
//! may have.

mod event;
mod explain;
mod hosts;
mod request;
mod requests;
mod share;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, Resources};

pub use self::event::{
    BatchEnd, BatchReport, BatchState, FittingWork, NodeShape, NodeTraces, PoolConfig, PoolCounts,
    PoolEffect, PoolEvent, PoolNodeState, PoolStatus, RememberedRequest, SavedPool,
    SubmissionAnswer,
};
pub use self::explain::NodeStanding;
pub use self::hosts::ExcludedHost;
use self::hosts::FailedHosts;
pub use self::request::{BatchJobId, MAX_UNKNOWN, PoolRequest, RequestPhase, request_name};
pub use self::requests::MAX_FAILURES;
pub use self::share::{PoolOffer, share_work};
use crate::event::{Config, Effect, Event, Mode, NodeRequestId, OutstandingWork};
use crate::provisioner::{MAX_REQUESTS, Provisioner};

/// A node is drained this long before its walltime ends, or a tenth of the walltime before, if that
/// is shorter.
const NOTICE_US: u64 = 120_000_000;
/// Part of the walltime that is the longest notice.
const NOTICE_PART: u64 = 10;
/// First pause after a request has failed.
const BACKOFF_US: u64 = 2_000_000;
/// Nodes that have left, of which a pool remembers why.
const MAX_DEPARTED: usize = 32;
/// Nodes that have left and may come back.
const MAX_LEFT: usize = 1024;
/// Node time is written to disk this often.
const SAVE_EVERY_US: u64 = 60_000_000;

const HOUR_S: f64 = 3600.0;

struct PoolNode {
    name: String,
    host: String,
    incarnation: String,
    request: u64,
    is_busy: bool,
    is_draining: bool,
    is_released: bool,
    idle_since_us: u64,
    /// When the batch system ends it.
    until_us: u64,
    /// Whether it is idle because no waiting task could end before that.
    lacks_time: bool,
    /// Why it leaves, once it is draining.
    leaves: Option<String>,
    /// How long it would take to fetch again what only it holds and tasks are going to read.
    refill_us: u64,
    /// Whether it was said why it stays although it is draining, or idle.
    is_explained: bool,
    /// Until when its time was added to the pool's.
    counted_us: u64,
    tasks: u64,
    ended: u64,
}

impl PoolNode {
    fn joined(now_us: u64, until_us: u64, state: &PoolNodeState) -> Self {
        PoolNode {
            name: state.name.clone(),
            host: state.host.clone(),
            incarnation: state.incarnation.clone(),
            request: state.request,
            is_busy: false,
            is_draining: false,
            is_released: false,
            idle_since_us: now_us,
            until_us,
            lacks_time: false,
            leaves: None,
            refill_us: 0,
            is_explained: false,
            counted_us: now_us,
            tasks: 0,
            ended: 0,
        }
    }
}

/// A node that has left a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DepartedNode {
    /// Name of its executor.
    pub name: String,
    /// Number of the request for which it was granted.
    pub request: u64,
    /// When it left, microseconds since 1970.
    pub at_us: u64,
    /// Why it left.
    pub why: String,
}

/// The decider of one pool: its requests, its nodes and its limits.
pub struct PoolDecider {
    config: PoolConfig,
    provisioner: Provisioner,
    status: PoolStatus,
    /// Whether the dispatcher has reported its nodes.
    has_begun: bool,
    requests: BTreeMap<u64, PoolRequest>,
    nodes: BTreeMap<ExecutorId, PoolNode>,
    /// Nodes that have left and may come back: the names of their processes and their former ids,
    /// the latest last.
    left: VecDeque<(String, ExecutorId)>,
    /// Resources that a node has reported.
    learned: Option<Resources>,
    counts: PoolCounts,
    /// Tasks that have ended on nodes that have left.
    ended_before: u64,
    failures_in_row: u32,
    last_failure: String,
    /// Why the batch system did not say the states of requests, when it was asked last.
    states_failure: Option<String>,
    /// Why a request could not be looked for, when that was tried last.
    look_failure: Option<String>,
    failed_hosts: FailedHosts,
    waiting: u64,
    /// Since when there has been no task that waits or runs.
    quiet_since_us: Option<u64>,
    /// The mean time of a task, microseconds; 0 while it is not known.
    task_us: u64,
    /// Nodes that left last, the latest last.
    departed: VecDeque<DepartedNode>,
    saved_us: u64,
}

impl PoolDecider {
    /// A pool without nodes, as it was saved last, with the requests that were saved. A new pool
    /// has saved nothing.
    pub fn new(
        now_us: u64,
        config: PoolConfig,
        saved: SavedPool,
        remembered: BTreeMap<u64, RememberedRequest>,
    ) -> Self {
        let SavedPool { paused, is_closing, counts } = saved;
        let status = match paused {
            _ if is_closing => PoolStatus::Closing,
            Some(why) => PoolStatus::Paused(why),
            None => PoolStatus::Active,
        };
        let mut provisioner = Provisioner::new(provisioner_config(&config));
        // Nothing is requested before the dispatcher has reported which nodes there are.
        provisioner.handle(now_us, Event::ModeSet(Mode::Paused), &mut Vec::new());
        let mut pool = PoolDecider {
            config,
            provisioner,
            status,
            has_begun: false,
            requests: BTreeMap::new(),
            nodes: BTreeMap::new(),
            left: VecDeque::new(),
            learned: None,
            counts,
            ended_before: 0,
            failures_in_row: 0,
            last_failure: String::new(),
            states_failure: None,
            look_failure: None,
            failed_hosts: FailedHosts::default(),
            waiting: 0,
            quiet_since_us: None,
            task_us: 0,
            departed: VecDeque::new(),
            saved_us: now_us,
        };
        pool.remember(now_us, remembered);
        pool
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    ///
    /// # Panics
    /// If the event contradicts earlier ones.
    pub fn handle(&mut self, now_us: u64, event: PoolEvent, effects: &mut Vec<PoolEffect>) {
        match event {
            PoolEvent::NodesSeen(seen) => self.see_nodes(now_us, &seen, effects),
            PoolEvent::Work { fitting, measured } => {
                self.see_work(now_us, &fitting, measured, effects)
            }
            PoolEvent::Submitted { request, answer } => {
                self.submitted(now_us, request, answer, effects)
            }
            PoolEvent::HostsFailed(hosts) => self.pass_over(now_us, hosts, effects),
            PoolEvent::StateSeen { request, report, traces } => {
                self.see_state(now_us, request, report, traces, effects);
            }
            PoolEvent::Found { request, job } => self.found(now_us, request, job, effects),
            PoolEvent::NotFound { request, traces } => {
                self.not_found(now_us, request, traces, effects)
            }
            PoolEvent::LookFailed { request, why, traces } => {
                self.look_failed(now_us, request, &why, traces, effects);
            }
            PoolEvent::StatesUnknown { why } => self.states_unknown(&why, effects),
            PoolEvent::StatusSet(status) => self.set_status(now_us, status, effects),
            PoolEvent::GivenUp => self.give_up(effects),
            PoolEvent::Stopping => self.unwant_all(now_us, effects),
            PoolEvent::AllWithdrawn => self.end_all(now_us, effects),
            PoolEvent::TimePassed => self.tell(now_us, Event::TimePassed, effects),
        }
    }

    /// What is to be on disk of the pool.
    pub fn saved(&self) -> SavedPool {
        let paused = match &self.status {
            PoolStatus::Paused(why) => Some(why.clone()),
            _ => None,
        };
        SavedPool { paused, is_closing: self.status == PoolStatus::Closing, counts: self.counts }
    }

    fn save(&self, effects: &mut Vec<PoolEffect>) {
        effects.push(PoolEffect::SavePool(self.saved()));
    }

    /// Whether the pool requests nodes.
    pub fn status(&self) -> &PoolStatus {
        &self.status
    }

    /// What the pool has done.
    pub fn counts(&self) -> PoolCounts {
        self.counts
    }

    /// Number of tasks that wait and fit the pool's nodes.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Number of nodes that are connected.
    pub fn nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Number of connected nodes that are given no more tasks.
    pub fn draining(&self) -> u32 {
        self.nodes.values().filter(|node| node.is_draining).count() as u32
    }

    /// Nodes that left last, the latest last.
    pub fn departed(&self) -> impl Iterator<Item = &DepartedNode> {
        self.departed.iter()
    }

    /// The decider of how many nodes there should be.
    pub fn provisioner(&self) -> &Provisioner {
        &self.provisioner
    }

    /// The time at which [`PoolEvent::TimePassed`] must be reported, if nothing else happens
    /// before, microseconds since 1970.
    pub fn next_timeout(&self) -> Option<u64> {
        self.provisioner.next_timeout()
    }

    // ---- the provisioner

    fn tell(&mut self, now_us: u64, event: Event, effects: &mut Vec<PoolEffect>) {
        let (mut said, mut submissions) = (Vec::new(), Vec::new());
        self.provisioner.handle(now_us, event, &mut said);
        for effect in said {
            match effect {
                Effect::Request { request, nodes, .. } => {
                    submissions.push(self.request(now_us, request.0, nodes, effects));
                }
                Effect::Withdraw { request } => self.withdraw(now_us, request.0, effects),
                Effect::Drain { node } => self.drain(now_us, node, effects),
                Effect::Release { node } => self.release(node, effects),
            }
        }
        // The pool is saved for all new requests together, before one of them is submitted.
        if !submissions.is_empty() {
            self.save(effects);
            effects.append(&mut submissions);
            self.forget_ended(effects);
        }
    }

    fn drain(&mut self, now_us: u64, id: ExecutorId, effects: &mut Vec<PoolEffect>) {
        let Some(why) = self.nodes.get(&id).map(|node| self.why_drained(now_us, node)) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        effects.push(PoolEffect::Note(format!(
            "node {} gets no more tasks and leaves: {why}",
            node.name
        )));
        (node.is_draining, node.leaves, node.is_explained) = (true, Some(why), false);
        effects.push(PoolEffect::Drain { node: id });
    }

    fn release(&mut self, id: ExecutorId, effects: &mut Vec<PoolEffect>) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_released = true;
            self.counts.nodes_given_back += 1;
            effects.push(PoolEffect::Release { node: id });
        }
    }

    /// A node whose time ends within this time gets no more tasks: a task that takes as long as
    /// others must be able to end there.
    fn notice_us(&self) -> u64 {
        notice_us(&self.config).max(2 * self.task_us).min(self.config.time_limit_us / 2)
    }

    // ---- the cluster

    /// The nodes that the pool can get.
    pub fn shape(&self) -> NodeShape {
        let config = &self.config;
        let of_options = config.cpus.map(|cpus| Resources {
            cpus_milli: cpus.saturating_mul(1000),
            memory_bytes: config.memory_bytes.unwrap_or(u64::MAX),
            disk_bytes: u64::MAX,
            named: config.resources.clone(),
        });
        NodeShape {
            capacity: self.learned.clone().or(of_options),
            labels: config.labels.clone(),
            time_limit_us: config.time_limit_us,
        }
    }

    /// Number of tasks of one processor that a node can run at the same time.
    fn slots(&self) -> u64 {
        self.shape().capacity.map_or(1, |capacity| u64::from(capacity.cpus_milli / 1000).max(1))
    }

    /// Whether the pool can have more nodes than it has now, and its last request has not failed.
    pub fn can_grow(&self, now_us: u64) -> bool {
        self.status == PoolStatus::Active
            && self.failures_in_row == 0
            && self.provisioner.staying()
                + self.provisioner.requested()
                + self.provisioner.withdrawn()
                < self.config.max_nodes
            && self.provisioner.not_before_us() <= now_us
    }

    fn see_nodes(&mut self, now_us: u64, seen: &[PoolNodeState], effects: &mut Vec<PoolEffect>) {
        let here: BTreeSet<_> = seen.iter().map(|node| node.executor).collect();
        let gone: Vec<_> = self.nodes.keys().filter(|id| !here.contains(id)).copied().collect();
        for id in gone {
            self.node_left(now_us, id, effects);
        }
        for node in seen {
            if !self.nodes.contains_key(&node.executor) {
                self.node_joined(now_us, node, effects);
            }
            self.see_node(now_us, node, effects);
        }
        if !core::mem::replace(&mut self.has_begun, true) {
            self.tell(now_us, Event::ModeSet(mode_of(&self.status)), effects);
        }
        self.check_limits(now_us, effects);
    }

    fn node_joined(&mut self, now_us: u64, state: &PoolNodeState, effects: &mut Vec<PoolEffect>) {
        let was = self.left.iter().position(|(incarnation, _)| *incarnation == state.incarnation);
        let was = was.and_then(|index| self.left.remove(index)).map(|(_, id)| id);
        let until_us = now_us + state.left_us.unwrap_or(self.config.time_limit_us);
        self.nodes.insert(state.executor, PoolNode::joined(now_us, until_us, state));
        self.failures_in_row = 0;
        let host = self.requests.get(&state.request).and_then(|request| request.host.as_deref());
        self.failed_hosts.joined(host.or(Some(&state.host)));
        self.count_joined(now_us, state.request, was.is_some(), effects);
        if self.learned.is_none() {
            self.learned = Some(state.capacity.clone());
            let slots = u32::try_from(self.slots()).unwrap_or(u32::MAX);
            self.tell(now_us, Event::SlotsLearned(slots), effects);
        }
        let text =
            format!("node {} on {} joined for request {}", state.name, state.host, state.request);
        effects.push(PoolEffect::Note(text));
        let request = Some(NodeRequestId(state.request));
        self.tell(now_us, Event::NodeJoined { node: state.executor, request, was }, effects);
    }

    fn see_node(&mut self, now_us: u64, state: &PoolNodeState, effects: &mut Vec<PoolEffect>) {
        let id = state.executor;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        self.counts.node_seconds += now_us.saturating_sub(node.counted_us) as f64 / 1e6;
        node.counted_us = now_us;
        (node.tasks, node.ended) = (state.tasks, state.ended);
        let refill_us = state.refill_us.min(self.config.keep_us);
        let is_refill_new = core::mem::replace(&mut node.refill_us, refill_us) != refill_us;
        let is_busy = state.tasks > 0;
        if core::mem::replace(&mut node.is_busy, is_busy) != is_busy {
            (node.idle_since_us, node.is_explained) = (now_us, false);
            let event =
                if is_busy { Event::NodeBusy { node: id } } else { Event::NodeIdle { node: id } };
            self.tell(now_us, event, effects);
        }
        if !is_busy && is_refill_new {
            self.tell(now_us, Event::NodeHolds { node: id, refill_us }, effects);
        }
        self.explain_idle(now_us, id, effects);
        let notice_us = self.notice_us();
        let half_us = self.config.time_limit_us / 2;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // A younger node would be followed by one that hardly has more time.
        let lacks_time = state.lacks_time && node.until_us <= now_us + half_us;
        node.lacks_time = lacks_time;
        // Whether it must be replaced is known with the next report of the work.
        let is_newly_idle = !is_busy && node.idle_since_us == now_us;
        if node.is_draining
            && state.is_draining
            && state.tasks == 0
            && !state.is_emptied
            && !node.is_explained
        {
            node.is_explained = true;
            let text = format!(
                "node {} stays until other nodes have the objects that only it holds",
                node.name
            );
            effects.push(PoolEffect::Note(text));
        } else if node.is_draining && !node.is_released && state.is_draining && state.is_emptied {
            self.tell(now_us, Event::NodeEmptied { node: id }, effects);
        } else if !node.is_draining
            && !is_newly_idle
            && (node.until_us <= now_us + notice_us || lacks_time)
        {
            self.tell(now_us, Event::NodeExpires { node: id }, effects);
        }
    }

    fn node_left(&mut self, now_us: u64, id: ExecutorId, effects: &mut Vec<PoolEffect>) {
        let Some(node) = self.nodes.remove(&id) else { return };
        self.counts.node_seconds += now_us.saturating_sub(node.counted_us) as f64 / 1e6;
        self.ended_before += node.ended;
        // It joined while the batch system ended its request, which was withdrawn.
        let is_withdrawn = self.requests.get(&node.request).is_some_and(PoolRequest::is_withdrawn);
        if is_withdrawn && !node.is_released {
            self.counts.nodes_given_back += 1;
        }
        let how = if node.is_released || is_withdrawn { "was given back" } else { "is gone" };
        effects.push(PoolEffect::Note(format!(
            "node {} of request {} {how}",
            node.name, node.request
        )));
        if self.departed.len() == MAX_DEPARTED {
            self.departed.pop_front();
        }
        let otherwise = match is_withdrawn {
            true => "its request was withdrawn",
            false => "its connection was lost: the batch system or its host ended it",
        };
        let why = node.leaves.unwrap_or_else(|| otherwise.into());
        self.departed.push_back(DepartedNode {
            name: node.name,
            request: node.request,
            at_us: now_us,
            why,
        });
        if !node.is_released {
            if self.left.len() == MAX_LEFT {
                self.left.pop_front();
            }
            self.left.push_back((node.incarnation, id));
        }
        if let Some(request) = self.requests.get_mut(&node.request) {
            request.present = request.present.saturating_sub(1);
            if request.present == 0 {
                request.waits_since_us = Some(now_us);
            }
        }
        self.save(effects);
        self.tell(now_us, Event::NodeLeft { node: id }, effects);
    }

    fn see_work(
        &mut self,
        now_us: u64,
        fitting: &FittingWork,
        measured: OutstandingWork,
        effects: &mut Vec<PoolEffect>,
    ) {
        self.waiting = fitting.tasks;
        self.task_us = measured.task_us;
        let slots = self.slots();
        let waiting = self.slots_wanted(fitting, slots);
        let staying = self.nodes.values().filter(|node| !node.is_draining);
        let running = staying.map(|node| node.tasks.min(slots)).sum::<u64>();
        let ended = self.ended_before + self.nodes.values().map(|node| node.ended).sum::<u64>();
        let work =
            OutstandingWork { waiting, running, arrived: ended + running + waiting, ..measured };
        self.tell(now_us, Event::Work(work), effects);
        if waiting + running > 0 {
            self.quiet_since_us = None;
        } else if now_us >= *self.quiet_since_us.get_or_insert(now_us) + self.config.idle_timeout_us
        {
            self.tell(now_us, Event::ArrivalsEnded, effects);
        }
        if now_us >= self.saved_us + SAVE_EVERY_US && !self.nodes.is_empty() {
            self.saved_us = now_us;
            self.save(effects);
        }
    }

    /// The slots that waiting tasks are worth, by the resource that is scarcest.
    fn slots_wanted(&self, fitting: &FittingWork, slots: u64) -> u64 {
        let shape = self.shape().capacity;
        let by_cpus = fitting.cpus_milli.div_ceil(1000);
        // The slots of as many nodes as have enough of another resource.
        let slots_for = |needed: u64, of_node: u64| {
            (u128::from(needed) * u128::from(slots)).div_ceil(u128::from(of_node.max(1))) as u64
        };
        let by_others = shape.as_ref().map_or(0, |shape| {
            let named = fitting
                .named
                .iter()
                .map(|(name, needed)| slots_for(*needed, shape.amount_of(name)));
            named.fold(slots_for(fitting.memory_bytes, shape.memory_bytes), u64::max)
        });
        let waiting = by_cpus.max(by_others).max(u64::from(fitting.tasks > 0));
        // What a node can run is known once the first node has joined. Until then one node is
        // enough.
        if shape.is_none() { waiting.min(slots) } else { waiting }
    }

    // ---- limits

    /// What the pool's nodes have cost.
    pub fn cost(&self) -> f64 {
        self.counts.node_seconds / HOUR_S * self.config.price
    }

    /// Which limit of node time or cost was reached.
    fn reached_limit(&self) -> Option<String> {
        let hours = self.counts.node_seconds / HOUR_S;
        let of_time = self.config.max_node_hours.filter(|most| hours >= *most);
        let of_cost = self.config.max_cost.filter(|most| self.cost() >= *most);
        let time =
            of_time.map(|most| format!("its nodes have used {hours:.2} of {most} node-hours"));
        time.or_else(|| {
            of_cost.map(|most| format!("its nodes have cost {:.2} of {most}", self.cost()))
        })
    }

    fn check_limits(&mut self, now_us: u64, effects: &mut Vec<PoolEffect>) {
        if self.status != PoolStatus::Active {
            return;
        }
        if let Some(why) = self.reached_limit() {
            effects.push(PoolEffect::Note(format!("the pool gives back its nodes: {why}")));
            self.set_status(now_us, PoolStatus::Capped(why), effects);
        }
    }

    /// A pool that is being removed stays so.
    fn set_status(&mut self, now_us: u64, status: PoolStatus, effects: &mut Vec<PoolEffect>) {
        if self.status == PoolStatus::Closing {
            return;
        }
        let mode = mode_of(&status);
        if status == PoolStatus::Active {
            self.failures_in_row = 0;
            self.failed_hosts.clear();
        }
        self.status = status;
        self.save(effects);
        self.tell(now_us, Event::ModeSet(mode), effects);
    }

    /// Whether a pool that is being removed has no node and no request left.
    pub fn is_closed(&self) -> bool {
        self.status == PoolStatus::Closing
            && self.nodes.is_empty()
            && self.requests.values().all(PoolRequest::is_over)
    }

    /// Ends everything at once: tasks on the pool's nodes run again elsewhere.
    fn give_up(&mut self, effects: &mut Vec<PoolEffect>) {
        effects.extend(self.nodes.keys().map(|node| PoolEffect::Release { node: *node }));
        let jobs: Vec<_> = self.open_jobs().map(|(number, job)| (number, job.clone())).collect();
        if !jobs.is_empty() {
            effects.push(PoolEffect::Withdraw(jobs));
        }
    }
}

fn mode_of(status: &PoolStatus) -> Mode {
    match status {
        PoolStatus::Active => Mode::Active,
        PoolStatus::Paused(_) => Mode::Paused,
        PoolStatus::Capped(_) | PoolStatus::Closing => Mode::Closed,
    }
}

fn notice_us(config: &PoolConfig) -> u64 {
    NOTICE_US.min(config.time_limit_us / NOTICE_PART)
}

fn provisioner_config(config: &PoolConfig) -> Config {
    Config {
        policy: config.policy,
        min_nodes: config.min_nodes.min(config.max_nodes),
        max_nodes: config.max_nodes,
        backlog: (config.backlog as usize).clamp(1, MAX_REQUESTS),
        nodes_per_request: config.nodes_per_request.max(1),
        slots: config.cpus.unwrap_or(1).max(1),
        walltime_us: config.time_limit_us.max(1),
        notice_us: notice_us(config),
        idle_us: config.idle_timeout_us.max(1),
        keep_us: config.keep_us,
        target_us: config.target_us.max(1),
        backoff_us: BACKOFF_US,
        ..Config::default()
    }
}
