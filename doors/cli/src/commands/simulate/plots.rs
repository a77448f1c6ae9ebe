//! A sweep as charts, over the size of stores if the sweep has several sizes, else over the number
//! of nodes.

use std::collections::BTreeSet;

use eyas_client::types::units::format_bytes;

use super::row::Row;
use super::view;
use crate::report::{Axis, Plot, PlotLine, plots};

/// A measured value: title, meaning, unit, and the value of a run.
type Measure = (&'static str, &'static str, &'static str, fn(&Row<'_>) -> f64);

const MEASURES: [Measure; 6] = [
    ("Time", "From the first arrival to the end of the last task", "s", |row| {
        row.outcome.makespan_s()
    }),
    ("Efficiency", "Share of processor time in which tasks ran", "%", |row| {
        100.0 * view::metrics(row.outcome).efficiency.unwrap_or_default()
    }),
    ("Response time", "Average time from the arrival of a task to its end", "s", |row| {
        row.outcome.mean_response_s()
    }),
    ("Local hits", "Share of inputs that were in the store of the task's node", "%", |row| {
        100.0 * row.outcome.read_shares()[0]
    }),
    (
        "Read from persistent storage",
        "Input bytes that were read from persistent storage",
        "GB",
        |row| row.outcome.storage_bytes as f64 / 1e9,
    ),
    ("Moved between nodes", "Input bytes that were copied from other nodes", "GB", |row| {
        row.outcome.peer_bytes as f64 / 1e9
    }),
];

/// The page of a sweep.
pub(super) fn html(name: &str, rows: &[Row<'_>]) -> String {
    let distinct = |of: fn(&Row<'_>) -> u64| rows.iter().map(of).collect::<BTreeSet<_>>();
    let (caches, nodes) =
        (distinct(|row| row.cluster.cache_bytes), distinct(|row| row.cluster.nodes.into()));
    let evictions = distinct(|row| row.policies.eviction as u64);
    let dispatchers = distinct(|row| row.cluster.dispatchers.into());
    let over_caches = caches.len() > 1;
    let x_of = |row: &Row<'_>| {
        if over_caches { row.cluster.cache_bytes } else { row.cluster.nodes.into() }
    };
    let (label, values, unit) = if over_caches {
        ("Store of each node (GB)", &caches, 1e9)
    } else {
        ("Nodes", &nodes, 1.0)
    };
    let label_of = |row: &Row<'_>| {
        let mut label = row.policies.placement.to_string();
        if evictions.len() > 1 {
            label += &format!(", {}", row.policies.eviction);
        }
        if over_caches && nodes.len() > 1 {
            label += &format!(", {} nodes", row.cluster.nodes);
        }
        if dispatchers.len() > 1 {
            label += &format!(", {} dispatchers", row.cluster.dispatchers);
        }
        label
    };
    // Labels are in the order of the table.
    let mut labels: Vec<String> = Vec::new();
    for row in rows {
        let label = label_of(row);
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let line = |label: &String, measure: fn(&Row<'_>) -> f64| {
        let at = |value: &u64| {
            rows.iter().find(|row| x_of(row) == *value && label_of(row) == *label).map(measure)
        };
        PlotLine { label: label.clone(), values: values.iter().map(at).collect() }
    };
    let charts = MEASURES.map(|(title, note, unit, measure)| {
        let lines = labels.iter().map(|label| line(label, measure)).collect();
        Plot { title, note, unit, lines }
    });
    let axis = Axis {
        label: label.into(),
        values: values.iter().map(|value| *value as f64 / unit).collect(),
    };
    let tasks = rows.first().map_or(0, |row| row.tasks);
    let stores: Vec<_> = caches.iter().map(|bytes| format_bytes(*bytes)).collect();
    let lead =
        format!("{} runs of {tasks} tasks each; stores of {}.", rows.len(), stores.join(", "));
    plots(name, &lead, &axis, &charts)
}
