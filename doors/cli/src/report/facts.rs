//! Facts of a job that the page and the terminal show in the same words.

use eyas_wire::view::JobView;
use eyas_wire::view::pool::PoolView;

/// Whether a job was simulated: such a job has no time of submission.
pub(super) fn is_simulated(job: &JobView) -> bool {
    job.submitted_unix_ms == 0
}

/// The node time of a pool.
pub(super) fn node_hours(pool: &PoolView) -> String {
    format!("{:.2} node-hours", pool.node_seconds / 3600.0)
}

/// The nodes that a pool has requested, and their cost if they have a price.
pub(super) fn nodes_of(pool: &PoolView) -> String {
    let cost = if pool.price > 0.0 { format!(", cost {:.2}", pool.cost) } else { String::new() };
    format!(
        "{} nodes requested, {} granted, {} given back{cost}",
        pool.nodes_requested, pool.nodes_granted, pool.nodes_given_back
    )
}
