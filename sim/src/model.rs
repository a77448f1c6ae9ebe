//! The abstract model: how long a workload takes on a cluster, by arithmetic alone (data-diffusion §3.1).
//!
//! This file has the paper's equations 1 to 10, each a function with units in its names. [`predict`] applies them to a cluster
//! and the demand of a workload: it derives the cost of an access, estimates where objects are found, and takes the time of
//! the resource that is busy the longest, because an average cost says nothing of a resource that all tasks share.
//!
//! Three of the equations are printed with a slip, and are here as their text and their units need them:
//!
//! - Equation 5 sums the times of all tasks and calls it the time on `N` processors. They work at the same time: it is
//!   divided by `N`, without which the speedup of equation 6 would be 1.
//! - Equation 8 has its bounds the wrong way round: the larger cost is sustained at the lower rate.
//! - Equation 9 multiplies the rate by `K`, because its `T` is the sum of equation 5 over `K` tasks; in equation 10 `T` is
//!   that of one task. Here it is that of one task in both.

mod demand;
mod predict;
#[cfg(test)]
mod tests;

pub use demand::Demand;
pub use predict::{Doubt, Limit, ModelError, Prediction, predict};

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
