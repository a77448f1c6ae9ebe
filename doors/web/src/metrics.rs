//! The state of the cluster in OpenMetrics, or in the older text format of Prometheus. No metric
//! has the id of a job, a path or a text of a user: their number would have no bound, and
//! monitoring is read by more people than jobs are.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::IntoResponse;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::pool::PoolsRequest;
use eyas_client::view::ExecutorView;
use eyas_client::view::pool::PoolView;

use crate::answer::Answered;
use crate::cluster::ClusterSummary;
use crate::jobs;
use crate::shared::{EXECUTOR_COUNTS, Shared};

const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT_KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric with its values.
struct MetricFamily<'a> {
    name: &'a str,
    /// `gauge` or `counter`.
    kind: &'a str,
    help: &'a str,
    /// Labels in braces, or nothing, each with a value.
    values: Vec<(String, f64)>,
}

impl MetricFamily<'_> {
    /// Writes the family. In the text format, a counter is named as its values are.
    fn write(&self, to: &mut String, is_openmetrics: bool) {
        let MetricFamily { name, kind, help, values } = self;
        let suffix = if *kind == "counter" { "_total" } else { "" };
        let named = if is_openmetrics { "" } else { suffix };
        // Writing to a String cannot fail.
        let _ = write!(to, "# TYPE {name}{named} {kind}\n# HELP {name}{named} {help}\n");
        for (labels, value) in values {
            let _ = writeln!(to, "{name}{suffix}{labels} {value}");
        }
    }
}

fn gauge<'a>(name: &'a str, help: &'a str, value: u64) -> MetricFamily<'a> {
    MetricFamily { name, kind: "gauge", help, values: vec![(String::new(), value as f64)] }
}

/// A metric whose values differ by one label.
fn by<'a>(label: &str, name: &'a str, help: &'a str, values: &[(&str, u64)]) -> MetricFamily<'a> {
    let values = values
        .iter()
        .map(|(state, value)| (format!("{{{label}=\"{state}\"}}"), *value as f64))
        .collect();
    MetricFamily { name, kind: "gauge", help, values }
}

fn counter(family: MetricFamily<'_>) -> MetricFamily<'_> {
    MetricFamily { kind: "counter", ..family }
}

/// Metrics of the cluster.
fn of_cluster(sum: &ClusterSummary, executors: &[ExecutorView]) -> Vec<MetricFamily<'static>> {
    let (jobs, tasks) = (&sum.jobs, &sum.tasks);
    let seconds = |milli: u64| milli as f64 / 1000.0;
    let processors = |name, help, milli| MetricFamily {
        values: vec![(String::new(), seconds(milli))],
        ..gauge(name, help, 0)
    };
    let mut busy = [("computing", 0), ("staging", 0), ("suspended", 0)];
    for executor in executors {
        busy[0].1 += executor.computing;
        busy[1].1 += executor.staging;
        busy[2].1 += executor.suspended;
    }
    vec![
        by(
            "state",
            "eyas_jobs",
            "Jobs that the dispatcher remembers.",
            &[
                ("running", jobs.running),
                ("succeeded", jobs.succeeded),
                ("failed", jobs.failed),
                ("cancelled", jobs.cancelled),
            ],
        ),
        by(
            "state",
            "eyas_tasks",
            "Tasks of these jobs.",
            &[
                ("blocked", tasks.blocked),
                ("waiting", tasks.waiting),
                ("assigned", tasks.assigned),
                ("succeeded", tasks.succeeded),
                ("failed", tasks.failed),
                ("cancelled", tasks.cancelled),
            ],
        ),
        gauge("eyas_jobs_stuck", "Running jobs with tasks that no executor can run.", jobs.stuck),
        gauge("eyas_executors", "Executors.", sum.executors),
        gauge(
            "eyas_executors_set_aside",
            "Executors that get no tasks because tasks failed on them.",
            sum.executors_set_aside,
        ),
        by("state", "eyas_executor_tasks", "Tasks at executors, by their last reports.", &busy),
        processors("eyas_processors", "Processors of all executors.", sum.capacity_milli),
        processors(
            "eyas_processors_assigned",
            "Processors that tasks at executors request.",
            sum.assigned_milli,
        ),
        gauge("eyas_store_capacity_bytes", "Capacity of all stores.", sum.store_bytes),
        gauge("eyas_store_held_bytes", "Bytes of objects in all stores.", sum.held_bytes),
        gauge(
            "eyas_files_nodes",
            "Executors that are nodes of the cluster's file system.",
            executors.iter().filter(|executor| executor.files.is_some()).count() as u64,
        ),
        MetricFamily {
            values: vec![(String::new(), silent_us(executors) as f64 / 1e6)],
            ..gauge("eyas_executor_silence_seconds", "Longest silence of an executor.", 0)
        },
    ]
}

fn silent_us(executors: &[ExecutorView]) -> u64 {
    executors.iter().map(|executor| executor.silent_us).max().unwrap_or(0)
}

/// What an executor has counted: see [`of_executors`].
fn counts(executor: &ExecutorView) -> [u64; EXECUTOR_COUNTS] {
    let reads = &executor.reads;
    [
        executor.ended,
        reads.local.count,
        reads.local.bytes,
        reads.peer.count,
        reads.peer.bytes,
        reads.persistent.count,
        reads.persistent.bytes,
        reads.files.count,
        reads.files.bytes(),
    ]
}

