//! The abstract model: how long a workload takes on a cluster, by arithmetic alone (data-diffusion §3.1).
//!
//! The first half of this file is the paper's equations 1 to 10, each a function with units in its names. The second
//! applies them to a cluster and the demand of a workload, [`predict`]: it derives what an access costs, estimates where
//! objects are found, and takes the time of whatever is the busiest, because an average cost says nothing of a resource
//! that all share.
//!
//! Three of the equations are printed with a slip, and are here as their text and their units need them:
//!
//! - Equation 5 sums the times of all tasks and calls it the time on `N` processors. They work at the same time: it is
//!   divided by `N`, without which the speedup of equation 6 would be 1.
//! - Equation 8 has its bounds the wrong way round: the larger cost is sustained at the lower rate.
//! - Equation 9 multiplies the rate by `K`, because its `T` is the sum of equation 5 over `K` tasks; in equation 10 `T` is
//!   that of one task. Here it is that of one task in both.

use thiserror::Error;

use crate::cluster::{Cluster, Policies};
use crate::workload::Workload;

/// What computing on one object takes, and having it; averages, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// `R_l`: reading it from the node's own store.
    pub local_s: f64,
    /// `R_c`: getting it from another node's store.
    pub peer_s: f64,
    /// `R_s`: getting it from persistent storage.
    pub storage_s: f64,
    /// `C`: computing, for each access.
    pub compute_s: f64,
}

/// Shares of all accesses; together 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// `HR_l`: found in the node's own store.
    pub local: f64,
    /// `HR_c`: found in another node's.
    pub peer: f64,
    /// `HR_s`: found in no store.
    pub storage: f64,
}

/// Equation 1: the least and the most that computing with one access takes, `T`, seconds; whether all data `fits` in the
/// stores decides between the regimes.
pub fn access_range_s(costs: Costs, fits: bool) -> (f64, f64) {
    let Costs { local_s, peer_s, storage_s, compute_s } = costs;
    if fits { (local_s + compute_s, peer_s + compute_s) } else { (peer_s + compute_s, storage_s + compute_s) }
}

/// Equations 2 to 4: what computing with one access takes on average, `T` and `TK`, seconds. Equation 2 is this with the
/// ratio left out that is 0 in its regime, equation 4 the same sum with `C` outside.
pub fn access_s(costs: Costs, ratios: Ratios) -> f64 {
    costs.compute_s + costs.local_s * ratios.local + costs.peer_s * ratios.peer + costs.storage_s * ratios.storage
}

/// Equation 5: the time of `tasks` tasks of `task_s` each on `processors` that are never idle, `T_N(D)`, seconds.
pub fn workload_s(tasks: f64, task_s: f64, processors: f64) -> f64 {
    tasks * task_s / processors
}

/// Equation 6: how many times as fast as one processor, `SP`.
pub fn speedup(one_processor_s: f64, all_s: f64) -> f64 {
    one_processor_s / all_s
}

/// Equation 7: the share of all processors that the speedup is, `EF`.
pub fn efficiency(speedup: f64, processors: f64) -> f64 {
    speedup / processors
}

/// Equation 8: between which rates of arrival the most that can be sustained is, `A_max`, tasks a second; `speed` is that
/// of a processor, `P`, where costs are for 1.
pub fn sustained_range_per_s(costs: Costs, fits: bool, processors: f64, speed: f64) -> (f64, f64) {
    let (least_s, most_s) = access_range_s(costs, fits);
    (sustained_per_s(most_s, processors, speed), sustained_per_s(least_s, processors, speed))
}

/// Equation 9: the rate of arrival that keeps `processors` just busy, `A`, tasks a second.
pub fn sustained_per_s(task_s: f64, processors: f64, speed: f64) -> f64 {
    processors * speed / task_s
}

/// Equation 10: the share of processors in use when so many tasks come in a second, `U`; more than 1 is more than they can
/// do. Moving data counts as use.
pub fn utilisation(arriving_per_s: f64, task_s: f64, processors: f64, speed: f64) -> f64 {
    arriving_per_s * task_s / (processors * speed)
}

