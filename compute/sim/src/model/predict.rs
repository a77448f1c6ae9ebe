//! The model of a workload on a cluster: the cost of an access, where objects are found, and how
//! long each resource is busy.
//!
//! A resource is busy for the time that it needs to serve the workload. The workload takes as long
//! as its busiest resource, so no prediction is below what any resource allows. The time on one
//! processor is the same computation for a cluster of one node with one processor. There, each
//! resource is busy at most `N` times as long, where `N` is the number of processors of the
//! cluster. So an efficiency above 1 has one cause only: the stores of all nodes together hold data
//! that does not fit in one node's store. [`Prediction::one_processor_ratios`] shows this.
//!
//! **Domain.** In its domain, the model agrees with the simulator within 15 %
//! (`compute/sim/tests/model.rs`, over random clusters and workloads). Tasks are alike, vary a
//! little in computing time, and read objects of one size, all equally often. All nodes exist from
//! the start and none fails. Nodes store nothing (first-available), or have room for all data.
//! [`Prediction::doubts`] says where a prediction leaves the domain.

use thiserror::Error;

use super::{
    Costs, Demand, Ratios, access_s, efficiency, speedup, sustained_per_s, utilisation, workload_s,
};
use crate::clock::MAX_TIME_US;
use crate::cluster::SimCluster;

/// The resource that limits the run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Processors.
    Processors,
    /// Persistent storage, at its rate to all nodes together.
    PersistentStorage,
    /// Persistent storage, at its rate to each node.
    StorageClients,
    /// Network cards of the receiving nodes.
    NetworkCards,
    /// The switch between all nodes and persistent storage.
    Switch,
    /// The number of objects that a node fetches at a time, each with its latency.
    Fetches,
    /// Disks of the nodes' stores.
    Stores,
    /// Decisions of the dispatchers.
    Dispatcher,
    /// The arrival of the tasks.
    Arrivals,
}

/// Time that each resource is busy, in seconds.
pub type BusyTimes = [(Limit, f64); 9];

/// The prediction of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Times of one access without contention.
    pub costs: Costs,
    /// Where objects are found, on the whole cluster.
    pub ratios: Ratios,
    /// Whether all data fits in the stores.
    pub fits: bool,
    /// `TK`: time of a task without contention, in seconds.
    pub task_s: f64,
    /// `T_N(D)`: run time of the workload, in seconds.
    pub time_s: f64,
    /// The resource that limits the run time.
    pub limit: Limit,
    /// Time that each resource is busy, in seconds; at most `time_s`.
    pub busy: BusyTimes,
    /// `T_1(D)`: run time on one processor of one node, in seconds.
    pub one_processor_s: f64,
    /// Where objects are found on one processor of one node.
    pub one_processor_ratios: Ratios,
    /// `SP`: speedup over one processor.
    pub speedup: f64,
    /// `EF`: speedup per processor.
    pub efficiency: f64,
    /// `A_max`: highest sustainable rate of arrival, in tasks per second.
    pub sustained_per_s: f64,
    /// `U`: utilisation of the processors.
    pub utilisation: f64,
    /// Bytes read from persistent storage.
    pub storage_bytes: f64,
    /// Bytes that nodes fetch from each other.
    pub peer_bytes: f64,
    /// Reasons why the prediction may be off by more than 15 %.
    pub doubts: Vec<Doubt>,
}

/// How a prediction leaves the domain in which the model is accurate within 15 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// Each processor has only this number of tasks, so the start and the end of the run matter.
    FewTasks(f64),
    /// Another resource is busy for this share of the time, so tasks wait for one while the other
    /// is idle.
    NearlyAsBusy(Limit, f64),
    /// Each object is read only this number of times, and stores help little while they fill.
    FewReads(f64),
    /// There are only this number of objects for each one that is being read, so several nodes
    /// fetch the same object at once, some of them from persistent storage.
    FewObjects(f64),
    /// The run takes only this number of seconds, so messages and waiting matter.
    Short(f64),
    /// All stores together have room for only this share of the data, so the stored objects depend
    /// on the policies.
    NoRoom(f64),
}

