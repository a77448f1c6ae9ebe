//! The result of one simulated run as a row of tables, CSV and JSON. Rows do not have the duration
//! of the simulation, so that the same scenario always gives the same rows.

use eyas_client::types::units::{format_bytes, format_duration_us};
use eyas_sim::cluster::{Policies, SimCluster};
use eyas_sim::outcome::RunOutcome;
use eyas_sim::scenario::Scenario;
use serde_json::json;

use super::{Record, view};
use crate::show::Table;

/// A simulated run and its result.
pub(super) struct Row<'a> {
    pub cluster: &'a SimCluster,
    pub policies: &'a Policies,
    pub outcome: &'a RunOutcome,
    /// Number of tasks of the workload.
    pub tasks: u64,
    /// Lower bound of the run time, nanoseconds.
    pub bound_ns: u64,
}

impl<'a> Row<'a> {
    pub fn of(
        scenario: &Scenario,
        cluster: &'a SimCluster,
        policies: &'a Policies,
        outcome: &'a RunOutcome,
    ) -> Self {
        let (tasks, bound_ns) = (scenario.workload.tasks(), scenario.needs.bound_ns(cluster));
        Row { cluster, policies, outcome, tasks, bound_ns }
    }

    pub fn is_complete(&self) -> bool {
        self.outcome.done == self.tasks
    }

    /// Share of the time that the busiest dispatcher spent on decisions.
    fn deciding_share(&self) -> f64 {
        let deciding_ns = self.outcome.most_decisions * self.cluster.decision_ns;
        deciding_ns as f64 / self.outcome.makespan_ns.max(1) as f64
    }

    /// The row for CSV and JSON; the names end in their units.
    pub fn record(&self) -> Record {
        let Row { cluster, policies, outcome, tasks, bound_ns } = *self;
        let metrics = view::metrics(outcome);
        let [local, peer, storage] = outcome.read_shares();
        vec![
            ("placement", policies.placement.name().into()),
            ("eviction", policies.eviction.name().into()),
            ("nodes", cluster.nodes.into()),
            ("slots", cluster.cpus.into()),
            ("cache_bytes", cluster.cache_bytes.into()),
            ("dispatchers", cluster.dispatchers.into()),
            ("tasks", tasks.into()),
            ("ended_tasks", outcome.done.into()),
            ("failed_tasks", outcome.failed.into()),
            ("cancelled_tasks", outcome.cancelled.into()),
            ("retried", outcome.retried.into()),
            ("recomputed", outcome.recomputed.into()),
            ("contents_made", outcome.copies_made.into()),
            ("time_s", json!(outcome.makespan_s())),
            ("bound_s", json!(bound_ns as f64 / 1e9)),
            ("speedup", json!(metrics.speedup)),
            ("efficiency", json!(metrics.efficiency)),
            (
                "provisioning",
                cluster.batch.as_ref().map_or("none", |batch| batch.policy.name()).into(),
            ),
            ("lost_nodes", outcome.lost_nodes.into()),
            ("left_nodes", outcome.left_nodes.into()),
            ("broken_connections", outcome.broken_connections.into()),
            ("dispatcher_restarts", outcome.restarts.into()),
            ("tasks_out_of_time", outcome.out_of_time.into()),
            ("held_cpu_hours", json!(outcome.cpu_hours())),
            ("response_s", json!(outcome.mean_response_s())),
            ("decisions", outcome.decisions.into()),
            ("deciding_share", json!(self.deciding_share())),
            ("queue_s", json!(metrics.queue_us / 1e6)),
            ("most_waiting_tasks", outcome.most_waiting.into()),
            ("local_share", json!(local)),
            ("peer_share", json!(peer)),
            ("storage_share", json!(storage)),
            ("peer_bytes", outcome.peer_bytes.into()),
            ("storage_bytes", outcome.storage_bytes.into()),
            ("peak_bytes_per_s", json!(outcome.course.peak_bytes_per_s())),
        ]
    }
}

/// The rows as a table for people.
pub(super) fn table(rows: &[Row<'_>]) -> Table {
    let mut table = Table::new(&[
        "POLICY",
        "EVICTION",
        "NODES",
        "CACHE",
        "DISPATCHERS",
        "DECIDING",
        "ENDED",
        "TIME",
        "BOUND",
        "EFFICIENCY",
        "RESPONSE",
        "LOCAL",
        "PEER",
        "STORAGE",
        "PEER MOVED",
        "STORAGE READ",
        "CPU HOURS",
    ]);
    for row in rows {
        let Row { cluster, policies, outcome, tasks, bound_ns } = *row;
        let percent = |share: f64| format!("{:.1}%", 100.0 * share);
        let [local, peer, storage] = outcome.read_shares().map(percent);
        table.row(vec![
            policies.placement.to_string(),
            policies.eviction.to_string(),
            cluster.nodes.to_string(),
            format_bytes(cluster.cache_bytes),
            cluster.dispatchers.to_string(),
            percent(row.deciding_share()),
            if row.is_complete() { "all".into() } else { format!("{} of {tasks}", outcome.done) },
            format_duration_us(outcome.makespan_ns / 1000),
            format_duration_us(bound_ns / 1000),
            percent(view::metrics(outcome).efficiency.unwrap_or_default()),
            format_duration_us((outcome.mean_response_s() * 1e6) as u64),
            local,
            peer,
            storage,
            format_bytes(outcome.peer_bytes),
            format_bytes(outcome.storage_bytes),
            format!("{:.1}", outcome.cpu_hours()),
        ]);
    }
    table
}