/// What a workload asks of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// `K`.
    pub tasks: u64,
    /// Objects that each task reads.
    pub inputs: u32,
    /// Different objects.
    pub objects: u64,
    /// Bytes of each.
    pub object_bytes: u64,
    /// What a task computes, seconds.
    pub compute_s: f64,
    /// `A`: tasks that come in a second; if nothing is said, all are there from the beginning.
    pub arriving_per_s: Option<f64>,
    /// The share of accesses that find their object in no store. If nothing is said: each object's first, and of the others
    /// the share of the data for which stores have no room, as where all are read equally often.
    pub misses: Option<f64>,
    /// The share of hits that are in another node's store. Placement by data makes it small.
    pub peer_hits: f64,
    /// Whether others compute while a task's inputs come.
    pub overlap: bool,
}

impl Demand {
    /// What a workload asks for under these policies: averages over its tasks. Of inputs, the whole number that is the
    /// nearest, with objects as large as keeps the bytes that are read.
    pub fn of(workload: &dyn Workload, policies: &Policies) -> Demand {
        let (mut reads, mut read_bytes, mut compute_us, mut last_us) = (0_u64, 0_u128, 0_u128, 0);
        for task in workload.arrivals() {
            reads += task.inputs.len() as u64;
            read_bytes += task.inputs.iter().map(|object| u128::from(workload.size_bytes(*object))).sum::<u128>();
            compute_us += u128::from(task.compute_us);
            last_us = task.at_us;
        }
        let tasks = workload.tasks();
        let inputs = (reads as f64 / tasks.max(1) as f64).round().max(1.0);
        Demand {
            tasks,
            inputs: inputs as u32,
            objects: workload.objects().max(1).into(),
            object_bytes: (read_bytes as f64 / (inputs * tasks.max(1) as f64)).round() as u64,
            compute_s: compute_us as f64 / 1e6 / tasks.max(1) as f64,
            arriving_per_s: (last_us > 0).then(|| tasks as f64 * 1e6 / last_us as f64),
            misses: (!policies.caches()).then_some(1.0),
            peer_hits: 0.0,
            overlap: policies.overlap,
        }
    }
}

/// What takes the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Processors.
    Processors,
    /// What persistent storage gives to all nodes together.
    PersistentStorage,
    /// What nodes can receive.
    NetworkCards,
    /// What nodes can read from their stores, or write into them.
    Stores,
    /// The dispatchers' decisions.
    Dispatcher,
    /// Tasks come no faster.
    Arrivals,
}

/// What the model says.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// `T_1(D)`: on one processor, with the same hits, seconds.
    pub one_processor_s: f64,
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
    /// Neither computing nor reading nor deciding takes any time.
    #[error("nothing takes any time: let tasks compute, or objects have a size")]
    NoTime,
    /// No node can run any task.
    #[error("a task's inputs have {0} bytes, a store only {1}: give it at least as many, or nothing is stored")]
    TooSmall(u64, u64),
}