/// Why the model makes no prediction.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ModelError {
    /// A count is 0 that must not be.
    #[error("the number of {0} is 0: give at least 1")]
    None(&'static str),
    /// A share is not between 0 and 1.
    #[error("the share of {0} is {1}: give a number from 0 to 1")]
    NotAShare(&'static str, f64),
    /// A rate or time is not positive.
    #[error("the {0} is {1}: give a number above 0")]
    NotPositive(&'static str, f64),
    /// Neither computing nor reading nor deciding takes time.
    #[error("the workload takes no time: give a computing time or a size of objects")]
    NoTime,
    /// No store has room for a task's inputs.
    #[error("a task's inputs have {0} bytes, and a store only {1}: make stores larger")]
    TooSmall(u64, u64),
    /// The run time is above a hundred years.
    #[error(
        "{} would take more than a hundred years: give a smaller workload or higher rates",
        .0.cause()
    )]
    TooLong(Limit),
}

/// Tasks per processor from which the start and the end of a run do not matter.
const TASKS_PER_PROCESSOR: f64 = 20.0;
/// Largest share of the time that a second resource may be busy, where all tasks are alike from
/// first to last.
const OTHERS_BUSY: f64 = 0.45;
/// The same with stores, where first reads come before others, so that one resource is busy after
/// the other.
const OTHERS_BUSY_WITH_STORES: f64 = 0.2;
/// Objects per object being read, from which concurrent reads of one object do not matter.
const OBJECTS_PER_READ: f64 = 5.0;
/// Tasks that executors line up for each processor.
const LINED_UP: f64 = 3.0;
/// Run time in seconds from which messages and waiting do not matter.
const LONG_S: f64 = 20.0;
/// Reads per object from which the first read does not matter.
const READS_PER_OBJECT: f64 = 20.0;

/// Whether the resource is used by fetches.
fn is_fetching(limit: Limit) -> bool {
    use Limit::{Fetches, NetworkCards, PersistentStorage, StorageClients, Switch};
    matches!(limit, PersistentStorage | StorageClients | NetworkCards | Switch | Fetches)
}

impl Limit {
    /// What the resource does, as the subject of a sentence.
    fn cause(self) -> &'static str {
        match self {
            Limit::Processors => "computing",
            Limit::PersistentStorage | Limit::StorageClients => "reading from persistent storage",
            Limit::NetworkCards | Limit::Switch | Limit::Fetches => "fetching objects",
            Limit::Stores => "reading from stores",
            Limit::Dispatcher => "deciding where tasks go",
            Limit::Arrivals => "the arrival of all tasks",
        }
    }
}

/// Predicts the run time of a demand on a cluster, and its cause.
///
/// # Errors
/// If a task could never run, a number is invalid, or the run would take more than a hundred years.
pub fn predict(cluster: &SimCluster, demand: &Demand) -> Result<Prediction, ModelError> {
    check(cluster, demand)?;
    let (fits, ratios) = ratios(cluster, demand);
    let costs = costs(cluster, demand);
    let busy = busy(cluster, demand, costs, ratios);
    let (limit, time_s) = longest(&busy);
    if time_s.is_nan() || time_s > MAX_TIME_US as f64 / 1e6 {
        return Err(ModelError::TooLong(limit));
    }
    let but_arriving = busy.iter().filter(|(limit, _)| *limit != Limit::Arrivals);
    let busiest_s = but_arriving.map(|(_, busy_s)| *busy_s).fold(0.0, f64::max);
    if busiest_s == 0.0 {
        return Err(ModelError::NoTime);
    }
    let alone = SimCluster { nodes: 1, cpus: 1, dispatchers: 1, ..cluster.clone() };
    let one_processor_ratios = self::ratios(&alone, demand).1;
    let one_busy = self::busy(&alone, demand, self::costs(&alone, demand), one_processor_ratios);
    let (_, one_processor_s) = longest(&one_busy);

    let (tasks, processors) = (demand.tasks as f64, cluster.processors() as f64);
    let bytes = tasks * f64::from(demand.inputs) * demand.object_bytes as f64;
    // Time of a task under contention, so that equations 9 and 10 hold for whichever resource is
    // busiest.
    let crowded_s = busiest_s * processors / tasks;
    let speedup = speedup(one_processor_s, time_s);
    Ok(Prediction {
        costs,
        ratios,
        fits,
        task_s: task_s(cluster, demand, costs, ratios),
        time_s,
        limit,
        busy,
        one_processor_s,
        one_processor_ratios,
        speedup,
        efficiency: efficiency(speedup, processors),
        sustained_per_s: sustained_per_s(crowded_s, processors, 1.0),
        utilisation: utilisation(tasks / time_s, crowded_s, processors, 1.0),
        storage_bytes: bytes * ratios.storage,
        peer_bytes: bytes * ratios.peer,
        doubts: doubts(cluster, demand, &busy, (limit, time_s)),
    })
}

