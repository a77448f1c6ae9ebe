//! Why no node comes for a task: what each pool has to say, in words.

use eyas_types::{Need, units};
use eyas_wire::view::pool::PoolView;

use super::MAX_NAMES;
use super::explain::Explainer;

impl Explainer<'_> {
    /// What the pools do for waiting tasks with that need: a sentence for each pool, up to
    /// [`MAX_NAMES`].
    pub(super) fn why_no_node_comes(&self, need: &Need) -> Vec<String> {
        let pools = self.pools.views();
        let fits = |pool: usize| self.pools.could_take(pool, need);
        pools
            .iter()
            .enumerate()
            .take(MAX_NAMES)
            .map(|(place, pool)| sentence(pool, fits(place)))
            .collect()
    }

    /// Whether a pool may bring nodes for tasks that wait.
    pub(super) fn may_get_nodes(&self, need: &Need) -> bool {
        let is_active = |pool: &PoolView| pool.state == "active";
        let pools = self.pools.views();
        pools
            .iter()
            .enumerate()
            .any(|(place, pool)| is_active(pool) && self.pools.could_take(place, need))
    }
}

fn sentence(pool: &PoolView, fits: bool) -> String {
    let first = of_state(pool, fits);
    if !fits || pool.excluded.is_empty() {
        return first;
    }
    let hosts =
        pool.excluded.iter().take(MAX_NAMES).map(|host| format!("{} ({})", host.host, host.why));
    format!(
        "{first} It requests no node on hosts that have failed: {}.",
        hosts.collect::<Vec<_>>().join(", ")
    )
}

fn of_state(pool: &PoolView, fits: bool) -> String {
    let name = &pool.pool;
    let why = pool.why.as_deref().unwrap_or_default();
    let nodes = units::format_count(pool.nodes.into(), "node");
    match (pool.state.as_str(), &pool.waits) {
        _ if !fits => {
            format!(
                "Pool {name} requests no node for it: its nodes are too small, or lack a label it \
                 requires."
            )
        }
        ("paused", _) => format!("Pool {name} is paused and requests no nodes: {why}."),
        ("capped", _) => {
            format!("Pool {name} requests no nodes, because a limit is reached: {why}.")
        }
        ("closing", _) => format!("Pool {name} is being removed."),
        (_, Some(waits)) => {
            format!("Pool {name} has {nodes} and has requested {}: {waits}.", pool.requested)
        }
        _ if pool.nodes + pool.draining >= pool.max_nodes => {
            format!("Pool {name} has {nodes}, and at most {} (`--max-nodes`).", pool.max_nodes)
        }
        _ if pool.why.is_some() => format!("Pool {name} pauses before its next request: {why}."),
        _ => format!(
            "Pool {name} has {nodes}, which its policy takes to be enough for the waiting tasks."
        ),
    }
}