/// How long the demand takes on the cluster, and why.
///
/// # Errors
/// If a task could never run, or a number is none.
pub fn predict(cluster: &Cluster, demand: &Demand) -> Result<Prediction, ModelError> {
    check(cluster, demand)?;
    let (nodes, processors) = (f64::from(cluster.nodes), cluster.processors() as f64);
    let (tasks, inputs) = (demand.tasks as f64, f64::from(demand.inputs));
    let (fits, ratios) = ratios(cluster, demand);
    let costs = costs(cluster, demand);
    let accesses_s = inputs * access_s(Costs { compute_s: 0.0, ..costs }, ratios);
    let task_s = demand.compute_s + accesses_s;
    // While others compute in its place, a task has a processor only to read what has come, and to compute.
    let fetching_s = inputs * (costs.peer_s * ratios.peer + costs.storage_s * ratios.storage);
    let reading_s = inputs * (costs.local_s * ratios.local + memory_s(cluster, demand) * (1.0 - ratios.local));
    let holding_s = if demand.overlap { demand.compute_s + reading_s } else { task_s };
    let one_processor_s = tasks * if demand.overlap { holding_s.max(fetching_s) } else { task_s };

    let bytes = tasks * inputs * demand.object_bytes as f64;
    let storage_bytes = bytes * ratios.storage;
    let received_bytes = bytes * (ratios.storage + ratios.peer);
    let read_bytes = bytes * (ratios.local + ratios.peer);
    let limits = [
        (Limit::Processors, workload_s(tasks, holding_s, processors)),
        (Limit::PersistentStorage, storage_bytes / cluster.storage.bytes_per_s),
        (Limit::NetworkCards, received_bytes / (nodes * cluster.card_bytes_per_s)),
        (Limit::Stores, read_bytes / (nodes * read_bytes_per_s(cluster))),
        (Limit::Stores, received_bytes / (nodes * write_bytes_per_s(cluster))),
        (Limit::Dispatcher, tasks * cluster.decision_ns as f64 / f64::from(cluster.dispatchers) / 1e9),
    ];
    let busiest = limits.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let (limit, busy_s) = busiest.expect("there are limits");
    if busy_s == 0.0 {
        return Err(ModelError::NoTime);
    }
    // What a task takes when all are in each other's way, so that equations 9 and 10 hold for whatever is the busiest.
    let crowded_s = busy_s * processors / tasks;
    let arriving_s = demand.arriving_per_s.map_or(0.0, |per_s| tasks / per_s);
    let (limit, time_s) = if arriving_s > busy_s { (Limit::Arrivals, arriving_s) } else { (limit, busy_s) };
    let speedup = speedup(one_processor_s, time_s);
    Ok(Prediction {
        costs,
        ratios,
        fits,
        task_s,
        time_s,
        limit,
        one_processor_s,
        speedup,
        efficiency: efficiency(speedup, processors),
        sustained_per_s: sustained_per_s(crowded_s, processors, 1.0),
        utilisation: utilisation(tasks / time_s, crowded_s, processors, 1.0),
        storage_bytes,
        peer_bytes: bytes * ratios.peer,
    })
}

