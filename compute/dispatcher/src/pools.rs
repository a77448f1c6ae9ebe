//! The core's side of pools: it publishes how much work there is for them and how their nodes are,
//! and says what follows from their orders.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use eyas_jobs::{Job, Jobs, Phase};
use eyas_pools::{ClusterState, FittingWork, NodeShape, PoolNodeState, PoolOrder, PoolsHandle};
use eyas_provision::{OutstandingWork, WorkMeter};
use eyas_sched::{Event, NodeOutline, Scheduler};
use eyas_types::{ExecutorId, Need, ObjectId, Origin, Outcome, Status};
use eyas_wire::view::pool::PoolView;
use tokio::sync::watch;

use crate::executors::ConnectedExecutors;

/// Time between two reports to the pools, and the shortest time, when nodes join or leave or tasks
/// begin to wait.
const REPORT_EVERY_US: u64 = 1_000_000;
const REPORT_PAUSE_US: u64 = 50_000;
/// Rate of a node's link, which is not measured: a gigabit Ethernet's.
const LINK_BYTES_PER_S: f64 = 125e6;

/// Tasks that are looked at for what nodes without tasks are kept for.
const MAX_TASKS_READ: usize = 20_000;

/// What the core knows of pools.
pub(crate) struct CorePools {
    /// `None` in tests of the core.
    handle: Option<PoolsHandle>,
    state: watch::Sender<ClusterState>,
    version: u64,
    /// Nodes that pools could get.
    outlines: Vec<NodeOutline>,
    /// The longest time limit of pools. Tasks that run for longer count for no pool.
    most_time_us: u64,
    /// Executors that get no more tasks.
    draining: BTreeSet<ExecutorId>,
    meter: WorkMeter,
    reported_us: u64,
    /// Whether something has happened that pools should know soon.
    is_news: bool,
    /// Whether tasks waited when pools were told last.
    had_waiting: bool,
    /// Whether any task had not started then.
    had_work: bool,
    /// Whether pools had nodes then.
    had_nodes: bool,
    /// Whether the scheduler was told then that an executor ends at a known time.
    had_limits: bool,
}

/// What follows from an order of the pools.
pub(crate) enum AfterOrder {
    Nothing,
    /// An executor gets no more tasks, and others fetch what only it has.
    Drain(ExecutorId),
    /// An executor leaves once its tasks have ended.
    Release(ExecutorId),
}

/// The state of the cluster, from which a report to the pools is made.
pub(crate) struct ReportedCluster<'a> {
    pub jobs: &'a Jobs,
    pub scheduler: &'a Scheduler,
    pub executors: &'a ConnectedExecutors,
}

impl CorePools {
    pub fn new() -> Self {
        CorePools {
            handle: None,
            state: watch::Sender::new(ClusterState::default()),
            version: 0,
            outlines: Vec::new(),
            most_time_us: 0,
            draining: BTreeSet::new(),
            meter: WorkMeter::default(),
            reported_us: 0,
            is_news: false,
            had_waiting: false,
            had_work: false,
            had_nodes: false,
            had_limits: false,
        }
    }

    /// The owner of the pools has begun.
    pub fn attach(&mut self, handle: PoolsHandle) {
        self.handle = Some(handle);
    }

    pub fn subscribe(&self) -> watch::Receiver<ClusterState> {
        self.state.subscribe()
    }

    /// Whether there are pools.
    pub fn are_on(&self) -> bool {
        !self.outlines.is_empty()
    }

    /// The pools as they are now.
    pub fn views(&self) -> Vec<PoolView> {
        self.handle.as_ref().map(PoolsHandle::views).unwrap_or_default()
    }

    /// Whether nodes of a pool, by its place among all pools, could take tasks with that need.
    pub fn could_take(&self, pool: usize, need: &Need) -> bool {
        self.outlines.get(pool).is_some_and(|node| node.could_take(need))
    }

    /// An executor of a pool has joined or left.
    pub fn note_change(&mut self) {
        self.is_news = true;
    }

    pub fn left(&mut self, executor: ExecutorId) {
        self.draining.remove(&executor);
        self.is_news = true;
    }

