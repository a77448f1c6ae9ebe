//! What pools and the dispatcher tell each other. The dispatcher publishes a [`ClusterState`] about
//! once a second, of which only the latest counts, so it never waits for pools. Pools send
//! [`PoolOrder`]s.

use eyas_provision::{FittingWork, NodeShape, OutstandingWork, PoolNodeState};
use eyas_types::ExecutorId;

/// Most pools of a cluster; one bit of [`FittingWork::fits`] for each.
pub const MAX_POOLS: usize = 64;

/// Whether tasks wait, and the state of the nodes of all pools.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The version of the shapes for which `work` was counted.
    pub shapes: u64,
    /// Tasks that may run now and have not started, by the pools whose nodes they fit: those that
    /// wait, and those that a node was given beyond its slots and does not start soon. Tasks that
    /// wait for other tasks are not counted.
    pub work: Vec<FittingWork>,
    /// The measured part of the work: how long tasks take. The same for all pools.
    pub measured: OutstandingWork,
    /// Nodes that were started for requests.
    pub nodes: Vec<PoolNodeState>,
    /// Whether the cluster stops.
    pub is_stopping: bool,
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
