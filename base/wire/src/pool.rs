//! Pools: nodes that the dispatcher requests from a batch system when tasks wait, and gives back
//! when they are idle.

use eyas_types::ProvisioningPolicy;
use eyas_types::matching::Labels;
use serde::{Deserialize, Serialize};

/// The options of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolOptions {
    /// Name of the batch system.
    pub system: String,
    /// Time for which each node is requested, microseconds.
    pub time_limit_us: u64,
    /// Most requests that wait to be granted.
    pub backlog: u32,
    /// Most nodes of one request.
    pub nodes_per_request: u32,
    /// Number of nodes that the pool has even without tasks.
    pub min_nodes: u32,
    /// Most nodes of the pool.
    pub max_nodes: u32,
    /// A node without tasks is given back after this time, microseconds.
    pub idle_timeout_us: u64,
    /// A node stays without tasks for up to this much longer, while it would take as long to fetch
    /// again what only it holds and tasks are going to read, microseconds.
    #[serde(default)]
    pub keep_us: u64,
    /// The policy that decides how many nodes are requested.
    pub policy: ProvisioningPolicy,
    /// The policy `demand` requests enough nodes to finish the waiting tasks within this time,
    /// microseconds.
    pub target_us: u64,
    /// A node must join within this time after its request was granted, microseconds.
    pub join_timeout_us: u64,
    /// Shell command that runs on each node before the executor starts.
    pub start_command: Option<String>,
    /// Shell command that runs on each node after the executor has ended.
    pub stop_command: Option<String>,
    /// Words before the executor's command, such as the name of a container program.
    pub wrap: Option<String>,
    /// The pool requests no nodes once its nodes have used this many hours.
    pub max_node_hours: Option<f64>,
    /// The pool requests no nodes once its nodes have cost this much.
    pub max_cost: Option<f64>,
    /// Cost of a node for an hour. Pools with lower prices get nodes first.
    pub price: f64,
    /// Labels of the nodes.
    pub labels: Labels,
    /// Number of processors of each node; `None` until the first node has reported it.
    pub cpus: Option<u32>,
    /// Memory of each node; `None` until the first node has reported it.
    pub memory_bytes: Option<u64>,
    /// Other resources of each node.
    pub resources: Vec<(String, u64)>,
    /// Further options of `eyas start executor`.
    pub executor_options: Vec<String>,
    /// Options that are passed to the batch system unchanged.
    pub verbatim: Vec<String>,
    /// Options that only Kubernetes has.
    #[serde(default)]
    pub kubernetes: Option<KubernetesOptions>,
}

/// The options of a pool that only Kubernetes has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KubernetesOptions {
    /// Container image of the nodes; `None` if the template names one.
    pub image: Option<String>,
    /// Namespace of Jobs; the context's if `None`.
    pub namespace: Option<String>,
    /// Service account of the nodes.
    pub service_account: Option<String>,
    /// Text of the template of Pods, in YAML or JSON.
    pub template: Option<String>,
    /// Kubeconfigs on the dispatcher's host, separated by colons; the usual ones if `None`.
    pub kubeconfig: Option<String>,
    /// Context of the kubeconfig; the current one if `None`.
    pub context: Option<String>,
}

/// A request of a client about pools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PoolsRequest {
    /// Add a pool. Answered by `Done` once the pool is on disk.
    Add {
        /// Name of the pool.
        name: String,
        /// Its options.
        options: Box<PoolOptions>,
        /// Whether the batch system is asked first if it would accept a request.
        is_tried: bool,
    },
    /// Answered by `Pools`: one pool with its requests, or all pools.
    Show {
        /// One pool; all pools if `None`.
        name: Option<String>,
    },
    /// Request no further nodes. Nodes that have joined stay. Answered by `Done`.
    Pause {
        /// Name of the pool.
        name: String,
    },
    /// Request nodes again. Answered by `Done`.
    Resume {
        /// Name of the pool.
        name: String,
    },
    /// Withdraw all requests of a pool, give back its nodes, and forget it. Answered by `Done`.
    Remove {
        /// Name of the pool.
        name: String,
        /// Whether tasks on its nodes are ended; they run again on other nodes.
        is_forced: bool,
    },
    /// Answered by `PoolText`: what the nodes of a request have printed.
    Log {
        /// Name of the pool.
        name: String,
        /// Number of the request; the latest if `None`.
        request: Option<u64>,
        /// The file of the request.
        stream: RequestFile,
    },
    /// Answered by `PoolText`: what the batch system says of a request that is not submitted.
    Try {
        /// Name of the pool.
        name: String,
    },
}

/// A file in the folder of a request for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestFile {
    /// Standard error of the nodes.
    Stderr,
    /// Standard output of the nodes.
    Stdout,
    /// The script that was submitted.
    Script,
}

/// The request for which a node was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOrigin {
    /// Name of the pool.
    pub pool: String,
    /// Number of the request in its pool.
    pub request: u64,
    /// Time until the batch system ends the node, microseconds; `None` if it is not known.
    pub left_us: Option<u64>,
}
