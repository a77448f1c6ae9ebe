//! Events and effects of a pool's decider.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::matching::Labels;
use eyas_types::{ExecutorId, ProvisioningPolicy, Resources};
use serde::{Deserialize, Serialize};

use super::request::{BatchJobId, PoolRequest};
use crate::event::OutstandingWork;

/// The options of a pool, as far as they decide.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Name of the pool.
    pub name: String,
    /// Randomness for the names of requests: another number at each start of the dispatcher.
    pub seed: u64,
    /// The policy that decides how many nodes are requested.
    pub policy: ProvisioningPolicy,
    /// Number of nodes that the pool has even without tasks.
    pub min_nodes: u32,
    /// Most nodes of the pool.
    pub max_nodes: u32,
    /// Most requests that wait to be granted.
    pub backlog: u32,
    /// Most nodes of one request.
    pub nodes_per_request: u32,
    /// Time for which each node is requested, microseconds.
    pub time_limit_us: u64,
    /// A node without tasks is given back after this time, microseconds.
    pub idle_timeout_us: u64,
    /// See [`Config::keep_us`](crate::Config::keep_us).
    pub keep_us: u64,
    /// See [`Config::target_us`](crate::Config::target_us).
    pub target_us: u64,
    /// A node must join within this time after its request was granted, microseconds.
    pub join_timeout_us: u64,
    /// The pool gives back its nodes once they have used this many hours.
    pub max_node_hours: Option<f64>,
    /// The pool gives back its nodes once they have cost this much.
    pub max_cost: Option<f64>,
    /// Cost of a node for an hour.
    pub price: f64,
    /// Labels of the nodes.
    pub labels: Labels,
    /// Number of processors of each node; `None` until the first node has reported it.
    pub cpus: Option<u32>,
    /// Memory of each node; `None` until the first node has reported it.
    pub memory_bytes: Option<u64>,
    /// Other resources of each node.
    pub resources: Vec<(String, u64)>,
}

/// Whether the pool requests nodes, and why not.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolStatus {
    /// It requests nodes when they are wanted.
    Active,
    /// It requests no nodes, for this reason. Its nodes stay as long as they are wanted.
    Paused(String),
    /// A limit of node time or cost was reached: it gives back its nodes.
    Capped(String),
    /// The pool is being removed: it gives back its nodes.
    Closing,
}

/// What a pool has done since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolCounts {
    /// Nodes that were ever requested.
    pub nodes_requested: u64,
    /// Nodes that ever joined.
    pub nodes_granted: u64,
    /// Nodes that ever were given back.
    pub nodes_given_back: u64,
    /// Requests that ever failed.
    pub failures: u64,
    /// Node time used, seconds.
    pub node_seconds: f64,
    /// Number of the next request.
    pub next_request: u64,
}

/// A pool, as it is kept on disk beside its options and its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedPool {
    /// Why the pool is paused; `None` if it is not.
    pub paused: Option<String>,
    /// The pool was removed, and has not given everything back.
    pub is_closing: bool,
    /// What it has done.
    pub counts: PoolCounts,
}

/// A request that was on disk when the dispatcher started.
#[derive(Clone, Debug)]
pub struct RememberedRequest {
    /// The request, as it was saved last.
    pub request: PoolRequest,
    /// Whether its script was written. Without a script, it was not submitted.
    pub has_script: bool,
}

/// Tasks that fit the nodes of the same pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FittingWork {
    /// A bit for each pool.
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
    /// Adds other tasks.
    pub fn add(&mut self, other: &FittingWork) {
        self.tasks += other.tasks;
        self.cpus_milli += other.cpus_milli;
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        for (name, amount) in &other.named {
            let sum = self.named.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }
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
    /// If it has no task: how long it would take to fetch again what only it holds and tasks are
    /// going to read, microseconds.
    pub refill_us: u64,
    /// Number of tasks that have ended on it.
    pub ended: u64,
    /// Whether it is given no more tasks, because it was ordered to drain.
    pub is_draining: bool,
    /// Whether it has no task, and other nodes have what only it had.
    pub is_emptied: bool,
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmissionAnswer {
    /// The batch system has the request.
    Accepted(BatchJobId),
    /// The batch system does not have the request, and will not have it, for this reason.
    Refused(String),
    /// The batch system may have the request, or may have it later: there was no answer, or none
    /// that is understood.
    Unclear(String),
}

/// The batch system's report about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchReport {
    /// The state of the request.
    pub state: BatchState,
    /// The host on which it runs or ran, if the batch system says it and it is one host.
    pub host: Option<String>,
}

