//! One pool: its options, the decider that says how many nodes it should have, its requests and its nodes.
//!
//! It does no I/O but writing its own small files: what is to be done is returned as [`PoolAction`]s.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use eyas_provision::{Config, Effect, Event, MAX_REQUESTS, Mode, NodeRequestId, OutstandingWork, Provisioner};
use eyas_types::{ExecutorId, Resources, units};
use eyas_wire::pool::PoolOptions;
use eyas_wire::view::pool::{DepartedNodeView, PoolEventView};

use crate::batch_command::BatchError;
use crate::cluster::{FittingWork, NodeShape, PoolNodeState, PoolOrder};
use crate::request::{BatchJob, HOST_FILE, MAX_UNKNOWN, PoolRequest, RequestPhase, RequestPlan, SCRIPT};
use crate::store::{PoolCounts, PoolFolder, StoredPool};
use crate::systems::{BatchReport, BatchState, BatchSystem, Submission};
use hosts::FailedHosts;
pub(crate) use requests::TRIED_MARK;

mod hosts;
mod requests;
#[cfg(test)]
pub(crate) mod tests;
mod views;

/// A node is drained this long before its walltime ends, or a tenth of the walltime before, if that is shorter.
const NOTICE_US: u64 = 120_000_000;
/// Part of the walltime that is the longest notice.
const NOTICE_PART: u64 = 10;
/// Requests that failed in a row before the pool is paused.
const MAX_FAILURES: u32 = 5;
/// First pause after a request has failed.
const BACKOFF_US: u64 = 2_000_000;
/// Things that happened, which a pool remembers.
const MAX_EVENTS: usize = 64;
/// Nodes that have left, of which a pool remembers why.
const MAX_DEPARTED: usize = 32;
/// Ended requests whose folders are kept.
const MAX_ENDED: usize = 32;
/// Nodes that have left and may come back.
const MAX_LEFT: usize = 1024;
/// Node time is written to disk this often.
const SAVE_EVERY_US: u64 = 60_000_000;

const HOUR_S: f64 = 3600.0;

/// What the owner is to do for a pool.
#[derive(Debug)]
pub(crate) enum PoolAction {
    Submit(RequestPlan),
    Withdraw(Vec<BatchJob>),
    Order(PoolOrder),
}

/// Whether the pool requests nodes, and why not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PoolStatus {
    Active,
    Paused(String),
    /// A limit of node time or cost was reached.
    Capped(String),
    /// The pool is being removed.
    Closing,
}

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

pub(crate) struct Pool {
    pub name: String,
    pub options: Arc<PoolOptions>,
    pub system: Arc<dyn BatchSystem>,
    folder: PoolFolder,
    eyas: std::path::PathBuf,
    provisioner: Provisioner,
    status: PoolStatus,
    /// Whether the dispatcher has reported its nodes.
    has_begun: bool,
    requests: BTreeMap<u64, PoolRequest>,
    nodes: BTreeMap<ExecutorId, PoolNode>,
    /// Nodes that have left and may come back: the names of their processes and their former ids, the latest last.
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
    failed_hosts: FailedHosts,
    waiting: u64,
    /// Since when there has been no task that waits or runs.
    quiet_since_us: Option<u64>,
    /// The mean time of a task, microseconds; 0 while it is not known.
    task_us: u64,
    events: VecDeque<PoolEventView>,
    /// Nodes that left last, the latest last.
    departed: VecDeque<DepartedNodeView>,
    saved_us: u64,
}

impl Pool {
    /// A new pool, which is on disk when this returns.
    pub fn add(
        pools: &Path,
        name: &str,
        options: PoolOptions,
        system: Arc<dyn BatchSystem>,
        eyas: &Path,
        now_us: u64,
    ) -> Result<Self, BatchError> {
        let stored = StoredPool { paused: None, is_closing: false, counts: PoolCounts::default(), options };
        let pool = Pool::new(PoolFolder::of(pools, name), name, stored, system, eyas, now_us);
        pool.folder.save(&pool.stored())?;
        Ok(pool)
    }

