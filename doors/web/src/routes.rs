//! The paths of the API. One list makes both the router and the OpenAPI document, so they cannot
//! differ.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};

use crate::openapi::{ApiDocument, ApiParameter, ApiRoute, RouteAnswer};
use crate::shared::Shared;
use crate::{answer, cluster, jobs, metrics, page, sse, submit, tasks};

/// What the versioned paths begin with.
const API: &str = "/api/v1";

type Handler = fn() -> MethodRouter<Arc<Shared>>;

const fn parameter(
    name: &'static str,
    schema: &'static str,
    description: &'static str,
) -> ApiParameter {
    ApiParameter { name, schema, description }
}

const LIMIT: ApiParameter = parameter("limit", "integer", "Most entries of the page.");
const CURSOR: ApiParameter = parameter("cursor", "integer", "`next` of the page before.");
const AFTER: ApiParameter = parameter(
    "after",
    "string",
    "The id of the last event that the reader has, or `now`; the header Last-Event-ID comes first.",
);
const INCLUDE: ApiParameter =
    parameter("include", "string", "`state`: also changes of jobs and executors.");

const JOBS_QUERY: &[ApiParameter] = &[
    parameter("state", "JobState", "Only jobs in this state."),
    parameter("name", "string", "Only jobs whose name has this text, in any case."),
    parameter("user", "string", "Only jobs that this user has submitted."),
    parameter("order", "oldest|newest", "Which jobs come first."),
    LIMIT,
    CURSOR,
];
const TASKS_QUERY: &[ApiParameter] = &[
    parameter("state", "string", "Only tasks in these states, separated by commas."),
    parameter("text", "string", "Only tasks whose id, item, executor or status has this text."),
    parameter(
        "sort",
        "index|ran_us|queued_us|cpu_us|peak_memory_bytes|tries|state",
        "By what the tasks are sorted.",
    ),
    parameter("order", "ascending|descending", "The direction."),
    LIMIT,
    CURSOR,
];
const OBJECT: &[ApiParameter] = &[parameter(
    "object",
    "string",
    "The id of an object, or the URL of its source (file:///data/a.fits).",
)];
const CURRENT: &[ApiParameter] =
    &[parameter("current", "boolean", "Read inputs that have changed as they are now.")];

const fn route(
    method: Method,
    path: &'static str,
    summary: &'static str,
    query: &'static [ApiParameter],
    answer: RouteAnswer,
) -> ApiRoute {
    ApiRoute { method, path, summary, query, answer }
}

const fn json(fields: &'static [(&'static str, &'static str)]) -> RouteAnswer {
    RouteAnswer::Json(fields)
}

/// Paths about jobs.
fn job_routes() -> Vec<(ApiRoute, Handler)> {
    const JOBS: RouteAnswer = json(&[("jobs", "[JobView]")]);
    const COUNT: RouteAnswer = json(&[("tasks", "integer")]);
    use Method as M;
    vec![
        (
            route(
                M::GET,
                "/jobs",
                "List jobs",
                JOBS_QUERY,
                json(&[("jobs", "[JobView]"), ("next", "integer?")]),
            ),
            || get(jobs::list),
        ),
        (route(M::POST, "/jobs", "Submit a job", &[], RouteAnswer::Created), || {
            post(submit::submit)
        }),
        (route(M::GET, "/jobs/{job}", "Show a job", &[], JOBS), || get(jobs::show)),
        (
            route(
                M::DELETE,
                "/jobs/{job}",
                "Forget an ended job",
                &[],
                json(&[("jobs", "integer")]),
            ),
            || delete(jobs::forget),
        ),
        (
            route(
                M::POST,
                "/jobs/{job}/cancel",
                "Cancel the tasks that have not ended",
                &[],
                COUNT,
            ),
            || post(jobs::cancel),
        ),
        (
            route(
                M::POST,
                "/jobs/{job}/retry",
                "Run failed and cancelled tasks of an ended job again",
                CURRENT,
                COUNT,
            ),
            || post(jobs::retry),
        ),
        (
            route(
                M::POST,
                "/jobs/{job}/release",
                "Let executors evict the outputs that an ended job keeps in the cluster",
                &[],
                json(&[("objects", "integer")]),
            ),
            || post(jobs::release),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/graph",
                "Show the templates of a job, and what they read of each other",
                &[],
                json(&[("graph", "JobGraph")]),
            ),
            || get(jobs::graph),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/report",
                "Show the samples and metrics of a job",
                &[],
                json(&[("report", "JobReport")]),
            ),
            || get(jobs::report),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/events",
                "Follow a job to its end",
                &[AFTER],
                RouteAnswer::Stream,
            ),
            || get(sse::job_events),
        ),
    ]
}

