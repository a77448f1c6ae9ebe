//! The hardware of a simulated cluster, and the policies of its deciders.
//!
//! Each value has a source or a reason. No value is set for one experiment: the paper's experiments
//! run on the four machines below, each described once.
//!
//! | value | TeraGrid 64 | TeraGrid 100 | BlueGene/P | SiCortex | source |
//! | --- | --- | --- | --- | --- | --- |
//! | nodes × processors | 64 × 2 | 100 × 2 | 1,024 × 4 | 972 × 6 | data-diffusion §5.1, §5.2 |
//! | network card | 1 Gb/s | 1 Gb/s | 1 Gb/s | 1 Gb/s | table 1, §5.3; not given for the SiCortex |
//! | persistent storage | 4.4 Gb/s | 8 Gb/s | 64 Gb/s | 4 Gb/s | §5.1.1, §5.2, §5.3 |
//! | store on | disk | disk | memory | memory | the last two have no disks in their nodes |
//! | disk, reading | 148 MB/s | 148 MB/s | | | figure 11: 76 Gb/s for 64 nodes |
//! | disk, writing | 73 MB/s | 73 MB/s | | | figure 11: 25 Gb/s, read and written, for 64 nodes |
//! | memory | 2.1 GB/s | 2.1 GB/s | 125 MB/s | 125 MB/s | PC2100; §5.3: 187 and 268 Gb/s in all |
//! | page cache | 3 GB | 3 GB | | | table 1: 4 GB, a quarter of it for system, executor, tasks |
//! | decision | 0.76 ms | 0.76 ms | 0.76 ms | 0.76 ms | figure 15: 1,322/s; [`EYAS_DECISION_NS`] |
//! | message | 2 ms | 2 ms | 2 ms | 2 ms | §5 |
//! | request to persistent storage | 1 ms | 1 ms | 1 ms | 1 ms | §5: less than 1 ms |
//! | request to a peer | 0.2 ms | 0.2 ms | 0.2 ms | 0.2 ms | a round trip on a switch of 1 Gb/s |
//! | delay of catalog reports | 0 | 0 | 0 | 0 | §2.1 says "periodic" without a period |
//! | fetches at a time | 4 | 4 | 8 | 12 | as real executors: two per processor, at least 4 |
//!
//! Figures 38 and 39 show the nodes too. The 4.4 Gb/s were measured: FA "remains flat" there. The
//! 187 and 268 Gb/s are the sums of local reads. 1,322 decisions/s are those of the slowest policy.
//!
//! The times of batch systems and the rates of failures are in [`nodes`](crate::nodes).

use eyas_sched::HolderPatience;
use eyas_types::{Distribution, EvictionPolicy, PlacementPolicy};
use serde::Deserialize;

use crate::clock::{MICROSECOND, Ns};
use crate::nodes::{Batch, Failures};

/// Converts Gbit/s to bytes per second.
const fn gbit(gbit: f64) -> f64 {
    gbit * 125e6
}

/// The hardware and the failures of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct SimCluster {
    /// Number of nodes, each with one executor.
    pub nodes: u32,
    /// Processors of each node.
    pub cpus: u32,
    /// Size of each node's store, in bytes.
    pub cache_bytes: u64,
    /// Rate of a network card in each direction, in bytes per second. All nodes that fetch from a
    /// node share its card.
    pub card_bytes_per_s: f64,
    /// The disk of a store; `None` if stores are in memory.
    pub disk: Option<Disk>,
    /// Rate at which a task reads from memory, in bytes per second.
    pub memory_bytes_per_s: f64,
    /// Size of the page cache in front of a disk, in bytes. It holds the most recently read or
    /// received objects.
    pub page_cache_bytes: u64,
    /// Capacity of the switch between all nodes and persistent storage, in bytes per second.
    /// `None`: the switch carries all that the cards can send.
    pub bisection_bytes_per_s: Option<f64>,
    /// Persistent storage, which has all objects from the start.
    pub storage: SimStorage,
    /// Number of dispatchers, each of which manages a part of the nodes.
    pub dispatchers: u32,
    /// Time that a dispatcher takes for a placement decision.
    pub decision_ns: Ns,
    /// Time that a message takes between a dispatcher and an executor.
    pub message_ns: Ns,
    /// Time from a request to a peer until the first byte arrives.
    pub peer_latency_ns: Ns,
    /// Delay of catalog reports (objects stored and evicted), in addition to the time of a
    /// message.
    pub catalog_delay_ns: Ns,
    /// The batch system that grants nodes; `None` if all nodes exist from the start.
    pub batch: Option<Batch>,
    /// Failures that happen during a run.
    pub failures: Failures,
}