/// The busiest resource, and the time that it is busy.
fn longest(busy: &BusyTimes) -> (Limit, f64) {
    *busy.iter().max_by(|one, other| one.1.total_cmp(&other.1)).expect("there are some")
}

/// Time that each resource is busy.
fn busy(cluster: &SimCluster, demand: &Demand, costs: Costs, ratios: Ratios) -> BusyTimes {
    let (nodes, processors) = (f64::from(cluster.nodes), cluster.processors() as f64);
    let (tasks, inputs) = (demand.tasks as f64, f64::from(demand.inputs));
    let fetching_s = inputs * (costs.peer_s * ratios.peer + costs.storage_s * ratios.storage);
    let reading_s =
        inputs * (costs.local_s * ratios.local + memory_s(cluster, demand) * (1.0 - ratios.local));
    let task_s = task_s(cluster, demand, costs, ratios);
    // With overlap, a task occupies a processor only to read fetched inputs and to compute.
    let holding_s = if demand.overlap { demand.compute_s + reading_s } else { task_s };
    // Tasks run in rounds of one task per processor. A partial last round takes as long as a whole
    // one.
    let rounds = (tasks / processors).max(1.0);
    let bytes = tasks * inputs * demand.object_bytes as f64;
    let storage_bytes = bytes * ratios.storage;
    let received_bytes = bytes * (ratios.storage + ratios.peer);
    let from_disk = 1.0 - paged(cluster, demand);
    let read_bytes = bytes * (ratios.local + ratios.peer) * from_disk;
    // The rate of all nodes together, from the rate of one.
    let rate = |bytes_per_s: Option<f64>| nodes * bytes_per_s.unwrap_or(f64::INFINITY);
    let stores_s = (read_bytes / rate(cluster.disk.map(|disk| disk.read_bytes_per_s)))
        .max(received_bytes / rate(written_per_s(cluster, demand)));
    let at_once = cluster.max_fetches() as f64;
    [
        (Limit::Processors, workload_s(rounds * processors, holding_s, processors)),
        (Limit::PersistentStorage, storage_bytes / cluster.storage.bytes_per_s),
        (Limit::StorageClients, storage_bytes / rate(cluster.storage.client_bytes_per_s)),
        (Limit::NetworkCards, received_bytes / rate(Some(cluster.card_bytes_per_s))),
        (Limit::Switch, received_bytes / cluster.bisection_bytes_per_s.unwrap_or(f64::INFINITY)),
        // The larger of the time for all tasks and the time for a single one.
        (
            Limit::Fetches,
            (tasks * fetching_s / (nodes * at_once)).max(fetching_s / at_once.min(inputs)),
        ),
        (Limit::Stores, stores_s),
        (
            Limit::Dispatcher,
            tasks * cluster.decision_ns as f64 / f64::from(cluster.dispatchers.max(1)) / 1e9,
        ),
        (Limit::Arrivals, demand.arriving_per_s.map_or(0.0, |per_s| tasks / per_s)),
    ]
}

