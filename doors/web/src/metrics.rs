//! The state of the cluster in OpenMetrics, for Prometheus and others. No metric has the id of a
//! job, a path or a text of a user: their number would have no bound, and monitoring is read by
//! more people than jobs are.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use eyas_client::view::ExecutorView;

use crate::answer::Answered;
use crate::cluster::ClusterSummary;
use crate::shared::Shared;

const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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
    fn write(&self, to: &mut String) {
        let MetricFamily { name, kind, help, values } = self;
        let suffix = if *kind == "counter" { "_total" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(to, "# TYPE {name} {kind}\n# HELP {name} {help}\n");
        for (labels, value) in values {
            let _ = writeln!(to, "{name}{suffix}{labels} {value}");
        }
    }
}

fn gauge<'a>(name: &'a str, help: &'a str, value: u64) -> MetricFamily<'a> {
    MetricFamily { name, kind: "gauge", help, values: vec![(String::new(), value as f64)] }
}

fn by_state<'a>(name: &'a str, help: &'a str, values: &[(&str, u64)]) -> MetricFamily<'a> {
    let values = values
        .iter()
        .map(|(state, value)| (format!("{{state=\"{state}\"}}"), *value as f64))
        .collect();
    MetricFamily { name, kind: "gauge", help, values }
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
        by_state(
            "eyas_jobs",
            "Jobs that the dispatcher remembers.",
            &[
                ("running", jobs.running),
                ("succeeded", jobs.succeeded),
                ("failed", jobs.failed),
                ("cancelled", jobs.cancelled),
            ],
        ),
        by_state(
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
        gauge("eyas_executors", "Executors.", sum.executors),
        gauge(
            "eyas_executors_set_aside",
            "Executors that get no tasks because tasks failed on them.",
            sum.executors_set_aside,
        ),
        by_state("eyas_executor_tasks", "Tasks at executors, by their last reports.", &busy),
        processors("eyas_processors", "Processors of all executors.", sum.capacity_milli),
        processors(
            "eyas_processors_assigned",
            "Processors that tasks at executors request.",
            sum.assigned_milli,
        ),
        gauge("eyas_store_capacity_bytes", "Capacity of all stores.", sum.store_bytes),
        gauge("eyas_store_held_bytes", "Bytes of objects in all stores.", sum.held_bytes),
    ]
}

/// `GET /metrics`. While the dispatcher is away, there are only the metrics of this process.
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Answered {
    let read = ClusterSummary::read(&shared).await;
    let mut families = vec![gauge(
        "eyas_dispatcher_up",
        "Whether the dispatcher answers.",
        u64::from(read.is_ok()),
    )];
    if let Ok((summary, executors)) = read {
        families.extend(of_cluster(&summary, &executors));
    }
    let open = shared.open_streams() as u64;
    families.push(gauge("eyas_web_streams", "Open streams of events.", open));
    families.push(MetricFamily {
        kind: "counter",
        ..gauge("eyas_web_requests", "Requests over HTTP.", shared.requests.load(Ordering::Relaxed))
    });
    let mut text = String::new();
    families.iter().for_each(|family| family.write(&mut text));
    text.push_str("# EOF\n");
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(KIND))], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_openmetrics_has_them() {
        let mut text = String::new();
        by_state("a", "Help.", &[("x", 1), ("y", 2)]).write(&mut text);
        MetricFamily { kind: "counter", ..gauge("b", "More.", 3) }.write(&mut text);
        assert_eq!(
            text,
            "# TYPE a gauge\n# HELP a Help.\na{state=\"x\"} 1\na{state=\"y\"} 2\n\
             # TYPE b counter\n# HELP b More.\nb_total 3\n"
        );
    }
}
