//! The demand of a workload: averages over its tasks.

use crate::cluster::Policies;
use crate::workload::Workload;

/// The demand that a workload puts on a cluster, as averages over its tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// `K`: number of tasks.
    pub tasks: u64,
    /// Number of objects that each task reads.
    pub inputs: u32,
    /// Number of different objects.
    pub objects: u64,
    /// Size of each object in bytes.
    pub object_bytes: u64,
    /// Computing time of a task, in seconds.
    pub compute_s: f64,
    /// `A`: arrivals per second; `None` if all tasks arrive at the start.
    pub arriving_per_s: Option<f64>,
    /// Share of accesses that find their object in no store. `None`: the first access of each
    /// object, and of the other accesses the share of the data that does not fit in the stores, as
    /// if all objects were read equally often.
    pub misses: Option<f64>,
    /// Share of hits that are in another node's store. Data-aware placement makes it small.
    pub peer_hits: f64,
    /// Whether other tasks compute while a task's inputs are fetched.
    pub overlap: bool,
}

impl Demand {
    /// The demand of a workload under these policies. The number of inputs is rounded to a whole
    /// number, and the size of objects is set so that the number of bytes read stays the same.
    pub fn of(workload: &dyn Workload, policies: &Policies) -> Demand {
        let (mut reads, mut read_bytes, mut compute_us, mut last_us) = (0_u64, 0_u128, 0_u128, 0);
        for task in workload.arrivals() {
            reads += task.inputs.len() as u64;
            read_bytes += task
                .inputs
                .iter()
                .map(|object| u128::from(workload.size_bytes(*object)))
                .sum::<u128>();
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