    /// A task has ended.
    pub fn note_ended(&mut self, outcome: &Outcome) {
        // A task that ended with its node, or was cancelled, says nothing about how long such tasks
        // take.
        let is_own_end = !matches!(outcome.status, Status::Failed(_) | Status::Cancelled);
        if self.are_on() && outcome.ran_us > 0 && is_own_end {
            self.meter.ran(outcome.ran_us);
        }
    }

    pub fn note_fetched(&mut self, object: ObjectId, bytes: u64, from: Origin) {
        if self.are_on() {
            self.meter.fetched(object, bytes, from);
        }
    }

    pub fn note_evicted(&mut self, object: ObjectId) {
        if self.are_on() {
            self.meter.evicted(object);
        }
    }

    /// When the pools are told the next time, microseconds since 1970.
    pub fn next_report_us(&self, scheduler: &Scheduler) -> Option<u64> {
        let is_news = self.is_news || (scheduler.waiting() > 0 && !self.had_waiting);
        let pause_us = if is_news { REPORT_PAUSE_US } else { REPORT_EVERY_US };
        // Without work and without nodes, nothing changes.
        let may_change = is_news || self.had_work || self.had_nodes || scheduler.has_unstarted();
        (self.are_on() && may_change).then_some(self.reported_us + pause_us)
    }

    /// Tells the pools that the cluster stops.
    pub fn stop(&self) {
        self.state.send_modify(|state| state.is_stopping = true);
    }

    /// Takes an order of the pools.
    pub fn obey(&mut self, order: PoolOrder, executors: &ConnectedExecutors) -> AfterOrder {
        let is_here = |executor| executors.get(executor).is_some();
        match order {
            PoolOrder::Shapes { version, shapes } => {
                self.version = version;
                self.most_time_us =
                    shapes.iter().map(|shape| shape.time_limit_us).max().unwrap_or(0);
                let outline = |shape: NodeShape| NodeOutline {
                    capacity: shape.capacity,
                    labels: shape.labels,
                };
                self.outlines = shapes.into_iter().map(outline).collect();
                self.is_news = true;
                AfterOrder::Nothing
            }
            PoolOrder::Drain { executor } if is_here(executor) => {
                self.draining.insert(executor);
                self.is_news = true;
                AfterOrder::Drain(executor)
            }
            PoolOrder::Release { executor } if is_here(executor) => AfterOrder::Release(executor),
            PoolOrder::Drain { .. } | PoolOrder::Release { .. } => AfterOrder::Nothing,
        }
    }

    /// How long the executors stay that are ended by a batch system, for the scheduler. It comes
    /// before each report.
    pub fn times_left(&mut self, now_us: u64, executors: &ConnectedExecutors) -> Option<Event> {
        let left = executors
            .iter()
            .filter_map(|(id, executor)| Some((id, executor.until_us?.saturating_sub(now_us))));
        let executors: Box<[_]> = left.collect();
        let had_limits = std::mem::replace(&mut self.had_limits, !executors.is_empty());
        (self.had_limits || had_limits).then_some(Event::TimesLeft { executors })
    }

    /// Tells the pools how much work there is and how their nodes are.
    pub fn report(&mut self, now_us: u64, cluster: &ReportedCluster, is_stopping: bool) {
        let passed_us = now_us - self.reported_us;
        let rate = match self.meter.storage_bytes_per_s() {
            measured if measured > 0.0 => measured,
            _ => LINK_BYTES_PER_S,
        };
        let nodes = cluster.pool_nodes(&self.draining, rate);
        let staying = nodes.iter().filter(|node| !node.is_draining).count() as u32;
        let work = cluster.work_for(&self.outlines, self.most_time_us);
        self.had_nodes = !nodes.is_empty();
        let measured =
            self.meter.report(passed_us, staying, LINK_BYTES_PER_S, OutstandingWork::default());
        (self.reported_us, self.is_news) = (now_us, false);
        (self.had_waiting, self.had_work) =
            (cluster.scheduler.waiting() > 0, cluster.scheduler.has_unstarted());
        let shapes = self.version;
        self.state.send_replace(ClusterState { shapes, work, measured, nodes, is_stopping });
    }
}

