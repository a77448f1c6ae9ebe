//! What the provisioner is told, and what it answers.

use eyas_types::{ExecutorId, ProvisioningPolicy};

/// How a provisioner decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// The policy.
    pub policy: ProvisioningPolicy,
    /// The number of nodes to have at all times, as far as requests are granted.
    pub min_nodes: u32,
    /// The largest number of nodes to have or to request.
    pub max_nodes: u32,
    /// The largest number of requests that have not been granted, up to
    /// [`MAX_REQUESTS`](crate::MAX_REQUESTS).
    pub backlog: usize,
    /// The largest number of nodes of one request.
    pub nodes_per_request: u32,
    /// The number of tasks that one node can run at the same time.
    pub slots: u32,
    /// The time for which each node is requested, microseconds.
    pub walltime_us: u64,
    /// The time before the end of its walltime at which a node is drained and, if there is work,
    /// another one is requested, microseconds.
    pub notice_us: u64,
    /// A node is drained after this time without a task (30 s in the paper), microseconds.
    pub idle_us: u64,
    /// A node stays without a task for up to this much longer, while it would take as long to
    /// fetch again what only it holds and tasks are going to read, microseconds.
    pub keep_us: u64,
    /// The time in which `demand` completes the tasks that wait, microseconds. Ten seconds by
    /// default: that is how long people wait before they turn to something else (Nielsen,
    /// Usability Engineering, 1993).
    pub target_us: u64,
    /// The pause after a request has failed, microseconds. It doubles with each further failure.
    pub backoff_us: u64,
    /// The longest such pause, microseconds.
    pub max_backoff_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        const MINUTE_US: u64 = 60_000_000;
        Config {
            policy: ProvisioningPolicy::Demand,
            min_nodes: 0,
            max_nodes: 100,
            backlog: 64,
            nodes_per_request: u32::MAX,
            slots: 1,
            walltime_us: 60 * MINUTE_US,
            notice_us: 2 * MINUTE_US,
            idle_us: MINUTE_US / 2,
            keep_us: 0,
            target_us: MINUTE_US / 6,
            backoff_us: 5_000_000,
            max_backoff_us: 10 * MINUTE_US,
        }
    }
}

/// How much work there is, and how long such work takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutstandingWork {
    /// Tasks that wait for a slot.
    pub waiting: u64,
    /// Tasks that have a slot.
    pub running: u64,
    /// All tasks that ever arrived.
    pub arrived: u64,
    /// The mean time that a task has its slot, microseconds; 0 while that is not known.
    pub task_us: u64,
    /// The mean time that a node's link is busy with the missing inputs of one task, microseconds.
    pub transfer_us: u64,
    /// The node time that passes for each task that ends, as far as tasks wait for inputs that had
    /// been evicted from a full store, microseconds.
    pub refetch_us: u64,
    /// Nodes that hold inputs which persistent storage could not deliver fast enough in their
    /// place.
    pub holding: u64,
}

impl OutstandingWork {
    /// Whether no task waits or runs.
    pub fn is_none(&self) -> bool {
        self.waiting + self.running == 0
    }
}

/// Whether nodes are requested, and whether they stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nodes are requested when they are wanted.
    #[default]
    Active,
    /// No nodes are requested. Nodes stay as long as they are wanted.
    Paused,
    /// No nodes are requested or wanted: requests are withdrawn, and all nodes are drained.
    Closed,
}

/// Names a request for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeRequestId(pub u64);

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is this much work. Reported about once a second, and when much has changed.
    Work(OutstandingWork),
    /// A node has joined, without a task.
    NodeJoined {
        /// The node's executor.
        node: ExecutorId,
        /// The request for which the node was granted, even if the request was withdrawn too late.
        /// `None`: the node was not requested here, and is never given back.
        request: Option<NodeRequestId>,
        /// The node's earlier executor id, if the node was reported as left and has reconnected.
        was: Option<ExecutorId>,
    },
    /// A node has a task.
    NodeBusy {
        /// The node's executor.
        node: ExecutorId,
    },
    /// A node no longer has a task.
    NodeIdle {
        /// The node's executor.
        node: ExecutorId,
    },
    /// How long it would take to fetch again what only this node holds and tasks are going to read.
    /// Reported of nodes without a task.
    NodeHolds {
        /// The node's executor.
        node: ExecutorId,
        /// The time, microseconds.
        refill_us: u64,
    },
    /// A draining node holds nothing that is still needed; the scheduler's `is_emptied` says so.
    NodeEmptied {
        /// The node's executor.
        node: ExecutorId,
    },
    /// A node ends sooner than a walltime after it joined, and must be drained now.
    NodeExpires {
        /// The node's executor.
        node: ExecutorId,
    },
    /// A node is gone, for whatever reason; it may come back.
    NodeLeft {
        /// The node's executor.
        node: ExecutorId,
    },
    /// A request has failed: its nodes that have not joined yet will not join.
    RequestFailed {
        /// The request.
        request: NodeRequestId,
    },
    /// A request has failed, because its nodes have not joined in time. They may still join until
    /// [`Event::RequestEnded`], and count towards `max_nodes` until then.
    RequestOverdue {
        /// The request.
        request: NodeRequestId,
    },
    /// The nodes of a withdrawn or overdue request that have not joined yet will not join.
    RequestEnded {
        /// The request.
        request: NodeRequestId,
    },
    /// A request that was made before this provisioner was started has not been granted to all of
    /// its nodes.
    RequestFound {
        /// The request's id, larger than those of all requests known.
        request: NodeRequestId,
        /// The number of nodes that have not joined.
        nodes: u32,
        /// Whether the request was withdrawn, and has not ended.
        is_withdrawn: bool,
    },
    /// From now on the mode is this one.
    ModeSet(Mode),
    /// No task has arrived, waited or run for a while: the rate at which tasks arrive counts as 0.
    ArrivalsEnded,
    /// A node can run this number of tasks at the same time.
    SlotsLearned(u32),
    /// The time that [`Provisioner::next_timeout`](crate::Provisioner::next_timeout) named has
    /// come.
    TimePassed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Request nodes.
    Request {
        /// The request's id, never used before.
        request: NodeRequestId,
        /// The number of nodes.
        nodes: u32,
        /// The time for which each node is requested, microseconds.
        walltime_us: u64,
    },
    /// Withdraw a request, as far as it has not been granted. Its nodes may still join, and count
    /// towards `max_nodes`, until [`Event::RequestEnded`].
    Withdraw {
        /// The request.
        request: NodeRequestId,
    },
    /// Give a node no more tasks, replicate what only that node holds and is still needed, then
    /// report `NodeEmptied`.
    Drain {
        /// The node's executor.
        node: ExecutorId,
    },
    /// Give a node back.
    Release {
        /// The node's executor.
        node: ExecutorId,
    },
}