/// Counters of what executors have done, since this process was first asked for metrics.
fn of_executors(counts: [u64; EXECUTOR_COUNTS]) -> Vec<MetricFamily<'static>> {
    let [ended, own, own_bytes, nodes, nodes_bytes, storage, storage_bytes, files, files_bytes] =
        counts;
    let sources = ["own_store", "other_nodes", "persistent_storage", "cluster_files"];
    let of_sources = |counts: [u64; 4]| sources.into_iter().zip(counts).collect::<Vec<_>>();
    let inputs = of_sources([own, nodes, storage, files]);
    let bytes = of_sources([own_bytes, nodes_bytes, storage_bytes, files_bytes]);
    let read = "Inputs that tasks have read, by source.";
    let read_bytes = "Bytes of inputs that tasks have read, by source.";
    vec![
        counter(gauge("eyas_tasks_ended", "Tasks that have ended on executors.", ended)),
        counter(by("source", "eyas_inputs", read, &inputs)),
        counter(by("source", "eyas_input_bytes", read_bytes, &bytes)),
    ]
}

/// A label's value, as both formats have it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Metrics of pools of nodes. Their names are those of the administrator's file.
fn of_pools(pools: &[PoolView]) -> Vec<MetricFamily<'static>> {
    let all = |value: fn(&PoolView) -> f64| {
        let one = |pool: &PoolView| (format!("{{pool=\"{}\"}}", escaped(&pool.pool)), value(pool));
        pools.iter().map(one).collect::<Vec<_>>()
    };
    let family = |name, help, values| MetricFamily { name, kind: "gauge", help, values };
    let mut nodes = Vec::new();
    for pool in pools {
        let states = [
            ("joined", pool.nodes),
            ("draining", pool.draining),
            ("requested", pool.requested),
            ("wanted", pool.wanted),
        ];
        for (state, count) in states {
            let labels = format!("{{pool=\"{}\",state=\"{state}\"}}", escaped(&pool.pool));
            nodes.push((labels, f64::from(count)));
        }
    }
    vec![
        family("eyas_pool_nodes", "Nodes of pools; `wanted`: those that the work is worth.", nodes),
        family(
            "eyas_pool_waiting_tasks",
            "Tasks that wait and fit nodes of the pool.",
            all(|pool| pool.waiting as f64),
        ),
        family(
            "eyas_pool_inactive",
            "Whether a pool requests no nodes: it is paused, capped or closing.",
            all(|pool| f64::from(u8::from(pool.state != "active"))),
        ),
        counter(family(
            "eyas_pool_request_failures",
            "Requests for nodes that failed.",
            all(|pool| pool.failures as f64),
        )),
        counter(family("eyas_pool_node_seconds", "Node time used.", all(|pool| pool.node_seconds))),
    ]
}

/// The metrics of the cluster, if the dispatcher answers.
async fn read(shared: &Shared) -> Option<Vec<MetricFamily<'static>>> {
    let (summary, executors) = ClusterSummary::read(shared).await.ok()?;
    let pools = shared.dispatcher.look(FromClient::Pools(PoolsRequest::Show { name: None })).await;
    let mut families = of_cluster(&summary, &executors);
    let executor_counts = executors.iter().map(|executor| (executor.executor, counts(executor)));
    families.extend(of_executors(shared.executor_counters.look(executor_counts)));
    let failed = jobs::all(shared).await.ok()?;
    let failed = failed.iter().map(|job| (job.job, [job.tasks.failed]));
    let [failed] = shared.failed_tasks.look(failed);
    families.push(counter(gauge("eyas_tasks_failed", "Tasks that have failed.", failed)));
    let lost = shared.feed.lost_executors();
    families.push(counter(gauge("eyas_executors_lost", "Executors that were lost.", lost)));
    // A dispatcher without pools says so.
    if let Ok(answer) = pools
        && let ToClient::Pools(pools) = &*answer
    {
        families.extend(of_pools(pools));
    }
    Some(families)
}

/// `GET /metrics`. While the dispatcher is away, there are only the metrics of this process.
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answered {
    let read = read(&shared).await;
    let mut families = vec![gauge(
        "eyas_dispatcher_up",
        "Whether the dispatcher answers.",
        u64::from(read.is_some()),
    )];
    families.extend(read.into_iter().flatten());
    let open = shared.open_streams() as u64;
    families.push(gauge("eyas_web_streams", "Open streams of events.", open));
    let requests = shared.requests.load(Ordering::Relaxed);
    families.push(counter(gauge("eyas_web_requests", "Requests over HTTP.", requests)));
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    let is_openmetrics = accepted.is_some_and(|accepted| accepted.contains(OPEN_METRICS));
    let mut text = String::new();
    families.iter().for_each(|family| family.write(&mut text, is_openmetrics));
    if is_openmetrics {
        text.push_str("# EOF\n");
    }
    let kind = if is_openmetrics { OPEN_METRICS_KIND } else { TEXT_KIND };
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(is_openmetrics: bool) -> String {
        let mut text = String::new();
        let states = by("state", "a", "Help.", &[("x", 1), ("y", 2)]);
        states.write(&mut text, is_openmetrics);
        counter(gauge("b", "More.", 3)).write(&mut text, is_openmetrics);
        text
    }

    #[test]
    fn families_are_written_as_each_format_has_them() {
        let states = "# TYPE a gauge\n# HELP a Help.\na{state=\"x\"} 1\na{state=\"y\"} 2\n";
        assert_eq!(text(true), format!("{states}# TYPE b counter\n# HELP b More.\nb_total 3\n"));
        assert_eq!(
            text(false),
            format!("{states}# TYPE b_total counter\n# HELP b_total More.\nb_total 3\n")
        );
    }

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
