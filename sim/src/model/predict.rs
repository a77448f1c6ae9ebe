//! The model of a workload on a cluster: the cost of an access, where objects are found, and how long each resource is busy.
//!
//! A resource is busy for as long as it takes to serve all that the workload asks of it. The workload takes as long as the
//! resource that is busy the longest, so that no prediction is below what any resource allows. The time on one processor is
//! the same sum for a cluster of one node with one processor: each resource of it is busy at most as many times longer as the
//! cluster has processors. So an efficiency above 1 has one cause only: the stores of all nodes hold data for which one
//! node's store has no room. [`Prediction::one_processor_ratios`] shows it.
//!
//! **Domain.** In it, model and simulator agree within 15 % (`sim/tests/model.rs`, over random clusters and workloads).
//! Tasks are alike, vary a little in what they compute, and read objects of one size, all equally often; the nodes are all
//! there, and none fails; nodes store nothing (first-available), or have room for all data. [`Prediction::doubts`] says
//! where a prediction leaves it.

use thiserror::Error;

use super::{Costs, Demand, Ratios, access_s, efficiency, speedup, sustained_per_s, utilisation, workload_s};
use crate::clock::MAX_TIME_US;
use crate::cluster::Cluster;

/// What takes the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Processors.
    Processors,
    /// What persistent storage gives to all nodes together.
    PersistentStorage,
    /// What persistent storage gives to each node.
    StorageClients,
    /// What nodes can receive.
    NetworkCards,
    /// What the switch between all nodes and persistent storage carries.
    Switch,
    /// Nodes fetch some objects at a time, and each takes its time to come.
    Fetches,
    /// What nodes can read from their stores, or write into them.
    Stores,
    /// The dispatchers' decisions.
    Dispatcher,
    /// Tasks come no faster.
    Arrivals,
}

/// How long each resource is busy, seconds.
pub type Busy = [(Limit, f64); 9];

/// What the model says.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// What each access costs while nobody else is in the way.
    pub costs: Costs,
    /// Where objects are found.
    pub ratios: Ratios,
    /// Whether all data fits in the stores.
    pub fits: bool,
    /// `TK`: a task, while nobody else is in the way, seconds.
    pub task_s: f64,
    /// `T_N(D)`: the whole, seconds.
    pub time_s: f64,
    /// Why it does not take less.
    pub limit: Limit,
    /// How long each resource is busy; none longer than `time_s`.
    pub busy: Busy,
    /// `T_1(D)`: on one processor of one node, seconds.
    pub one_processor_s: f64,
    /// Where objects are found there.
    pub one_processor_ratios: Ratios,
    /// `SP`.
    pub speedup: f64,
    /// `EF`.
    pub efficiency: f64,
    /// `A_max`: tasks a second.
    pub sustained_per_s: f64,
    /// `U`.
    pub utilisation: f64,
    /// Bytes that persistent storage gives.
    pub storage_bytes: f64,
    /// Bytes that nodes give each other.
    pub peer_bytes: f64,
    /// Why it may be off by more than 15 %.
    pub doubts: Vec<Doubt>,
}

/// How a prediction leaves the domain in which the model is good to 15 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// A processor has this many tasks only, so that beginning and end count.
    FewTasks(f64),
    /// Another resource is nearly as busy, this share of the time: tasks wait for the one while the other is idle.
    NearlyAsBusy(Limit, f64),
    /// An object is read this many times only: while stores fill, they are of little use.
    FewReads(f64),
    /// There are this many objects for each that is read at a time only: several nodes get the same object at once, some of
    /// them from persistent storage.
    FewObjects(f64),
    /// It takes this many seconds only: waiting for messages and for each other counts.
    Short(f64),
    /// The stores of all nodes have room for this share of the data only: which objects are there depends on the policies.
    NoRoom(f64),
}

