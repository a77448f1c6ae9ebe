//! The state of coordinated I/O, as a table, as JSON, and as metrics for Prometheus.

use std::fmt::Write;

use eyas_client::types::units::{format_bytes, format_duration_us};
use eyas_coordinator::ioq::{ClassId, Config, PolicyParameters, ServerStats, Waits};
use eyas_coordinator::{IoStatus, StorageConfigs};
use eyas_wire::view::io::{IoView, OrderView, StorageView, WaitView};

use crate::error::CliError;
use crate::print;
use crate::show::{Table, json};

pub(crate) fn status(
    status: &IoStatus,
    configs: &StorageConfigs,
    metrics: bool,
    is_json: bool,
) -> Result<(), CliError> {
    let storages = status
        .storages
        .iter()
        .map(|(name, stats)| storage(name, stats, configs.get(name), status))
        .collect();
    let view = IoView { agents: status.agents, storages };
    match (metrics, is_json) {
        (true, _) => print_metrics(&view),
        (false, true) => json("io", &view),
        (false, false) => print(&view),
    }
}

fn storage(
    name: &str,
    stats: &ServerStats,
    config: Option<&Config>,
    status: &IoStatus,
) -> StorageView {
    let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
    let wait = |(class, waits): (&ClassId, &Waits)| WaitView {
        class: status.classes.get(class).cloned().unwrap_or_else(|| class.0.to_string()),
        requests: waits.requests,
        bytes: waits.bytes,
        mean_us: mean(waits.sum_us, waits.requests),
        max_us: waits.max_us,
    };
    StorageView {
        name: name.to_owned(),
        order: config.map(order),
        queued: stats.queued,
        outstanding: stats.outstanding,
        concurrency: stats.concurrency,
        small_concurrency: stats.small_concurrency,
        bandwidth_bytes_per_s: stats.bandwidth_bytes_per_s,
        left_alone: status.bypassed.get(name).copied().unwrap_or(0),
        requests: stats.requests,
        grants: stats.grants,
        granted_bytes: stats.granted_bytes,
        mean_run_bytes: mean(stats.granted_bytes, stats.runs),
        longest_run_bytes: stats.longest_run_bytes,
        uncoordinated: stats.uncoordinated,
        revoked: stats.revoked,
        sequential_as_asked: stats.arrived.contiguous_fraction(),
        sequential_as_granted: stats.ordered.contiguous_fraction(),
        waits: stats.waits.iter().map(wait).collect(),
    }
}

fn order(config: &Config) -> OrderView {
    let PolicyParameters { patience_us, junction_percent, quantum_bytes, factor } =
        config.policy.parameters();
    OrderView {
        policy: config.policy.name().to_owned(),
        patience_us,
        junction_percent,
        quantum_bytes,
        factor,
        max_run_bytes: config.max_run_bytes,
        window_us: config.window_us,
        predict_us: config.margin_us,
    }
}

/// The policy and its parameters in one line, in the words of the file of rules.
fn order_line(order: &OrderView) -> String {
    let size = |name, bytes: Option<u64>| Some(format!("{name} {}", format_bytes(bytes?)));
    let time = |name, us: Option<u64>| Some(format!("{name} {}", format_duration_us(us?)));
    let parts = [
        Some(order.policy.clone()),
        time("patience", order.patience_us),
        order.junction_percent.map(|percent| format!("junction {percent} %")),
        size("quantum", order.quantum_bytes),
        order.factor.map(|factor| format!("factor {factor}")),
        size("max_run", Some(order.max_run_bytes)),
        time("window", Some(order.window_us)),
        time("predict", order.predict_us),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn print(view: &IoView) -> Result<(), CliError> {
    let mut table = Table::new(&[
        "STORAGE",
        "LEFT ALONE",
        "QUEUED",
        "GRANTED",
        "REQUESTS",
        "BYTES",
        "MEAN RUN",
        "SEQ ASKED",
        "SEQ GRANTED",
        "MEAN WAIT",
        "MAX WAIT",
        "RATE",
        "REVOKED",
    ]);
    for storage in &view.storages {
        let requests: u64 = storage.waits.iter().map(|wait| wait.requests).sum();
        let sum_us: f64 =
            storage.waits.iter().map(|wait| wait.mean_us * wait.requests as f64).sum();
        let max_us = storage.waits.iter().map(|wait| wait.max_us).max().unwrap_or(0);
        table.row(vec![
            storage.name.clone(),
            storage.left_alone.to_string(),
            storage.queued.to_string(),
            format!("{}/{}", storage.outstanding, storage.concurrency),
            storage.requests.to_string(),
            format_bytes(storage.granted_bytes),
            format_bytes(storage.mean_run_bytes as u64),
            format!("{:.0} %", storage.sequential_as_asked * 100.0),
            format!("{:.0} %", storage.sequential_as_granted * 100.0),
            format_duration_us((sum_us / requests.max(1) as f64) as u64),
            format_duration_us(max_us),
            format!("{}/s", format_bytes(storage.bandwidth_bytes_per_s as u64)),
            storage.revoked.to_string(),
        ]);
    }
    table.print()?;
    if view.storages.iter().all(|storage| storage.order.is_none()) {
        return Ok(());
    }
    let mut orders = Table::new(&["STORAGE", "ORDER"]);
    for storage in &view.storages {
        orders.row(vec![
            storage.name.clone(),
            storage.order.as_ref().map_or_else(String::new, order_line),
        ]);
    }
    print::text("\n")?;
    orders.print()
}

fn print_metrics(view: &IoView) -> Result<(), CliError> {
    type Value = fn(&StorageView) -> f64;
    let metrics: [(&str, &str, Value); 12] = [
        ("queued_requests", "gauge", |s| s.queued as f64),
        ("outstanding_grants", "gauge", |s| s.outstanding as f64),
        ("concurrency", "gauge", |s| s.concurrency as f64),
        ("small_concurrency", "gauge", |s| s.small_concurrency as f64),
        ("bandwidth_bytes_per_second", "gauge", |s| s.bandwidth_bytes_per_s),
        ("agents_that_leave_alone", "gauge", |s| s.left_alone as f64),
        ("sequential_as_asked_ratio", "gauge", |s| s.sequential_as_asked),
        ("sequential_as_granted_ratio", "gauge", |s| s.sequential_as_granted),
        ("requests_total", "counter", |s| s.requests as f64),
        ("granted_bytes_total", "counter", |s| s.granted_bytes as f64),
        ("uncoordinated_requests_total", "counter", |s| s.uncoordinated as f64),
        ("revoked_grants_total", "counter", |s| s.revoked as f64),
    ];
    let mut out = String::new();
    writeln!(out, "# TYPE eyas_io_agents gauge\neyas_io_agents {}", view.agents)?;
    for (name, kind, value) in metrics {
        writeln!(out, "# TYPE eyas_io_{name} {kind}")?;
        for storage in &view.storages {
            writeln!(out, "eyas_io_{name}{{storage={:?}}} {}", storage.name, value(storage))?;
        }
    }
    writeln!(out, "# TYPE eyas_io_wait_seconds summary")?;
    for storage in &view.storages {
        for wait in &storage.waits {
            let labels = format!("{{storage={:?},class={:?}}}", storage.name, wait.class);
            let sum_s = wait.mean_us * wait.requests as f64 / 1e6;
            writeln!(out, "eyas_io_wait_seconds_sum{labels} {sum_s}")?;
            writeln!(out, "eyas_io_wait_seconds_count{labels} {}", wait.requests)?;
        }
    }
    Ok(print::text(&out)?)
}
