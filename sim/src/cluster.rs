//! What a simulated cluster is made of.
//!
//! Each value has a source, or a reason. None is set for one experiment: those of the paper run on the four machines below,
//! of which each is described once.
//!
//! | value | TeraGrid 64 | TeraGrid 100 | BlueGene/P | SiCortex | source |
//! | --- | --- | --- | --- | --- | --- |
//! | nodes × processors | 64 × 2 | 100 × 2 | 1,024 × 4 | 972 × 6 | data-diffusion §5.1, §5.2, figures 38 and 39 |
//! | network card | 1 Gb/s | 1 Gb/s | 1 Gb/s | 1 Gb/s | table 1, §5.3; of the SiCortex it says nothing else |
//! | persistent storage | 4.4 Gb/s | 8 Gb/s | 64 Gb/s | 4 Gb/s | §5.1.1 (measured; FA "remains flat"), §5.2, §5.3 |
//! | store on | disk | disk | memory | memory | the last two have no disks in their nodes |
//! | disk, reading | 148 MB/s | 148 MB/s | | | figure 11: 76 Gb/s for 64 nodes |
//! | disk, writing | 73 MB/s | 73 MB/s | | | figure 11: 25 Gb/s, read and written, for 64 nodes |
//! | memory | 2.1 GB/s | 2.1 GB/s | 125 MB/s | 125 MB/s | PC2100; §5.3: all that is read locally is 187 and 268 Gb/s |
//! | page cache | 3 GB | 3 GB | | | table 1: 4 GB of memory, a quarter of it for system, executor, tasks |
//! | decision | 0.76 ms | 0.76 ms | 0.76 ms | 0.76 ms | figure 15: 1,322 a second, the slowest policy; see [`EYAS_DECISION_NS`] for ours |
//! | a message's way | 2 ms | 2 ms | 2 ms | 2 ms | §5 |
//! | request to persistent storage | 1 ms | 1 ms | 1 ms | 1 ms | §5: less than 1 ms |
//! | request to a peer | 0.2 ms | 0.2 ms | 0.2 ms | 0.2 ms | a round trip on a switch of 1 Gb/s |
//! | what the catalog is told late | 0 | 0 | 0 | 0 | §2.1 says "periodic", not how often |
//! | fetches at a time | 4 | 4 | 8 | 12 | as executors do: two a processor, at least 4 |
//!
//! What a batch system takes its time for, and what breaks how, is in [`nodes`](crate::nodes).

use eyas_types::{Distribution, EvictionPolicy, PlacementPolicy};
use serde::Deserialize;

use crate::clock::{MICROSECOND, Ns};
use crate::nodes::{Batch, Failures};

/// Bytes a second of a link of so many Gbit/s.
const fn gbit(gbit: f64) -> f64 {
    gbit * 125e6
}

/// Nodes, and what is between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// How many nodes, with one executor each.
    pub nodes: u32,
    /// Processors of each.
    pub cpus: u32,
    /// Bytes of each store.
    pub cache_bytes: u64,
    /// Bytes a second of a network card, each way. Who gives an object shares it among all that get it.
    pub card_bytes_per_s: f64,
    /// The disk that a store is on; if there is none, it is in memory.
    pub disk: Option<Disk>,
    /// Bytes a second at which a task reads what is in memory.
    pub memory_bytes_per_s: f64,
    /// Bytes of memory beside a disk, in which a node has what it read or received last.
    pub page_cache_bytes: u64,
    /// What a switch between all nodes and persistent storage carries; if nothing is said, all that the cards can.
    pub bisection_bytes_per_s: Option<f64>,
    /// Where objects come from.
    pub storage: Storage,
    /// How many dispatchers there are, each of a part of the nodes.
    pub dispatchers: u32,
    /// How long a dispatcher takes to decide where a task goes.
    pub decision_ns: Ns,
    /// How long a message is on its way between the dispatcher and an executor.
    pub message_ns: Ns,
    /// From asking a peer for an object until the first byte comes.
    pub peer_latency_ns: Ns,
    /// How much later than a message the catalog is told what was stored and evicted.
    pub catalog_delay_ns: Ns,
    /// Who gives nodes; if nobody, all are there from the beginning.
    pub batch: Option<Batch>,
    /// What breaks.
    pub failures: Failures,
}

/// A node's disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Bytes a second that are read, by tasks and for peers together.
    pub read_bytes_per_s: f64,
    /// Bytes a second that are written.
    pub write_bytes_per_s: f64,
}

/// Persistent storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storage {
    /// Bytes a second to all nodes together.
    pub bytes_per_s: f64,
    /// Bytes a second to one node; if nothing is said, what its card can.
    pub client_bytes_per_s: Option<f64>,
    /// From asking for an object until the first byte comes.
    pub latency_ns: Ns,
}