impl ReportedCluster<'_> {
    /// Tasks that have not started, by the pools whose nodes they fit.
    fn work_for(&self, pools: &[NodeOutline], most_time_us: u64) -> Vec<FittingWork> {
        let mut groups: BTreeMap<u64, FittingWork> = BTreeMap::new();
        for class in self.scheduler.unstarted_by_need(most_time_us) {
            let outlines = pools.iter().enumerate();
            let fits = outlines
                .filter(|(_, node)| node.could_take(class.need))
                .fold(0, |fits, (bit, _)| fits | 1 << bit);
            if fits == 0 {
                continue;
            }
            let group =
                groups.entry(fits).or_insert(FittingWork { fits, ..FittingWork::default() });
            group.tasks += class.tasks;
            group.cpus_milli += class.tasks * u64::from(class.need.resources.cpus_milli);
            let memory = class.tasks.saturating_mul(class.need.resources.memory_bytes);
            group.memory_bytes = group.memory_bytes.saturating_add(memory);
            for (name, amount) in &class.need.resources.named {
                let sum = group.named.entry(name.clone()).or_default();
                *sum = sum.saturating_add(class.tasks.saturating_mul(*amount));
            }
        }
        groups.into_values().collect()
    }

    /// Objects that tasks are going to read, as far as the first [`MAX_TASKS_READ`] of them say.
    fn objects_to_read(&self) -> HashSet<ObjectId> {
        let is_to_run = |phase: Phase| matches!(phase, Phase::Waiting | Phase::Blocked);
        let of_job = |job: &Job| {
            let tasks = job.tasks.iter().enumerate().filter(|(_, task)| is_to_run(task.phase));
            tasks.map(|(index, _)| index as u32).collect::<Vec<_>>()
        };
        let jobs = self.jobs.all().filter(|job| !job.has_ended());
        let tasks = jobs.flat_map(|job| of_job(job).into_iter().map(move |index| (job, index)));
        let inputs = tasks
            .take(MAX_TASKS_READ)
            .flat_map(|(job, index)| job.input_ids(&job.spec.items.get(index)));
        inputs.map(|(object, _)| object).collect()
    }

    /// How long it would take to fetch again what only this executor holds, at `rate` bytes per
    /// second, microseconds.
    fn refill_us(
        &self,
        id: ExecutorId,
        held: &HashMap<ObjectId, u64>,
        to_read: &HashSet<ObjectId>,
        rate: f64,
    ) -> u64 {
        let is_only_holder = |object: ObjectId| {
            let mut holders = self.scheduler.holders(object);
            holders.next() == Some(id) && holders.next().is_none()
        };
        let only_here = to_read.iter().filter_map(|object| Some((*object, *held.get(object)?)));
        let bytes: u64 =
            only_here.filter(|(object, _)| is_only_holder(*object)).map(|(_, bytes)| bytes).sum();
        (bytes as f64 / rate * 1e6) as u64
    }

    fn pool_nodes(&self, draining: &BTreeSet<ExecutorId>, rate: f64) -> Vec<PoolNodeState> {
        let to_read = LazyCell::new(|| self.objects_to_read());
        let nodes = self.executors.iter().filter_map(|(id, executor)| {
            let origin = executor.origin.as_ref()?;
            let is_draining = draining.contains(&id);
            let tasks = self.scheduler.count_tasks(id) as u64;
            Some(PoolNodeState {
                executor: id,
                name: executor.name.clone(),
                host: executor.host.clone(),
                incarnation: executor.incarnation.clone(),
                pool: origin.pool.clone(),
                request: origin.request,
                left_us: origin.left_us,
                capacity: executor.capacity.clone(),
                tasks,
                refill_us: if tasks == 0 && !is_draining && !executor.held.is_empty() {
                    self.refill_us(id, &executor.held, &to_read, rate)
                } else {
                    0
                },
                lacks_time: tasks == 0 && self.scheduler.lacks_time(id),
                ended: executor.ended,
                is_draining,
                is_emptied: is_draining && self.scheduler.is_emptied(id),
            })
        });
        nodes.collect()
    }
}