/// Paths about tasks.
fn task_routes() -> Vec<(ApiRoute, Handler)> {
    use Method as M;
    vec![
        (
            route(
                M::GET,
                "/jobs/{job}/tasks",
                "List tasks of a job",
                TASKS_QUERY,
                json(&[("tasks", "[TaskView]"), ("next", "integer?"), ("matches", "integer?")]),
            ),
            || get(tasks::list),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/tasks/{index}",
                "Show a task",
                &[],
                json(&[("task", "TaskView")]),
            ),
            || get(tasks::show),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/tasks/{index}/explanation",
                "Explain why a task waits, or where it ran and why",
                &[],
                json(&[("explanation", "Explanation")]),
            ),
            || get(tasks::explain),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/tasks/{index}/log",
                "Show how a task ended and what it has printed",
                &[],
                json(&[("log", "TaskLogView")]),
            ),
            || get(tasks::log),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/tasks/{index}/stdout",
                "Get the standard output of a task",
                &[],
                RouteAnswer::Text,
            ),
            || get(tasks::stdout),
        ),
        (
            route(
                M::GET,
                "/jobs/{job}/tasks/{index}/stderr",
                "Get the standard error of a task",
                &[],
                RouteAnswer::Text,
            ),
            || get(tasks::stderr),
        ),
        (
            route(
                M::POST,
                "/jobs/{job}/tasks/{index}/cancel",
                "Cancel a task",
                &[],
                json(&[("tasks", "integer")]),
            ),
            || post(tasks::cancel),
        ),
    ]
}

/// Paths about the cluster.
fn cluster_routes() -> Vec<(ApiRoute, Handler)> {
    const POOLS: RouteAnswer = json(&[("pools", "[PoolView]")]);
    use Method as M;
    vec![
        (
            route(
                M::GET,
                "/status",
                "Show a summary of the cluster",
                &[],
                json(&[("status", "ClusterSummary")]),
            ),
            || get(cluster::status),
        ),
        (
            route(
                M::GET,
                "/executors",
                "List executors",
                &[],
                json(&[("executors", "[ExecutorView]")]),
            ),
            || get(cluster::executors),
        ),
        (route(M::GET, "/pools", "List pools of nodes", &[], POOLS), || get(cluster::pools)),
        (
            route(M::GET, "/pools/{pool}", "Show a pool with its nodes and requests", &[], POOLS),
            || get(cluster::pool),
        ),
        (
            route(
                M::GET,
                "/catalog",
                "Show which executors hold an object",
                OBJECT,
                json(&[("objects", "[ObjectView]")]),
            ),
            || get(cluster::catalog),
        ),
        (
            route(
                M::GET,
                "/events",
                "Follow what happens in the cluster",
                &[AFTER, INCLUDE],
                RouteAnswer::Stream,
            ),
            || get(sse::cluster_events),
        ),
    ]
}

fn all() -> Vec<(ApiRoute, Handler)> {
    [job_routes(), task_routes(), cluster_routes()].concat()
}

/// The document of the API.
fn document() -> String {
    let routes: Vec<_> = all().into_iter().map(|(route, _)| route).collect();
    ApiDocument { base: API, routes: &routes }.text()
}

/// Answers every path.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let document: Arc<str> = document().into();
    let openapi = move || std::future::ready(answer::json(document.to_string()));
    let api = all().into_iter().fold(Router::new(), |router, (route, handler)| {
        router.route(&format!("{API}{}", route.path), handler())
    });
    let page = |request: Request| async move { page::answer(request.uri()) };
    let other = |request: Request| async move {
        let is_api = request.uri().path().starts_with("/api");
        let found: Response = match is_api {
            true => cluster::no_such_path(request.uri().clone()).await,
            false => page::answer(request.uri()),
        };
        found
    };
    api.route(&format!("{API}/openapi.json"), get(openapi))
        .route("/healthz", get(cluster::healthz))
        .route("/readyz", get(cluster::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/", get(page))
        .fallback(other)
        .with_state(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Whether all references of a document lead to something in it.
    fn check_references(value: &Value, document: &Value) {
        if let Some(to) = value.get("$ref").and_then(Value::as_str) {
            assert!(document.pointer(&to[1..]).is_some(), "{to}");
        }
        let inner = value.as_object().into_iter().flat_map(|fields| fields.values());
        let items = value.as_array().into_iter().flatten();
        inner.chain(items).for_each(|value| check_references(value, document));
    }

    #[test]
    fn the_document_has_each_path_with_its_parameters_and_schemas() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        check_references(&document, &document);
        let mut count = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (_, route) in methods.as_object().unwrap() {
                count += 1;
                let named: Vec<_> = route["parameters"].as_array().unwrap().iter().collect();
                let in_path = path.matches('{').count();
                assert!(named.iter().filter(|named| named["in"] == "path").count() == in_path);
            }
        }
        assert_eq!(count, all().len());
    }
}