fn check(cluster: &Cluster, demand: &Demand) -> Result<(), ModelError> {
    let counts = [
        ("nodes", u64::from(cluster.nodes)),
        ("processors", cluster.cpus.into()),
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
    let inputs_bytes = u64::from(demand.inputs).saturating_mul(demand.object_bytes);
    let stores_nothing = demand.misses == Some(1.0);
    if !stores_nothing && inputs_bytes > cluster.cache_bytes {
        return Err(ModelError::TooSmall(inputs_bytes, cluster.cache_bytes));
    }
    Ok(())
}

/// Whether all data fits in the stores, and where objects are found.
fn ratios(cluster: &Cluster, demand: &Demand) -> (bool, Ratios) {
    let stores_bytes = f64::from(cluster.nodes) * cluster.cache_bytes as f64;
    let data_bytes = demand.objects as f64 * demand.object_bytes as f64;
    let without_room = if data_bytes > stores_bytes { 1.0 - stores_bytes / data_bytes } else { 0.0 };
    let accesses = demand.tasks as f64 * f64::from(demand.inputs);
    let first = (demand.objects as f64 / accesses).min(1.0);
    let storage = demand.misses.unwrap_or(first + (1.0 - first) * without_room);
    let peer = (1.0 - storage) * demand.peer_hits;
    (without_room == 0.0, Ratios { local: 1.0 - storage - peer, peer, storage })
}

/// What each access costs while nobody else is in the way: what comes is written into the store, and read from memory.
/// Computing is for one access: a task's, divided by its inputs.
fn costs(cluster: &Cluster, demand: &Demand) -> Costs {
    let bytes = demand.object_bytes as f64;
    let storage = &cluster.storage;
    let to_node_per_s = cluster.card_bytes_per_s.min(write_bytes_per_s(cluster));
    let client_bytes_per_s = storage.client_bytes_per_s.unwrap_or(f64::INFINITY);
    let from_storage_per_s = storage.bytes_per_s.min(client_bytes_per_s).min(to_node_per_s);
    let memory_s = memory_s(cluster, demand);
    Costs {
        local_s: bytes / read_bytes_per_s(cluster),
        peer_s: cluster.peer_latency_ns as f64 / 1e9 + bytes / to_node_per_s + memory_s,
        storage_s: storage.latency_ns as f64 / 1e9 + bytes / from_storage_per_s + memory_s,
        compute_s: demand.compute_s / f64::from(demand.inputs),
    }
}

/// How long a task reads an object that has just come, which is still in memory.
fn memory_s(cluster: &Cluster, demand: &Demand) -> f64 {
    demand.object_bytes as f64 / cluster.memory_bytes_per_s
}

/// What a node writes into its store in a second.
fn write_bytes_per_s(cluster: &Cluster) -> f64 {
    cluster.disk.map_or(cluster.memory_bytes_per_s, |disk| disk.write_bytes_per_s)
}

/// What a node reads from its store in a second.
fn read_bytes_per_s(cluster: &Cluster) -> f64 {
    cluster.disk.map_or(cluster.memory_bytes_per_s, |disk| disk.read_bytes_per_s)
}

#[cfg(test)]
mod tests {
    use eyas_types::PlacementPolicy;

    use super::*;
    use crate::workload::{AllPairs, MonotonicallyIncreasing, Order};

    const COSTS: Costs = Costs { local_s: 1.0, peer_s: 2.0, storage_s: 5.0, compute_s: 3.0 };

    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= 1e-9 * expected.abs()
    }

    #[test]
    fn equations_have_these_values() {
        assert_eq!(access_range_s(COSTS, true), (4.0, 5.0));
        assert_eq!(access_range_s(COSTS, false), (5.0, 8.0));
        let task_s = access_s(COSTS, Ratios { local: 0.5, peer: 0.3, storage: 0.2 });
        assert!(is_near(task_s, 3.0 + 0.5 + 0.6 + 1.0));
        let (one_s, all_s) = (workload_s(100.0, task_s, 1.0), workload_s(100.0, task_s, 10.0));
        assert!(is_near(one_s, 510.0) && is_near(all_s, 51.0));
        assert!(is_near(efficiency(speedup(one_s, all_s), 10.0), 1.0));
        assert_eq!(sustained_range_per_s(COSTS, true, 10.0, 2.0), (4.0, 5.0));
        assert_eq!(sustained_range_per_s(COSTS, false, 40.0, 1.0), (5.0, 8.0));
        let per_s = sustained_per_s(task_s, 10.0, 1.0);
        assert!(is_near(per_s, 10.0 / 5.1));
        assert!(is_near(utilisation(per_s, task_s, 10.0, 1.0), 1.0));
        assert!(is_near(utilisation(1.0, task_s, 10.0, 1.0), 0.51));
    }

    #[test]
    fn a_workload_asks_for_what_its_tasks_do() {
        let pairs = AllPairs::cluster(Order::Rows);
        let demand = Demand::of(&pairs, &Policies::of_the_paper(PlacementPolicy::FirstAvailable));
        let expected = Demand { inputs: 2, object_bytes: 12_000_000, compute_s: 1.0, ..tasks(250_000, 1_000) };
        assert_eq!(demand, Demand { misses: Some(1.0), ..expected });
        let mi = MonotonicallyIncreasing::paper(1);
        let demand = Demand::of(&mi, &Policies::of_eyas(PlacementPolicy::Cost));
        assert!((demand.arriving_per_s.expect("they come") / (250_000.0 / 1_414.9) - 1.0).abs() < 1e-4);
        assert!(demand.overlap && demand.misses.is_none());
    }

    /// Tasks of one input of 10 MB that compute for 10 ms.
    fn tasks(tasks: u64, objects: u64) -> Demand {
        Demand {
            tasks,
            inputs: 1,
            objects,
            object_bytes: 10_000_000,
            compute_s: 0.01,
            arriving_per_s: None,
            misses: None,
            peer_hits: 0.0,
            overlap: false,
        }
    }

    #[track_caller]
    fn assert_within(value: f64, paper: f64, share: f64) {
        assert!((value / paper - 1.0).abs() <= share, "{value} against the paper's {paper}");
    }

    #[test]
    fn without_stores_it_is_as_long_as_in_the_paper() {
        let all_missed = |demand: Demand| Demand { misses: Some(1.0), ..demand };
        let mi = predict(&Cluster::teragrid_64(0), &all_missed(tasks(250_000, 10_000))).unwrap();
        assert_eq!(mi.limit, Limit::PersistentStorage);
        assert_within(mi.time_s, 5_011.0, 0.1);
        let sw = predict(&Cluster::teragrid_100(0), &all_missed(tasks(2_000_000, 100_000))).unwrap();
        assert_within(sw.time_s, 20_491.0, 0.03);
        // All-Pairs, 500 times 500: 26% of what it would be if all were local.
        let pairs = Demand { inputs: 2, object_bytes: 12_000_000, compute_s: 1.0, ..tasks(250_000, 1_000) };
        let missed = predict(&Cluster::teragrid_100(0), &all_missed(pairs)).unwrap();
        let local = predict(&Cluster::teragrid_100(50_000_000_000), &Demand { misses: Some(0.0), ..pairs }).unwrap();
        assert_within(local.time_s / missed.time_s, 0.26, 0.08);
    }

    #[test]
    fn stores_that_hold_all_read_each_object_once() {
        let cluster = Cluster::teragrid_64(4_000_000_000);
        let arriving = Demand { arriving_per_s: Some(250_000.0 / 1_414.9), ..tasks(250_000, 10_000) };
        let mi = predict(&cluster, &arriving).unwrap();
        assert!(mi.fits && is_near(mi.storage_bytes, 100e9));
        assert_eq!((mi.limit, mi.time_s.round()), (Limit::Arrivals, 1_415.0));
        assert!(is_near(mi.utilisation, 250_000.0 / 1_414.9 / mi.sustained_per_s));
        // Of 128 GB, stores of 0.5 GB hold 32.
        let small = predict(&Cluster::teragrid_64(500_000_000), &tasks(250_000, 10_000)).unwrap();
        assert!(!small.fits && is_near(small.ratios.storage, 0.04 + 0.96 * 0.68));
    }

    #[test]
    fn whatever_is_busiest_says_how_long_it_takes() {
        let cluster = Cluster { decision_ns: 0, ..Cluster::teragrid_64(4_000_000_000) };
        let of = |cluster: &Cluster, demand: Demand| predict(cluster, &demand).unwrap();
        let demand = tasks(1_000_000, 100);
        assert_eq!(of(&cluster, Demand { compute_s: 1.0, ..demand }).limit, Limit::Processors);
        assert_eq!(of(&cluster, demand).limit, Limit::Stores);
        let slow = Cluster { decision_ns: 10_000_000, ..cluster.clone() };
        assert_eq!(of(&slow, demand).time_s, 10_000.0);
        let moving = Demand { peer_hits: 1.0, overlap: true, ..demand };
        assert_eq!(of(&cluster, moving).limit, Limit::Stores, "what comes is written");
        let cluster = Cluster { card_bytes_per_s: 50e6, ..cluster };
        assert_eq!(of(&cluster, moving).limit, Limit::NetworkCards);
        let computing = Demand { compute_s: 0.2, ..moving };
        assert!(of(&cluster, computing).time_s < of(&cluster, Demand { overlap: false, ..computing }).time_s);
        for demand in [demand, moving, Demand { misses: Some(0.3), overlap: true, ..demand }] {
            let prediction = of(&cluster, demand);
            assert!((0.0..=1.0).contains(&prediction.efficiency), "{prediction:?}");
        }
    }

    #[test]
    fn what_cannot_run_is_refused() {
        let cluster = Cluster::teragrid_64(5_000_000);
        let demand = tasks(10, 10);
        assert_eq!(predict(&cluster, &demand), Err(ModelError::TooSmall(10_000_000, 5_000_000)));
        assert!(predict(&cluster, &Demand { misses: Some(1.0), ..demand }).is_ok(), "nothing is stored");
        assert_eq!(predict(&cluster, &Demand { tasks: 0, ..demand }), Err(ModelError::None("tasks")));
        let nothing = Demand { compute_s: 0.0, object_bytes: 0, misses: Some(0.0), ..demand };
        assert_eq!(predict(&Cluster { decision_ns: 0, ..cluster.clone() }, &nothing), Err(ModelError::NoTime));
        assert_eq!(predict(&Cluster { nodes: 0, ..cluster.clone() }, &demand), Err(ModelError::None("nodes")));
        assert_eq!(
            predict(&cluster, &Demand { peer_hits: 2.0, ..demand }),
            Err(ModelError::NotAShare("hits at peers", 2.0))
        );
    }
}
