//! What a workload asks of a cluster: averages over its tasks.

use crate::cluster::Policies;
use crate::workload::Workload;

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