/// How the deciders decide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policies {
    /// The placement policy.
    pub placement: PlacementPolicy,
    /// GCC's threshold.
    pub utilisation_threshold: f64,
    /// `W`; see [`eyas_sched::Config::window`].
    pub window: Option<u64>,
    /// Whether who is still receiving an object passes it on.
    pub relays: bool,
    /// See [`eyas_sched::Config::hits_first`].
    pub hits_first: bool,
    /// See [`eyas_sched::Config::spread`].
    pub spread: bool,
    /// Whether others compute while a task's inputs are staged.
    pub overlap: bool,
    /// The eviction policy.
    pub eviction: EvictionPolicy,
    /// How all objects are pushed to all nodes; if nothing is said, none is, and tasks have theirs fetched. Along a spanning
    /// tree tasks come once everything is there.
    pub distribution: Option<Distribution>,
    /// Which dispatcher decides about which task, where there are several.
    pub deal: Deal,
}

/// How tasks are dealt to dispatchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deal {
    /// By a hash of the first object that they read, so that those that read the same meet.
    #[default]
    Objects,
    /// In turn; so are those that read nothing.
    Turns,
}

impl Policies {
    /// The paper's own: no relays, a task is staged in its slot, the window is 2,500 tasks (§5.1.1), stores are LRU (§2.1).
    pub fn of_the_paper(placement: PlacementPolicy) -> Self {
        Policies {
            placement,
            utilisation_threshold: 0.9,
            window: Some(2_500),
            relays: false,
            hits_first: true,
            spread: false,
            overlap: false,
            eviction: EvictionPolicy::Lru,
            distribution: None,
            deal: Deal::default(),
        }
    }

    /// What eyas does if nothing else is asked for, with that placement.
    pub fn of_eyas(placement: PlacementPolicy) -> Self {
        let eyas_sched::Config { utilisation_threshold, window, relays, spread, .. } = eyas_sched::Config::default();
        let eyas = Policies::of_the_paper(placement);
        Policies { utilisation_threshold, window, relays, spread, overlap: true, ..eyas }
    }

    /// Whether nodes keep what tasks have read: not under first-available.
    pub fn caches(&self) -> bool {
        eyas_sched::is_data_aware(self.placement)
    }

    pub(crate) fn sched(&self) -> eyas_sched::Config {
        let Policies { placement: policy, utilisation_threshold, window, relays, hits_first, spread, .. } = *self;
        eyas_sched::Config { policy, utilisation_threshold, window, relays, hits_first, spread }
    }
}

/// How long eyas's dispatcher takes to decide where a task goes: five times what `cargo bench -p eyas-dev --bench decisions`
/// measures for tasks with two inputs, 100,000 of which are decided in a second, as the paper's processors are older.
pub const EYAS_DECISION_NS: Ns = 50 * MICROSECOND;

impl Cluster {
    /// The same with eyas's dispatcher instead of Falkon's, which asks for nodes by its own policy.
    pub fn under_eyas(&self) -> Self {
        let batch = self.batch.clone().map(|batch| Batch { policy: Batch::default().policy, ..batch });
        Cluster { decision_ns: EYAS_DECISION_NS, batch, ..self.clone() }
    }

    /// The paper's cluster of section 5.1, with stores of so many bytes.
    pub fn teragrid_64(cache_bytes: u64) -> Self {
        Cluster {
            nodes: 64,
            cpus: 2,
            cache_bytes,
            card_bytes_per_s: gbit(1.0),
            disk: Some(Disk { read_bytes_per_s: 148e6, write_bytes_per_s: 73e6 }),
            memory_bytes_per_s: 2.1e9,
            page_cache_bytes: 3_000_000_000,
            bisection_bytes_per_s: None,
            storage: Storage { bytes_per_s: gbit(4.4), client_bytes_per_s: None, latency_ns: 1000 * MICROSECOND },
            dispatchers: 1,
            decision_ns: 756 * MICROSECOND,
            message_ns: 2000 * MICROSECOND,
            peer_latency_ns: 200 * MICROSECOND,
            catalog_delay_ns: 0,
            batch: None,
            failures: Failures::default(),
        }
    }

    /// The same cluster in sections 5.2 and 5.3: more nodes, and faster storage.
    pub fn teragrid_100(cache_bytes: u64) -> Self {
        let before = Cluster::teragrid_64(cache_bytes);
        let storage = Storage { bytes_per_s: gbit(8.0), ..before.storage };
        Cluster { nodes: 100, storage, ..before }
    }

    /// The emulated IBM Blue Gene/P of section 5.3.
    pub fn blue_gene_p() -> Self {
        let teragrid = Cluster::teragrid_64(2_000_000_000);
        let storage = Storage { bytes_per_s: gbit(64.0), ..teragrid.storage };
        Cluster { nodes: 1024, cpus: 4, disk: None, memory_bytes_per_s: gbit(1.0), storage, ..teragrid }
    }

    /// The emulated SiCortex SC5832 of section 5.3.
    pub fn sicortex() -> Self {
        let teragrid = Cluster::teragrid_64(3_600_000_000);
        let storage = Storage { bytes_per_s: gbit(4.0), ..teragrid.storage };
        Cluster { nodes: 972, cpus: 6, disk: None, memory_bytes_per_s: gbit(1.0), storage, ..teragrid }
    }

    /// Processors of all nodes.
    pub fn processors(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.cpus)
    }

    /// As executors do.
    pub(crate) fn max_fetches(&self) -> usize {
        (2 * self.cpus as usize).max(4)
    }
}