/// Why there is nothing to predict.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ModelError {
    /// Something is 0 that cannot be.
    #[error("there are no {0}: give at least one")]
    None(&'static str),
    /// A share is not one.
    #[error("the share of {0} is {1}: give a number from 0 to 1")]
    NotAShare(&'static str, f64),
    /// A rate or a time is not one.
    #[error("the {0} is {1}: give a number above 0")]
    NotPositive(&'static str, f64),
    /// Neither computing nor reading nor deciding takes any time.
    #[error("nothing takes any time: let tasks compute, or objects have a size")]
    NoTime,
    /// No node can run any task.
    #[error("a task's inputs have {0} bytes, a store only {1}: give it at least as many, or nothing is stored")]
    TooSmall(u64, u64),
    /// It takes longer than simulated time can count.
    #[error("{} would take more than a hundred years: give the model other numbers", .0.cause())]
    TooLong(Limit),
}

/// Tasks for each processor from which beginning and end do not count.
const TASKS_PER_PROCESSOR: f64 = 20.0;
/// No other resource may be busy for a larger share of the time, where all tasks are alike from the first to the last.
const OTHERS_BUSY: f64 = 0.45;
/// The same where first reads come before others, so that one resource is busy after the other.
const OTHERS_BUSY_WITH_STORES: f64 = 0.2;
/// Objects for each that is read at a time, from which it matters little that several nodes read one.
const OBJECTS_PER_READ: f64 = 5.0;
/// Tasks that are lined up for each processor, as executors do it.
const LINED_UP: f64 = 3.0;
/// Seconds from which messages and waiting do not count.
const LONG_S: f64 = 20.0;
/// Reads of an object from which its first does not count.
const READS_PER_OBJECT: f64 = 20.0;

/// Whether a resource is busy with bringing objects to nodes.
fn is_fetching(limit: Limit) -> bool {
    use Limit::{Fetches, NetworkCards, PersistentStorage, StorageClients, Switch};
    matches!(limit, PersistentStorage | StorageClients | NetworkCards | Switch | Fetches)
}

impl Limit {
    /// As the subject of a sentence.
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

/// How long the demand takes on the cluster, and why.
///
/// # Errors
/// If a task could never run, a number is none, or it would take more than a hundred years.
pub fn predict(cluster: &Cluster, demand: &Demand) -> Result<Prediction, ModelError> {
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
    let alone = Cluster { nodes: 1, cpus: 1, dispatchers: 1, ..cluster.clone() };
    let one_processor_ratios = self::ratios(&alone, demand).1;
    let one_busy = self::busy(&alone, demand, self::costs(&alone, demand), one_processor_ratios);
    let (_, one_processor_s) = longest(&one_busy);

    let (tasks, processors) = (demand.tasks as f64, cluster.processors() as f64);
    let bytes = tasks * f64::from(demand.inputs) * demand.object_bytes as f64;
    // What a task takes when all are in each other's way, so that equations 9 and 10 hold for whatever is the busiest.
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

/// The resource that is busy the longest, and how long.
fn longest(busy: &Busy) -> (Limit, f64) {
    *busy.iter().max_by(|one, other| one.1.total_cmp(&other.1)).expect("there are some")
}

/// How long each resource is busy.
fn busy(cluster: &Cluster, demand: &Demand, costs: Costs, ratios: Ratios) -> Busy {
    let (nodes, processors) = (f64::from(cluster.nodes), cluster.processors() as f64);
    let (tasks, inputs) = (demand.tasks as f64, f64::from(demand.inputs));
    let fetching_s = inputs * (costs.peer_s * ratios.peer + costs.storage_s * ratios.storage);
    let reading_s = inputs * (costs.local_s * ratios.local + memory_s(cluster, demand) * (1.0 - ratios.local));
    let task_s = task_s(cluster, demand, costs, ratios);
    // While others compute in its place, a task has a processor only to read what has come, and to compute.
    let holding_s = if demand.overlap { demand.compute_s + reading_s } else { task_s };
    // As many tasks as there are processors go side by side: what is left of the last round takes as long as a round.
    let rounds = (tasks / processors).max(1.0);
    let bytes = tasks * inputs * demand.object_bytes as f64;
    let storage_bytes = bytes * ratios.storage;
    let received_bytes = bytes * (ratios.storage + ratios.peer);
    let from_disk = 1.0 - paged(cluster, demand);
    let read_bytes = bytes * (ratios.local + ratios.peer) * from_disk;
    // Of each node.
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
        // Of all tasks, and of a single one.
        (Limit::Fetches, (tasks * fetching_s / (nodes * at_once)).max(fetching_s / at_once.min(inputs))),
        (Limit::Stores, stores_s),
        (Limit::Dispatcher, tasks * cluster.decision_ns as f64 / f64::from(cluster.dispatchers.max(1)) / 1e9),
        (Limit::Arrivals, demand.arriving_per_s.map_or(0.0, |per_s| tasks / per_s)),
    ]
}

fn doubts(cluster: &Cluster, demand: &Demand, busy: &Busy, (limit, time_s): (Limit, f64)) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let tasks = demand.tasks as f64 / cluster.processors() as f64;
    if tasks < TASKS_PER_PROCESSOR {
        doubts.push(Doubt::FewTasks(tasks));
    }
    let others = busy.iter().filter(|(other, _)| *other != limit).map(|(other, busy_s)| (*other, busy_s / time_s));
    if let Some((other, share)) = others.max_by(|one, other| one.1.total_cmp(&other.1))
        && share > if stores_nothing(demand) { OTHERS_BUSY } else { OTHERS_BUSY_WITH_STORES }
    {
        doubts.push(Doubt::NearlyAsBusy(other, share));
    }
    if time_s < LONG_S {
        doubts.push(Doubt::Short(time_s));
    }
    if !stores_nothing(demand) {
        // Where fetching takes the longest, tasks are lined up at each processor to fetch what they read.
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

fn check(cluster: &Cluster, demand: &Demand) -> Result<(), ModelError> {
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
    if let Some((what, share)) = shares.into_iter().find(|(_, share)| !(0.0..=1.0).contains(share)) {
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
    if let Some((what, Some(rate))) = rates.into_iter().find(|(_, rate)| rate.is_some_and(is_none)) {
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

/// `TK`: a task, while nobody else is in the way, seconds. It is inputs times equation 4, but that a task's inputs are asked for
/// at once: it waits once until the first bytes come.
fn task_s(cluster: &Cluster, demand: &Demand, costs: Costs, ratios: Ratios) -> f64 {
    let inputs = f64::from(demand.inputs);
    let rounds = (inputs / cluster.max_fetches() as f64).ceil();
    let saved_s = |latency_ns: u64, ratio: f64| {
        // Of the inputs that come from there, as many as are waited for together with another.
        let waits = rounds * (1.0 - libm::pow(1.0 - ratio, inputs / rounds));
        (inputs * ratio - waits).max(0.0) * latency_ns as f64 / 1e9
    };
    let saved_s = saved_s(cluster.peer_latency_ns, ratios.peer) + saved_s(cluster.storage.latency_ns, ratios.storage);
    inputs * access_s(costs, ratios) - saved_s
}

/// Whether nodes store nothing, as under first-available.
fn stores_nothing(demand: &Demand) -> bool {
    demand.misses == Some(1.0)
}

/// The share of all data for which the stores have room.
fn room(cluster: &Cluster, demand: &Demand) -> f64 {
    let stores_bytes = f64::from(cluster.nodes) * cluster.cache_bytes as f64;
    let data_bytes = demand.objects as f64 * demand.object_bytes as f64;
    if data_bytes > stores_bytes { stores_bytes / data_bytes } else { 1.0 }
}

/// Whether all data fits in the stores, and where objects are found.
fn ratios(cluster: &Cluster, demand: &Demand) -> (bool, Ratios) {
    let room = room(cluster, demand);
    let accesses = demand.tasks as f64 * f64::from(demand.inputs);
    let first = (demand.objects as f64 / accesses).min(1.0);
    let storage = demand.misses.unwrap_or(first + (1.0 - first) * (1.0 - room));
    let peer = (1.0 - storage) * demand.peer_hits;
    (room == 1.0, Ratios { local: 1.0 - storage - peer, peer, storage })
}

/// What each access costs while nobody else is in the way: what comes is written into the store, and read from memory.
/// Computing is for one access: a task's, divided by its inputs.
fn costs(cluster: &Cluster, demand: &Demand) -> Costs {
    let bytes = demand.object_bytes as f64;
    let storage = &cluster.storage;
    let least = |rates: [Option<f64>; 2], rate| rates.into_iter().flatten().fold(rate, f64::min);
    let from_peer_per_s =
        least([written_per_s(cluster, demand), cluster.bisection_bytes_per_s], cluster.card_bytes_per_s);
    let from_storage_per_s = least([Some(storage.bytes_per_s), storage.client_bytes_per_s], from_peer_per_s);
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

/// How long a task reads an object that is in memory.
fn memory_s(cluster: &Cluster, demand: &Demand) -> f64 {
    demand.object_bytes as f64 / cluster.memory_bytes_per_s
}

/// The share of reads from a node's own store that its page cache serves: that of its data which it has room for, where each
/// object is on one node and all are read equally often.
fn paged(cluster: &Cluster, demand: &Demand) -> f64 {
    if cluster.disk.is_none() {
        return 1.0;
    }
    let data_bytes = demand.objects as f64 * demand.object_bytes as f64 / f64::from(cluster.nodes);
    let stored_bytes = data_bytes.min(cluster.cache_bytes as f64);
    if stored_bytes > 0.0 { (cluster.page_cache_bytes as f64 / stored_bytes).min(1.0) } else { 1.0 }
}

/// What a node writes into its store in a second, if that is on a disk and anything is stored.
fn written_per_s(cluster: &Cluster, demand: &Demand) -> Option<f64> {
    cluster.disk.filter(|_| !stores_nothing(demand)).map(|disk| disk.write_bytes_per_s)
}