/// A node's disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Read rate, in bytes per second, shared by tasks and peers.
    pub read_bytes_per_s: f64,
    /// Write rate, in bytes per second.
    pub write_bytes_per_s: f64,
}

/// Persistent storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimStorage {
    /// Rate to all nodes together, in bytes per second.
    pub bytes_per_s: f64,
    /// Rate to one node, in bytes per second; `None` for the rate of its network card.
    pub client_bytes_per_s: Option<f64>,
    /// Time from a request until the first byte arrives.
    pub latency_ns: Ns,
}

/// Policies and options of the deciders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policies {
    /// The placement policy.
    pub placement: PlacementPolicy,
    /// The utilisation threshold of good-cache-compute.
    pub utilisation_threshold: f64,
    /// See [`eyas_sched::Config::min_cache_hit`].
    pub min_cache_hit: f64,
    /// The scheduling window `W`; see [`eyas_sched::Config::window`].
    pub window: Option<u64>,
    /// How long a task waits for holders of its inputs.
    pub patience: HolderPatience,
    /// Whether nodes relay objects that they are still receiving.
    pub relays: bool,
    /// See [`eyas_sched::Config::hits_first`].
    pub hits_first: bool,
    /// See [`eyas_sched::Config::spread`].
    pub spread: bool,
    /// Whether other tasks compute while a task's inputs are staged.
    pub overlap: bool,
    /// The eviction policy.
    pub eviction: EvictionPolicy,
    /// How all objects are pushed to all nodes at the start; `None`: nothing is pushed, and inputs
    /// are fetched on demand. With a spanning tree, tasks arrive after the push has ended.
    pub distribution: Option<Distribution>,
    /// How tasks are distributed over several dispatchers.
    pub partitioning: TaskPartitioning,
}

/// How tasks are distributed over dispatchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum TaskPartitioning {
    /// By a hash of the task's first input, so that tasks with the same input go to the same
    /// dispatcher.
    #[default]
    #[serde(rename = "objects")]
    FirstInput,
    /// In turn. Tasks without inputs are always distributed in turn.
    #[serde(rename = "turns")]
    RoundRobin,
}

impl Policies {
    /// The paper's policies: no relays, a task is staged in its slot, the window is 2,500 tasks
    /// (§5.1.1), stores evict by LRU (§2.1).
    pub fn of_the_paper(placement: PlacementPolicy) -> Self {
        Policies {
            placement,
            utilisation_threshold: 0.9,
            min_cache_hit: 0.0,
            window: Some(2_500),
            patience: HolderPatience::Unlimited,
            relays: false,
            hits_first: true,
            spread: false,
            overlap: false,
            eviction: EvictionPolicy::Lru,
            distribution: None,
            partitioning: TaskPartitioning::default(),
        }
    }

    /// The defaults of eyas, with this placement policy.
    pub fn of_eyas(placement: PlacementPolicy) -> Self {
        let eyas_sched::Config { utilisation_threshold, window, patience, relays, spread, .. } =
            eyas_sched::Config::default();
        let eyas = Policies::of_the_paper(placement);
        Policies { utilisation_threshold, window, patience, relays, spread, overlap: true, ..eyas }
    }

