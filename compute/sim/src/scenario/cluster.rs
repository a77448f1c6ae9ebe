//! `[cluster]` and `[policies]`.

use std::fmt::Display;
use std::num::NonZero;
use std::str::FromStr;

use eyas_sched::HolderPatience;
use eyas_types::{Distribution, EvictionPolicy, PlacementPolicy};
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::amount::{Count, Rate, Share, Size, Time};
use crate::clock::MICROSECOND;
use crate::cluster::{Disk, EYAS_DECISION_NS, Policies, SimCluster, TaskPartitioning};

/// Most nodes of a cluster.
pub(super) const MAX_NODES: u32 = 1_000_000;
/// Most processors of a node, as for real executors.
const MAX_SLOTS: u32 = 65_536;

/// `[cluster]`: differences from the machine named by `like`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClusterFields {
    like: Machine,
    nodes: Option<Count<MAX_NODES>>,
    slots: Option<Count<MAX_SLOTS>>,
    pub cache: Option<toml::Spanned<Size>>,
    store: Option<Medium>,
    disk_read: Option<Rate>,
    disk_write: Option<Rate>,
    memory: Option<Rate>,
    link: Option<Rate>,
    bisection: Option<Rate>,
    storage: Option<Rate>,
    storage_client: Option<Rate>,
    storage_latency: Option<Time>,
    peer_latency: Option<Time>,
    message: Option<Time>,
    pub dispatchers: Option<toml::Spanned<Count<MAX_NODES>>>,
    decision: Option<Time>,
    catalog_delay: Option<Time>,
}

/// A machine of the paper.
#[derive(Clone, Copy, Default, Deserialize)]
enum Machine {
    #[default]
    #[serde(rename = "teragrid-64")]
    Teragrid64,
    #[serde(rename = "teragrid-100")]
    Teragrid100,
    #[serde(rename = "blue-gene-p")]
    BlueGeneP,
    #[serde(rename = "sicortex")]
    Sicortex,
}

/// The medium of stores.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Medium {
    Disk,
    Memory,
}

/// Default size of stores of the paper's first cluster. Section 5.1 used 1 GB to 4 GB.
const TERAGRID_CACHE_BYTES: u64 = 4_000_000_000;

impl ClusterFields {
    pub fn cluster(&self) -> SimCluster {
        let mut cluster = match self.like {
            Machine::Teragrid64 => SimCluster::teragrid_64(TERAGRID_CACHE_BYTES),
            Machine::Teragrid100 => SimCluster::teragrid_100(TERAGRID_CACHE_BYTES),
            Machine::BlueGeneP => SimCluster::blue_gene_p(),
            Machine::Sicortex => SimCluster::sicortex(),
        };
        cluster.decision_ns = EYAS_DECISION_NS;
        let set = |to: &mut f64, rate: Option<Rate>| *to = rate.map_or(*to, |rate| rate.0);
        let set_ns =
            |to: &mut u64, time: Option<Time>| *to = time.map_or(*to, |time| time.0 * MICROSECOND);
        cluster.nodes = self.nodes.map_or(cluster.nodes, |count| count.0);
        cluster.cpus = self.slots.map_or(cluster.cpus, |count| count.0);
        cluster.cache_bytes =
            self.cache.as_ref().map_or(cluster.cache_bytes, |size| size.get_ref().0);
        set(&mut cluster.memory_bytes_per_s, self.memory);
        set(&mut cluster.card_bytes_per_s, self.link);
        cluster.bisection_bytes_per_s = self.bisection.map(|rate| rate.0);
        set(&mut cluster.storage.bytes_per_s, self.storage);
        cluster.storage.client_bytes_per_s = self.storage_client.map(|rate| rate.0);
        set_ns(&mut cluster.storage.latency_ns, self.storage_latency);
        set_ns(&mut cluster.peer_latency_ns, self.peer_latency);
        set_ns(&mut cluster.message_ns, self.message);
        cluster.dispatchers =
            self.dispatchers.as_ref().map_or(cluster.dispatchers, |count| count.get_ref().0);
        set_ns(&mut cluster.decision_ns, self.decision);
        set_ns(&mut cluster.catalog_delay_ns, self.catalog_delay);
        self.set_disk(&mut cluster);
        cluster
    }

    /// Sets the disk. A scenario that gives a disk rate has a disk; a machine without a disk then
    /// takes the other rate from the paper's clusters.
    fn set_disk(&self, cluster: &mut SimCluster) {
        let names_disk = self.disk_read.is_some() || self.disk_write.is_some();
        match self.store {
            Some(Medium::Memory) => cluster.disk = None,
            None if cluster.disk.is_none() && !names_disk => {}
            _ => {
                let usual = Disk { read_bytes_per_s: 148e6, write_bytes_per_s: 73e6 };
                let Disk { read_bytes_per_s, write_bytes_per_s } = cluster.disk.unwrap_or(usual);
                cluster.disk = Some(Disk {
                    read_bytes_per_s: self.disk_read.map_or(read_bytes_per_s, |rate| rate.0),
                    write_bytes_per_s: self.disk_write.map_or(write_bytes_per_s, |rate| rate.0),
                });
            }
        }
    }
}

/// `[policies]`: differences from the policies named by `like`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PolicyFields {
    like: Like,
    #[serde(deserialize_with = "named")]
    placement: Option<PlacementPolicy>,
    #[serde(deserialize_with = "named")]
    eviction: Option<EvictionPolicy>,
    utilisation: Option<Share>,
    min_cache_hit: Option<Share>,
    window: Option<Count<{ u32::MAX }>>,
    patience: PatienceField,
    relays: Option<bool>,
    hits_first: Option<bool>,
    spread: Option<bool>,
    overlap: Option<bool>,
    deal: TaskPartitioning,
    #[serde(deserialize_with = "named")]
    distribution: Option<Distribution>,
}

/// How long a task waits for its holders: as `like` says, a number of tasks, or `"off"` for ever.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(untagged, expecting = "`patience` is a number of tasks from 1, or \"off\"")]
enum PatienceField {
    #[default]
    AsLike,
    Tasks(NonZero<u32>),
    Off(Off),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Off {
    Off,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Like {
    #[default]
    Eyas,
    Paper,
}

impl PolicyFields {
    pub fn policies(&self) -> Policies {
        let placement = self.placement.unwrap_or(PlacementPolicy::Cost);
        let mut policies = match self.like {
            Like::Eyas => Policies::of_eyas(placement),
            Like::Paper => Policies::of_the_paper(placement),
        };
        policies.eviction = self.eviction.unwrap_or(policies.eviction);
        policies.utilisation_threshold =
            self.utilisation.map_or(policies.utilisation_threshold, |share| share.0);
        policies.min_cache_hit = self.min_cache_hit.map_or(policies.min_cache_hit, |share| share.0);
        policies.patience = match self.patience {
            PatienceField::AsLike => policies.patience,
            PatienceField::Tasks(tasks) => HolderPatience::Tasks(u64::from(tasks.get())),
            PatienceField::Off(Off::Off) => HolderPatience::Unlimited,
        };
        policies.window = self.window.map(|count| count.0.into()).or(policies.window);
        policies.relays = self.relays.unwrap_or(policies.relays);
        policies.hits_first = self.hits_first.unwrap_or(policies.hits_first);
        policies.spread = self.spread.unwrap_or(policies.spread);
        policies.overlap = self.overlap.unwrap_or(policies.overlap);
        policies.partitioning = self.deal;
        policies.distribution = self.distribution;
        policies
    }
}

/// A policy by its name.
pub(super) fn named<'de, D: Deserializer<'de>, P: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<Option<P>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}