    /// A pool that is on disk, with its requests.
    pub fn load(
        pools: &Path,
        name: &str,
        stored: StoredPool,
        system: Arc<dyn BatchSystem>,
        eyas: &Path,
        now_us: u64,
    ) -> Self {
        let mut pool = Pool::new(PoolFolder::of(pools, name), name, stored, system, eyas, now_us);
        pool.take_up_requests(now_us);
        pool
    }

    fn new(
        folder: PoolFolder,
        name: &str,
        stored: StoredPool,
        system: Arc<dyn BatchSystem>,
        eyas: &Path,
        now_us: u64,
    ) -> Self {
        let StoredPool { paused, is_closing, counts, options } = stored;
        let status = match paused {
            _ if is_closing => PoolStatus::Closing,
            Some(why) => PoolStatus::Paused(why),
            None => PoolStatus::Active,
        };
        let mut provisioner = Provisioner::new(config(&options));
        // Nothing is requested before the dispatcher has reported which nodes there are.
        provisioner.handle(now_us, Event::ModeSet(Mode::Paused), &mut Vec::new());
        Pool {
            name: name.into(),
            options: Arc::new(options),
            system,
            folder,
            eyas: eyas.into(),
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
            failed_hosts: FailedHosts::default(),
            waiting: 0,
            quiet_since_us: None,
            task_us: 0,
            events: VecDeque::new(),
            departed: VecDeque::new(),
            saved_us: now_us,
        }
    }

    fn stored(&self) -> StoredPool {
        let paused = match &self.status {
            PoolStatus::Paused(why) => Some(why.clone()),
            _ => None,
        };
        let is_closing = self.status == PoolStatus::Closing;
        StoredPool { paused, is_closing, counts: self.counts, options: (*self.options).clone() }
    }

    /// Writes options and counts. An error is logged: the pool goes on in memory.
    pub fn save(&self) {
        if let Err(why) = self.folder.save(&self.stored()) {
            tracing::error!("pool {} is not kept on disk: {why}", self.name);
        }
    }

    pub fn folder(&self) -> &PoolFolder {
        &self.folder
    }

    pub fn status(&self) -> &PoolStatus {
        &self.status
    }

    fn note(&mut self, now_us: u64, text: String) {
        tracing::info!(pool = self.name, "{text}");
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(PoolEventView { unix_ms: now_us / 1000, text });
    }

    // ---- the decider

    /// When something may be due, microseconds since 1970.
    pub fn next_timeout(&self) -> Option<u64> {
        self.provisioner.next_timeout()
    }

    pub fn tell(&mut self, now_us: u64, event: Event, actions: &mut Vec<PoolAction>) {
        let mut effects = Vec::new();
        self.provisioner.handle(now_us, event, &mut effects);
        let are_requests_made = effects.iter().any(|effect| matches!(effect, Effect::Request { .. }));
        for effect in effects {
            match effect {
                Effect::Request { request, nodes, .. } => self.request(now_us, request.0, nodes, actions),
                Effect::Withdraw { request } => self.withdraw(now_us, request.0, actions),
                Effect::Drain { node } => self.drain(now_us, node, actions),
                Effect::Release { node } => self.release(node, actions),
            }
        }
        // A file is written for all new requests together, before one of them is submitted.
        if are_requests_made {
            self.save();
            self.forget_ended();
        }
    }

    fn drain(&mut self, now_us: u64, id: ExecutorId, actions: &mut Vec<PoolAction>) {
        let notice_us = self.notice_us();
        let is_leaving = matches!(self.status, PoolStatus::Closing | PoolStatus::Capped(_));
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.is_draining = true;
        let idle_us = if node.is_busy { 0 } else { now_us.saturating_sub(node.idle_since_us) };
        let why = if is_leaving {
            "the pool gives back its nodes".into()
        } else if node.until_us <= now_us + notice_us {
            "its time limit nearly ends".into()
        } else if node.lacks_time {
            "its time limit ends before the waiting tasks could end".into()
        } else if idle_us >= self.options.idle_timeout_us {
            format!("it had no task for {}", units::format_duration_us(idle_us))
        } else {
            "fewer nodes are enough for the work".into()
        };
        let text = format!("node {} gets no more tasks and leaves: {why}", node.name);
        (node.leaves, node.is_explained) = (Some(why), false);
        self.note(now_us, text);
        actions.push(PoolAction::Order(PoolOrder::Drain { executor: id }));
    }