    /// Whether nodes keep the inputs of tasks in their stores: all policies but first-available do.
    pub fn caches(&self) -> bool {
        eyas_sched::caches(self.placement)
    }

    pub(crate) fn sched(&self) -> eyas_sched::Config {
        let Policies {
            placement: policy,
            utilisation_threshold,
            min_cache_hit,
            window,
            patience,
            ..
        } = *self;
        let Policies { relays, hits_first, spread, .. } = *self;
        eyas_sched::Config {
            policy,
            utilisation_threshold,
            min_cache_hit,
            window,
            patience,
            relays,
            hits_first,
            spread,
            // A decision takes no simulated time, however many inputs it looks at.
            placed_inputs: usize::MAX,
        }
    }
}

/// Time of a decision of the eyas dispatcher. It is five times the time that `cargo bench -p
/// eyas-dev --bench decisions` measures for tasks with two inputs (100,000 decisions per second),
/// because the paper's processors are older.
pub const EYAS_DECISION_NS: Ns = 50 * MICROSECOND;

impl SimCluster {
    /// The same hardware with the dispatcher and the default provisioning policy of eyas.
    pub fn under_eyas(&self) -> Self {
        let batch =
            self.batch.clone().map(|batch| Batch { policy: Batch::default().policy, ..batch });
        SimCluster { decision_ns: EYAS_DECISION_NS, batch, ..self.clone() }
    }

    /// The paper's cluster of section 5.1, with stores of `cache_bytes`.
    pub fn teragrid_64(cache_bytes: u64) -> Self {
        SimCluster {
            nodes: 64,
            cpus: 2,
            cache_bytes,
            card_bytes_per_s: gbit(1.0),
            disk: Some(Disk { read_bytes_per_s: 148e6, write_bytes_per_s: 73e6 }),
            memory_bytes_per_s: 2.1e9,
            page_cache_bytes: 3_000_000_000,
            bisection_bytes_per_s: None,
            storage: SimStorage {
                bytes_per_s: gbit(4.4),
                client_bytes_per_s: None,
                latency_ns: 1000 * MICROSECOND,
            },
            dispatchers: 1,
            decision_ns: 756 * MICROSECOND,
            message_ns: 2000 * MICROSECOND,
            peer_latency_ns: 200 * MICROSECOND,
            catalog_delay_ns: 0,
            batch: None,
            failures: Failures::default(),
        }
    }

    /// The paper's cluster of sections 5.2 and 5.3: more nodes and faster storage.
    pub fn teragrid_100(cache_bytes: u64) -> Self {
        let before = SimCluster::teragrid_64(cache_bytes);
        let storage = SimStorage { bytes_per_s: gbit(8.0), ..before.storage };
        SimCluster { nodes: 100, storage, ..before }
    }

    /// The emulated IBM Blue Gene/P of section 5.3.
    pub fn blue_gene_p() -> Self {
        let teragrid = SimCluster::teragrid_64(2_000_000_000);
        let storage = SimStorage { bytes_per_s: gbit(64.0), ..teragrid.storage };
        SimCluster {
            nodes: 1024,
            cpus: 4,
            disk: None,
            memory_bytes_per_s: gbit(1.0),
            storage,
            ..teragrid
        }
    }

    /// The emulated SiCortex SC5832 of section 5.3.
    pub fn sicortex() -> Self {
        let teragrid = SimCluster::teragrid_64(3_600_000_000);
        let storage = SimStorage { bytes_per_s: gbit(4.0), ..teragrid.storage };
        SimCluster {
            nodes: 972,
            cpus: 6,
            disk: None,
            memory_bytes_per_s: gbit(1.0),
            storage,
            ..teragrid
        }
    }

    /// Number of processors of all nodes.
    pub fn processors(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.cpus)
    }

    /// Fetches at a time of a node, as in real executors: two for each processor, at least 4.
    pub(crate) fn max_fetches(&self) -> usize {
        (2 * self.cpus as usize).max(4)
    }
}