fn doubts(
    cluster: &SimCluster,
    demand: &Demand,
    busy: &BusyTimes,
    (limit, time_s): (Limit, f64),
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let tasks = demand.tasks as f64 / cluster.processors() as f64;
    if tasks < TASKS_PER_PROCESSOR {
        doubts.push(Doubt::FewTasks(tasks));
    }
    let others = busy
        .iter()
        .filter(|(other, _)| *other != limit)
        .map(|(other, busy_s)| (*other, busy_s / time_s));
    if let Some((other, share)) = others.max_by(|one, other| one.1.total_cmp(&other.1))
        && share > if stores_nothing(demand) { OTHERS_BUSY } else { OTHERS_BUSY_WITH_STORES }
    {
        doubts.push(Doubt::NearlyAsBusy(other, share));
    }
    if time_s < LONG_S {
        doubts.push(Doubt::Short(time_s));
    }
    if !stores_nothing(demand) {
        // When fetching is the limit, each processor also has lined-up tasks that fetch.
        let tasks_at_once = if is_fetching(limit) { 1.0 + LINED_UP } else { 1.0 };
        let at_once = cluster.processors() as f64 * f64::from(demand.inputs) * tasks_at_once;
        let objects = demand.objects as f64 / at_once;
        if objects < OBJECTS_PER_READ {
            doubts.push(Doubt::FewObjects(objects));
        }
        let reads = demand.tasks as f64 * f64::from(demand.inputs) / demand.objects as f64;
        if reads < READS_PER_OBJECT {
            doubts.push(Doubt::FewReads(reads));
        }
        let room = room(cluster, demand);
        if room < 1.0 {
            doubts.push(Doubt::NoRoom(room));
        }
    }
    doubts
}

