//! What pools and the dispatcher tell each other. The dispatcher publishes a [`ClusterState`] about once a second, of
//! which only the latest counts, so it never waits for pools. Pools send [`PoolOrder`]s.

use std::collections::BTreeMap;

use eyas_provision::OutstandingWork;
use eyas_types::matching::Labels;
use eyas_types::{ExecutorId, Resources};

/// Most pools of a cluster; one bit of [`FittingWork::fits`] for each.
pub const MAX_POOLS: usize = 64;

/// Whether tasks wait, and the state of the nodes of all pools.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The version of the shapes for which `work` was counted.
    pub shapes: u64,
    /// Tasks that may run now and have not started, by the pools whose nodes they fit: those that wait, and those that
    /// a node was given beyond its slots and does not start soon. Tasks that wait for other tasks are not counted.
    pub work: Vec<FittingWork>,
    /// The measured part of the work: how long tasks take. The same for all pools.
    pub measured: OutstandingWork,
    /// Nodes that were started for requests.
    pub nodes: Vec<PoolNodeState>,
    /// Whether the cluster stops.
    pub is_stopping: bool,
}

/// Tasks that fit the nodes of the same pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FittingWork {
    /// A bit for each shape, in the order of [`PoolOrder::Shapes`].
    pub fits: u64,
    /// Number of tasks.
    pub tasks: u64,
    /// Processors that the tasks need together, thousandths.
    pub cpus_milli: u64,
    /// Memory that the tasks need together.
    pub memory_bytes: u64,
    /// What the tasks need together of each named resource, such as `gpu`.
    pub named: BTreeMap<String, u64>,
}

impl FittingWork {
    pub(crate) fn add(&mut self, other: &FittingWork) {
        self.tasks += other.tasks;
        self.cpus_milli += other.cpus_milli;
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        for (name, amount) in &other.named {
            let sum = self.named.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }
}

/// A node of a pool.
#[derive(Clone, Debug)]
pub struct PoolNodeState {
    /// Id of its executor.
    pub executor: ExecutorId,
    /// Name of its executor.
    pub name: String,
    /// Name of its host.
    pub host: String,
    /// Unique name of the executor's process.
    pub incarnation: String,
    /// Name of the pool.
    pub pool: String,
    /// Number of the request.
    pub request: u64,
    /// Time until the batch system ends the node when it joined, microseconds.
    pub left_us: Option<u64>,
    /// Resources for tasks.
    pub capacity: Resources,
    /// Number of tasks that are assigned to it.
    pub tasks: u64,
    /// Whether it has no task, and is ended before the waiting tasks that fit it could end.
    pub lacks_time: bool,
    /// If it has no task: how long it would take to fetch again what only it holds and tasks are going to read,
    /// microseconds.
    pub refill_us: u64,
    /// Number of tasks that have ended on it.
    pub ended: u64,
    /// Whether it is given no more tasks, because it was ordered to drain.
    pub is_draining: bool,
    /// Whether it has no task, and other nodes have what only it had.
    pub is_emptied: bool,
}

/// The nodes that a pool can get, as far as they are known.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeShape {
    /// Resources for tasks; `None` until a node has reported them.
    pub capacity: Option<Resources>,
    /// Labels of the nodes.
    pub labels: Labels,
    /// Time for which each node is requested, microseconds.
    pub time_limit_us: u64,
}

/// What the dispatcher is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolOrder {
    /// Count the work that fits these shapes.
    Shapes {
        /// The version of the list.
        version: u64,
        /// One shape for each pool.
        shapes: Vec<NodeShape>,
    },
    /// Give an executor no more tasks, and have others hold what only that executor holds.
    Drain {
        /// The executor.
        executor: ExecutorId,
    },
    /// Stop an executor.
    Release {
        /// The executor.
        executor: ExecutorId,
    },
}