impl From<BatchState> for BatchReport {
    fn from(state: BatchState) -> Self {
        BatchReport { state, host: None }
    }
}

/// The state of a request in its batch system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchState {
    /// It waits, perhaps for a reason that is known.
    Pending(Option<String>),
    /// It was granted, and its nodes do not run yet, perhaps for a reason that is known.
    Starting(Option<String>),
    /// Its nodes run.
    Running,
    /// It is over.
    Ended(BatchEnd),
    /// The batch system does not know it. It may have ended long ago, or is not known yet.
    Unknown,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchEnd {
    /// The batch system's own word.
    pub says: String,
    /// Whether a fault of the node, or a decision of the batch system, ended it: it says nothing
    /// against the request.
    pub is_of_node: bool,
}

/// What the nodes of a request have left in its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTraces {
    /// The last lines that they have printed.
    pub said: String,
    /// The host that the script has written.
    pub host: Option<String>,
}

/// What has happened.
#[derive(Clone, Debug)]
pub enum PoolEvent {
    /// These nodes of the pool are connected now. The pool requests no node before the first such
    /// report.
    NodesSeen(Vec<PoolNodeState>),
    /// There is this much work for the pool.
    Work {
        /// The tasks that wait and fit its nodes.
        fitting: FittingWork,
        /// The measured part of the work: how long tasks take.
        measured: OutstandingWork,
    },
    /// A submission has ended.
    Submitted {
        /// Number of the request.
        request: u64,
        /// What became of it.
        answer: SubmissionAnswer,
    },
    /// Hosts on which the batch system could start no node, and why.
    HostsFailed(Vec<(String, String)>),
    /// The batch system has said how a request stands.
    StateSeen {
        /// Number of the request.
        request: u64,
        /// What the batch system says.
        report: BatchReport,
        /// What its nodes have left, if the request may end now.
        traces: NodeTraces,
    },
    /// The batch system has a request whose submission had no clear answer.
    Found {
        /// Number of the request.
        request: u64,
        /// The request in the batch system.
        job: BatchJobId,
    },
    /// The batch system says that it does not have a request whose submission had no clear answer.
    NotFound {
        /// Number of the request.
        request: u64,
        /// What its nodes have left.
        traces: NodeTraces,
    },
    /// A request whose submission had no clear answer could not be looked for: the command failed
    /// in a way that a further one would, too. This says nothing about the request.
    LookFailed {
        /// Number of the request.
        request: u64,
        /// Why.
        why: String,
        /// What its nodes have left.
        traces: NodeTraces,
    },
    /// The batch system did not say how requests stand.
    StatesUnknown {
        /// Why.
        why: String,
    },
    /// A user pauses, resumes or removes the pool.
    StatusSet(PoolStatus),
    /// A user wants the nodes and requests of the pool ended at once: tasks run again elsewhere.
    GivenUp,
    /// The cluster stops, and wants no request any longer. It requests no further nodes.
    Stopping,
    /// The cluster stops, and all requests are withdrawn.
    AllWithdrawn,
    /// The time that [`PoolDecider::next_timeout`](crate::PoolDecider::next_timeout) named has
    /// come.
    TimePassed,
}

/// An action of the shell. Actions are carried out in their order; a save must be on disk before
/// the next one begins.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolEffect {
    /// Write the pool to disk.
    SavePool(SavedPool),
    /// Write a request to disk.
    SaveRequest {
        /// Number of the request.
        request: u64,
        /// The request.
        state: PoolRequest,
    },
    /// No node of the request may join any longer: if the batch system starts it later, it must end
    /// at once.
    ShutOut {
        /// Number of the request.
        request: u64,
    },
    /// Remove what is kept of a request.
    ForgetRequest {
        /// Number of the request.
        request: u64,
    },
    /// Submit a request to the batch system, under the name that
    /// [`request_name`](crate::request_name) says.
    Submit {
        /// Number of the request.
        request: u64,
        /// Number of its nodes.
        nodes: u32,
        /// See [`PoolRequest::mark`].
        mark: String,
        /// Hosts that are not to be used.
        excluded: Vec<String>,
    },
    /// End requests in the batch system, whether they have been granted or not.
    Withdraw(Vec<(u64, BatchJobId)>),
    /// Give a node no more tasks, and have others hold what only that node holds.
    Drain {
        /// The node's executor.
        node: ExecutorId,
    },
    /// Stop a node.
    Release {
        /// The node's executor.
        node: ExecutorId,
    },
    /// Tell the user what happened.
    Note(String),
}