    fn release(&mut self, id: ExecutorId, actions: &mut Vec<PoolAction>) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_released = true;
            self.counts.nodes_given_back += 1;
            actions.push(PoolAction::Order(PoolOrder::Release { executor: id }));
        }
    }

    /// A node whose time ends within this time gets no more tasks: a task that takes as long as others must be able to
    /// end there.
    fn notice_us(&self) -> u64 {
        notice_us(&self.options).max(2 * self.task_us).min(self.options.time_limit_us / 2)
    }

    // ---- the cluster

    /// The nodes that the pool can get.
    pub fn shape(&self) -> NodeShape {
        let options = &self.options;
        let of_options = options.cpus.map(|cpus| Resources {
            cpus_milli: cpus.saturating_mul(1000),
            memory_bytes: options.memory_bytes.unwrap_or(u64::MAX),
            disk_bytes: u64::MAX,
            named: options.resources.clone(),
        });
        NodeShape {
            capacity: self.learned.clone().or(of_options),
            labels: options.labels.clone(),
            time_limit_us: options.time_limit_us,
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
            && self.provisioner.staying() + self.provisioner.requested() < self.options.max_nodes
            && self.provisioner.not_before_us() <= now_us
    }

    /// Takes note of the nodes of the pool that are connected now.
    pub fn see_nodes(&mut self, now_us: u64, seen: &[&PoolNodeState], actions: &mut Vec<PoolAction>) {
        let here: BTreeSet<_> = seen.iter().map(|node| node.executor).collect();
        let gone: Vec<_> = self.nodes.keys().filter(|id| !here.contains(id)).copied().collect();
        for id in gone {
            self.node_left(now_us, id, actions);
        }
        for node in seen {
            if !self.nodes.contains_key(&node.executor) {
                self.node_joined(now_us, node, actions);
            }
            self.see_node(now_us, node, actions);
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.tell(now_us, Event::ModeSet(mode_of(&self.status)), actions);
        }
        self.check_limits(now_us, actions);
    }

    fn node_joined(&mut self, now_us: u64, state: &PoolNodeState, actions: &mut Vec<PoolAction>) {
        let was = self.left.iter().position(|(incarnation, _)| *incarnation == state.incarnation);
        let was = was.and_then(|place| self.left.remove(place)).map(|(_, id)| id);
        let until_us = now_us + state.left_us.unwrap_or(self.options.time_limit_us);
        let node = PoolNode {
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
        };
        self.nodes.insert(state.executor, node);
        self.failures_in_row = 0;
        let host = self.requests.get(&state.request).and_then(|request| request.host.as_deref());
        self.failed_hosts.joined(host.or(Some(&state.host)));
        if let Some(request) = self.requests.get_mut(&state.request) {
            request.present += 1;
            if was.is_none() && request.joined < request.nodes {
                request.joined += 1;
                self.counts.nodes_granted += 1;
            }
            // The batch system is asked seconds later.
            if request.phase == RequestPhase::Pending {
                (request.phase, request.says) = (RequestPhase::Running, None);
            }
            self.save_request(state.request);
        }
        if self.learned.is_none() {
            self.learned = Some(state.capacity.clone());
            let slots = u32::try_from(self.slots()).unwrap_or(u32::MAX);
            self.tell(now_us, Event::SlotsLearned(slots), actions);
        }
        let text = format!("node {} on {} joined for request {}", state.name, state.host, state.request);
        self.note(now_us, text);
        let request = Some(NodeRequestId(state.request));
        self.tell(now_us, Event::NodeJoined { node: state.executor, request, was }, actions);
    }

    fn see_node(&mut self, now_us: u64, state: &PoolNodeState, actions: &mut Vec<PoolAction>) {
        let id = state.executor;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        self.counts.node_seconds += now_us.saturating_sub(node.counted_us) as f64 / 1e6;
        node.counted_us = now_us;
        (node.tasks, node.ended) = (state.tasks, state.ended);
        let refill_us = state.refill_us.min(self.options.keep_us);
        let is_refill_new = std::mem::replace(&mut node.refill_us, refill_us) != refill_us;
        let is_busy = state.tasks > 0;
        if std::mem::replace(&mut node.is_busy, is_busy) != is_busy {
            (node.idle_since_us, node.is_explained) = (now_us, false);
            self.tell(
                now_us,
                if is_busy { Event::NodeBusy { node: id } } else { Event::NodeIdle { node: id } },
                actions,
            );
        }
        if !is_busy && is_refill_new {
            self.tell(now_us, Event::NodeHolds { node: id, refill_us }, actions);
        }
        self.explain_idle(now_us, id);
        let notice_us = self.notice_us();
        let half_us = self.options.time_limit_us / 2;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // A younger node would be followed by one that hardly has more time.
        let lacks_time = state.lacks_time && node.until_us <= now_us + half_us;
        node.lacks_time = lacks_time;
        // Whether it must be replaced is known with the next report of the work.
        let is_newly_idle = !is_busy && node.idle_since_us == now_us;
        if node.is_draining && state.is_draining && state.tasks == 0 && !state.is_emptied && !node.is_explained {
            node.is_explained = true;
            let text = format!("node {} stays until other nodes have the objects that only it holds", node.name);
            self.note(now_us, text);
        } else if node.is_draining && !node.is_released && state.is_draining && state.is_emptied {
            self.tell(now_us, Event::NodeEmptied { node: id }, actions);
        } else if !node.is_draining && !is_newly_idle && (node.until_us <= now_us + notice_us || lacks_time) {
            self.tell(now_us, Event::NodeExpires { node: id }, actions);
        }
    }

    fn node_left(&mut self, now_us: u64, id: ExecutorId, actions: &mut Vec<PoolAction>) {
        let Some(node) = self.nodes.remove(&id) else { return };
        self.counts.node_seconds += now_us.saturating_sub(node.counted_us) as f64 / 1e6;
        self.ended_before += node.ended;
        // It joined while the batch system ended its request, which was withdrawn.
        let is_withdrawn = self.requests.get(&node.request).is_some_and(|request| request.is_withdrawn);
        if is_withdrawn && !node.is_released {
            self.counts.nodes_given_back += 1;
        }
        let how = if node.is_released || is_withdrawn { "was given back" } else { "is gone" };
        self.note(now_us, format!("node {} of request {} {how}", node.name, node.request));
        if self.departed.len() == MAX_DEPARTED {
            self.departed.pop_front();
        }
        let otherwise = match is_withdrawn {
            true => "its request was withdrawn",
            false => "its connection was lost: the batch system or its host ended it",
        };
        let why = node.leaves.unwrap_or_else(|| otherwise.into());
        let (name, request, unix_ms) = (node.name, node.request, now_us / 1000);
        self.departed.push_back(DepartedNodeView { node: name, request, unix_ms, why });
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
        self.save();
        self.tell(now_us, Event::NodeLeft { node: id }, actions);
    }

    /// Tells the decider how much work there is for this pool.
    pub fn see_work(
        &mut self,
        now_us: u64,
        fitting: FittingWork,
        measured: OutstandingWork,
        actions: &mut Vec<PoolAction>,
    ) {
        self.waiting = fitting.tasks;
        self.task_us = measured.task_us;
        let shape = self.shape().capacity;
        let slots = self.slots();
        let by_cpus = fitting.cpus_milli.div_ceil(1000);
        // The slots of as many nodes as have enough of another resource.
        let slots_for = |needed: u64, of_node: u64| {
            (u128::from(needed) * u128::from(slots)).div_ceil(u128::from(of_node.max(1))) as u64
        };
        let by_others = shape.as_ref().map_or(0, |shape| {
            let named = fitting.named.iter().map(|(name, needed)| slots_for(*needed, shape.amount_of(name)));
            named.fold(slots_for(fitting.memory_bytes, shape.memory_bytes), u64::max)
        });
        let mut waiting = by_cpus.max(by_others).max(u64::from(fitting.tasks > 0));
        if shape.is_none() {
            // What a node can run is known once the first node has joined. Until then one node is enough.
            waiting = waiting.min(slots);
        }
        let staying = self.nodes.values().filter(|node| !node.is_draining);
        let running = staying.map(|node| node.tasks.min(slots)).sum::<u64>();
        let ended = self.ended_before + self.nodes.values().map(|node| node.ended).sum::<u64>();
        let work = OutstandingWork { waiting, running, arrived: ended + running + waiting, ..measured };
        self.tell(now_us, Event::Work(work), actions);
        if waiting + running > 0 {
            self.quiet_since_us = None;
        } else if now_us >= *self.quiet_since_us.get_or_insert(now_us) + self.options.idle_timeout_us {
            self.tell(now_us, Event::ArrivalsEnded, actions);
        }
        if now_us >= self.saved_us + SAVE_EVERY_US && !self.nodes.is_empty() {
            self.saved_us = now_us;
            self.save();
        }
    }

    // ---- limits

    fn cost(&self) -> f64 {
        self.counts.node_seconds / HOUR_S * self.options.price
    }

    /// Which limit of node time or cost was reached.
    fn reached_limit(&self) -> Option<String> {
        let hours = self.counts.node_seconds / HOUR_S;
        let of_time = self.options.max_node_hours.filter(|most| hours >= *most);
        let of_cost = self.options.max_cost.filter(|most| self.cost() >= *most);
        let time = of_time.map(|most| format!("its nodes have used {hours:.2} of {most} node-hours"));
        time.or_else(|| of_cost.map(|most| format!("its nodes have cost {:.2} of {most}", self.cost())))
    }

    fn check_limits(&mut self, now_us: u64, actions: &mut Vec<PoolAction>) {
        if self.status != PoolStatus::Active {
            return;
        }
        if let Some(why) = self.reached_limit() {
            self.note(now_us, format!("the pool gives back its nodes: {why}"));
            self.set_status(now_us, PoolStatus::Capped(why), actions);
        }
    }

    /// Changes whether the pool requests nodes.
    pub fn set_status(&mut self, now_us: u64, status: PoolStatus, actions: &mut Vec<PoolAction>) {
        let mode = mode_of(&status);
        if status == PoolStatus::Active {
            self.failures_in_row = 0;
            self.failed_hosts.clear();
        }
        self.status = status;
        self.save();
        self.tell(now_us, Event::ModeSet(mode), actions);
    }

    /// Whether a pool that is being removed has no node and no request left.
    pub fn is_closed(&self) -> bool {
        self.status == PoolStatus::Closing && self.nodes.is_empty() && self.requests.values().all(PoolRequest::is_over)
    }

    /// The executors of the pool.
    pub fn executors(&self) -> impl Iterator<Item = ExecutorId> {
        self.nodes.keys().copied()
    }
}

fn mode_of(status: &PoolStatus) -> Mode {
    match status {
        PoolStatus::Active => Mode::Active,
        PoolStatus::Paused(_) => Mode::Paused,
        PoolStatus::Capped(_) | PoolStatus::Closing => Mode::Closed,
    }
}

fn notice_us(options: &PoolOptions) -> u64 {
    NOTICE_US.min(options.time_limit_us / NOTICE_PART)
}

fn config(options: &PoolOptions) -> Config {
    Config {
        policy: options.policy,
        min_nodes: options.min_nodes.min(options.max_nodes),
        max_nodes: options.max_nodes,
        backlog: (options.backlog as usize).clamp(1, MAX_REQUESTS),
        nodes_per_request: options.nodes_per_request.max(1),
        slots: options.cpus.unwrap_or(1).max(1),
        walltime_us: options.time_limit_us.max(1),
        notice_us: notice_us(options),
        idle_us: options.idle_timeout_us.max(1),
        keep_us: options.keep_us,
        target_us: options.target_us.max(1),
        backoff_us: BACKOFF_US,
        ..Config::default()
    }
}