fn check(cluster: &SimCluster, demand: &Demand) -> Result<(), ModelError> {
    let counts = [
        ("nodes", u64::from(cluster.nodes)),
        ("processors", cluster.cpus.into()),
        ("dispatchers", cluster.dispatchers.into()),
        ("tasks", demand.tasks),
        ("inputs", demand.inputs.into()),
        ("objects", demand.objects),
    ];
    if let Some((what, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
        return Err(ModelError::None(what));
    }
    let shares = [("misses", demand.misses.unwrap_or(0.0)), ("hits at peers", demand.peer_hits)];
    if let Some((what, share)) = shares.into_iter().find(|(_, share)| !(0.0..=1.0).contains(share))
    {
        return Err(ModelError::NotAShare(what, share));
    }
    let rates = [
        ("rate of persistent storage", Some(cluster.storage.bytes_per_s)),
        ("rate of persistent storage for each node", cluster.storage.client_bytes_per_s),
        ("rate of network cards", Some(cluster.card_bytes_per_s)),
        ("rate of the switch", cluster.bisection_bytes_per_s),
        ("rate of memory", Some(cluster.memory_bytes_per_s)),
        ("rate at which disks read", cluster.disk.map(|disk| disk.read_bytes_per_s)),
        ("rate at which disks write", cluster.disk.map(|disk| disk.write_bytes_per_s)),
        ("rate at which tasks come", demand.arriving_per_s),
    ];
    let is_none = |rate: f64| rate.is_nan() || rate <= 0.0;
    if let Some((what, Some(rate))) = rates.into_iter().find(|(_, rate)| rate.is_some_and(is_none))
    {
        return Err(ModelError::NotPositive(what, rate));
    }
    if demand.compute_s.is_nan() || demand.compute_s < 0.0 {
        return Err(ModelError::NotPositive("time that a task computes", demand.compute_s));
    }
    let inputs_bytes = u64::from(demand.inputs).saturating_mul(demand.object_bytes);
    if !stores_nothing(demand) && inputs_bytes > cluster.cache_bytes {
        return Err(ModelError::TooSmall(inputs_bytes, cluster.cache_bytes));
    }
    Ok(())
}

/// `TK`: time of a task without contention, in seconds. This is equation 4 times the number of
/// inputs, except that inputs fetched together wait for their first bytes only once.
fn task_s(cluster: &SimCluster, demand: &Demand, costs: Costs, ratios: Ratios) -> f64 {
    let inputs = f64::from(demand.inputs);
    let rounds = (inputs / cluster.max_fetches() as f64).ceil();
    let saved_s = |latency_ns: u64, ratio: f64| {
        // Number of waits for the inputs from this source, where inputs that wait together count
        // once.
        let waits = rounds * (1.0 - libm::pow(1.0 - ratio, inputs / rounds));
        (inputs * ratio - waits).max(0.0) * latency_ns as f64 / 1e9
    };
    let saved_s = saved_s(cluster.peer_latency_ns, ratios.peer)
        + saved_s(cluster.storage.latency_ns, ratios.storage);
    inputs * access_s(costs, ratios) - saved_s
}

/// Whether nodes store nothing, as under first-available.
fn stores_nothing(demand: &Demand) -> bool {
    demand.misses == Some(1.0)
}

/// Share of the data that fits in all stores together.
fn room(cluster: &SimCluster, demand: &Demand) -> f64 {
    let stores_bytes = f64::from(cluster.nodes) * cluster.cache_bytes as f64;
    let data_bytes = demand.objects as f64 * demand.object_bytes as f64;
    if data_bytes > stores_bytes { stores_bytes / data_bytes } else { 1.0 }
}

/// Whether all data fits in the stores, and where objects are found.
fn ratios(cluster: &SimCluster, demand: &Demand) -> (bool, Ratios) {
    let room = room(cluster, demand);
    let accesses = demand.tasks as f64 * f64::from(demand.inputs);
    let first = (demand.objects as f64 / accesses).min(1.0);
    let storage = demand.misses.unwrap_or(first + (1.0 - first) * (1.0 - room));
    let peer = (1.0 - storage) * demand.peer_hits;
    (room == 1.0, Ratios { local: 1.0 - storage - peer, peer, storage })
}

/// Times of one access without contention: a fetched object is written to the store and read from
/// memory. The computing time of a task is divided by its number of inputs.
fn costs(cluster: &SimCluster, demand: &Demand) -> Costs {
    let bytes = demand.object_bytes as f64;
    let storage = &cluster.storage;
    let least = |rates: [Option<f64>; 2], rate| rates.into_iter().flatten().fold(rate, f64::min);
    let from_peer_per_s = least(
        [written_per_s(cluster, demand), cluster.bisection_bytes_per_s],
        cluster.card_bytes_per_s,
    );
    let from_storage_per_s =
        least([Some(storage.bytes_per_s), storage.client_bytes_per_s], from_peer_per_s);
    let memory_s = memory_s(cluster, demand);
    let paged = paged(cluster, demand);
    let disk_s = cluster.disk.map_or(memory_s, |disk| bytes / disk.read_bytes_per_s);
    Costs {
        local_s: paged * memory_s + (1.0 - paged) * disk_s,
        peer_s: cluster.peer_latency_ns as f64 / 1e9 + bytes / from_peer_per_s + memory_s,
        storage_s: storage.latency_ns as f64 / 1e9 + bytes / from_storage_per_s + memory_s,
        compute_s: demand.compute_s / f64::from(demand.inputs),
    }
}

/// Time to read an object from memory, in seconds.
fn memory_s(cluster: &SimCluster, demand: &Demand) -> f64 {
    demand.object_bytes as f64 / cluster.memory_bytes_per_s
}

/// Share of reads from a node's own store that its page cache serves: the share of the node's data
/// that fits in the cache, if each object is on one node and all are read equally often.
fn paged(cluster: &SimCluster, demand: &Demand) -> f64 {
    if cluster.disk.is_none() {
        return 1.0;
    }
    let data_bytes = demand.objects as f64 * demand.object_bytes as f64 / f64::from(cluster.nodes);
    let stored_bytes = data_bytes.min(cluster.cache_bytes as f64);
    if stored_bytes > 0.0 { (cluster.page_cache_bytes as f64 / stored_bytes).min(1.0) } else { 1.0 }
}

/// Rate at which a node can write to its store, if the store is on a disk and anything is stored.
fn written_per_s(cluster: &SimCluster, demand: &Demand) -> Option<f64> {
    cluster.disk.filter(|_| !stores_nothing(demand)).map(|disk| disk.write_bytes_per_s)
}
