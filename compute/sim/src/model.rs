//! The abstract model: the run time of a workload on a cluster, by arithmetic alone (data-diffusion
//! §3.1).
//!
//! This file has the paper's equations 1 to 10, each as a function with units in its name.
//! [`predict`] applies them to a cluster and the demand of a workload. It derives the cost of an
//! access, estimates where objects are found, and takes the time of the resource that is busy
//! longest: an average cost says nothing about a resource that all tasks share.
//!
//! Three of the equations are printed with a slip. Here they are as their text and units require:
//!
//! - Equation 5 sums the times of all tasks and calls the sum the time on `N` processors. The
//!   processors work in parallel, so the sum is divided by `N`; otherwise the speedup of equation 6
//!   would be 1.
//! - Equation 8 has its bounds reversed: the larger cost is sustained at the lower rate.
//! - Equation 9 multiplies the rate by `K`, because its `T` is the sum of equation 5 over `K`
//!   tasks. In equation 10, `T` is the time of one task. Here it is the time of one task in both.

mod demand;
mod predict;
#[cfg(test)]
mod tests;

pub use demand::Demand;
pub use predict::{Doubt, Limit, ModelError, Prediction, predict};

/// Mean times of one access, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// `R_l`: reading the object from the node's own store.
    pub local_s: f64,
    /// `R_c`: fetching the object from another node's store.
    pub peer_s: f64,
    /// `R_s`: fetching the object from persistent storage.
    pub storage_s: f64,
    /// `C`: computing, per access.
    pub compute_s: f64,
}

/// Shares of all accesses, by where the object is found. They add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// `HR_l`: in the node's own store.
    pub local: f64,
    /// `HR_c`: in another node's store.
    pub peer: f64,
    /// `HR_s`: in no store.
    pub storage: f64,
}

/// Equation 1: the least and the greatest time `T` of computing with one access, in seconds. The
/// regime depends on whether all data `fits` in the stores.
pub fn access_range_s(costs: Costs, fits: bool) -> (f64, f64) {
    let Costs { local_s, peer_s, storage_s, compute_s } = costs;
    if fits {
        (local_s + compute_s, peer_s + compute_s)
    } else {
        (peer_s + compute_s, storage_s + compute_s)
    }
}

/// Equations 2 to 4: the mean time of computing with one access, `T` and `TK`, in seconds. Equation
/// 2 leaves out the ratio that is 0 in its regime; equation 4 is the same sum with `C` taken out.
pub fn access_s(costs: Costs, ratios: Ratios) -> f64 {
    costs.compute_s
        + costs.local_s * ratios.local
        + costs.peer_s * ratios.peer
        + costs.storage_s * ratios.storage
}

/// Equation 5: the time `T_N(D)` of `tasks` tasks of `task_s` each on `processors` that are never
/// idle, in seconds.
pub fn workload_s(tasks: f64, task_s: f64, processors: f64) -> f64 {
    tasks * task_s / processors
}

/// Equation 6: the speedup over one processor, `SP`.
pub fn speedup(one_processor_s: f64, all_s: f64) -> f64 {
    one_processor_s / all_s
}

/// Equation 7: the efficiency `EF`, the speedup per processor.
pub fn efficiency(speedup: f64, processors: f64) -> f64 {
    speedup / processors
}

/// Equation 8: bounds of the highest sustainable rate of arrival `A_max`, in tasks per second.
/// `speed` is the speed `P` of a processor relative to that for which the costs are given.
pub fn sustained_range_per_s(costs: Costs, fits: bool, processors: f64, speed: f64) -> (f64, f64) {
    let (least_s, most_s) = access_range_s(costs, fits);
    (sustained_per_s(most_s, processors, speed), sustained_per_s(least_s, processors, speed))
}

/// Equation 9: the rate of arrival `A` that keeps `processors` just busy, in tasks per second.
pub fn sustained_per_s(task_s: f64, processors: f64, speed: f64) -> f64 {
    processors * speed / task_s
}

/// Equation 10: the utilisation `U` of the processors at a rate of arrival. Above 1, tasks arrive
/// faster than they can be done. Moving data counts as use.
pub fn utilisation(arriving_per_s: f64, task_s: f64, processors: f64, speed: f64) -> f64 {
    arriving_per_s * task_s / (processors * speed)
}
