//! The paths of the API. One list makes both the router and the OpenAPI document, so they cannot
//! differ.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};

use crate::api_error::ApiError;
use crate::gate::Granted;
use crate::openapi::{ApiDocument, ApiParameter, ApiRoute, RouteAnswer};
use crate::shared::Shared;
use crate::web_tokens::WebScope;
use crate::{
    answer, cluster, jobs, metrics, page, push, sse, submit, task_export, tasks, timeline_answer,
};

/// The beginning of the versioned paths.
const API: &str = "/api/v1";

type Handler = fn() -> MethodRouter<Arc<Shared>>;

const fn parameter(
    name: &'static str,
    schema: &'static str,
    description: &'static str,
) -> ApiParameter {
    ApiParameter { name, schema, description }
}

const LIMIT: ApiParameter = parameter("limit", "count", "Most entries of the page.");
const CURSOR: ApiParameter = parameter("cursor", "count", "`next` of the page before.");
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
const TIMELINE_QUERY: &[ApiParameter] = &[
    parameter("from_us", "time", "The beginning, of the job's time."),
    parameter("to_us", "time", "The end, of the job's time."),
    parameter("idle", "whole|compressed", "How long stretches without tasks are drawn."),
    parameter("executor", "string", "Only the slots of this executor."),
];
const OBJECT: &[ApiParameter] = &[parameter(
    "object",
    "object",
    "The id of an object, or the URL of its source (file:///data/a.fits).",
)];
const NAMES_QUERY: &[ApiParameter] = &[
    parameter("prefix", "string", "Only names that begin with this text."),
    parameter("cursor", "string", "`next` of the page before. An empty page is the last one."),
];
const CURRENT: &[ApiParameter] =
    &[parameter("current", "boolean", "Read inputs that have changed as they are now.")];

/// A path with the method GET.
fn read(
    path: &'static str,
    summary: &'static str,
    query: &'static [ApiParameter],
    answer: RouteAnswer,
    handler: Handler,
) -> (ApiRoute, Handler) {
    let (method, scope) = (Method::GET, WebScope::Read);
    (ApiRoute { method, path, summary, query, answer, scope }, handler)
}

/// A path with another method.
fn change(
    method: Method,
    path: &'static str,
    summary: &'static str,
    answer: RouteAnswer,
    handler: Handler,
) -> (ApiRoute, Handler) {
    let scope = if is_for_admins(path, &method) { WebScope::Admin } else { WebScope::Submit };
    (ApiRoute { method, path, summary, query: &[], answer, scope }, handler)
}

/// Whether a request loses results, or changes the cluster.
fn is_for_admins(path: &str, method: &Method) -> bool {
    let is_of_cluster = path.starts_with("/executors") || path.starts_with("/pools");
    *method == Method::DELETE || path.ends_with("/release") || is_of_cluster
}

/// Numbers of tasks, jobs or objects that were changed.
const TASKS_CHANGED: RouteAnswer = RouteAnswer::Json(&[("tasks", "integer")]);
const JOBS_CHANGED: RouteAnswer = RouteAnswer::Json(&[("jobs", "integer")]);
const EXECUTORS_CHANGED: RouteAnswer = RouteAnswer::Json(&[("executors", "integer")]);
const OBJECTS_CHANGED: RouteAnswer = RouteAnswer::Json(&[("objects", "integer")]);
/// A page of a list.
const JOBS_PAGE: RouteAnswer = RouteAnswer::Json(&[("jobs", "[JobView]"), ("next", "integer?")]);
const TASKS_PAGE: RouteAnswer =
    RouteAnswer::Json(&[("tasks", "[TaskView]"), ("next", "integer?"), ("matches", "integer?")]);
/// Views.
const PUSH: RouteAnswer = RouteAnswer::Json(&[("push", "PushView")]);
const JOBS: RouteAnswer = RouteAnswer::Json(&[("jobs", "[JobView]")]);
const GRAPH: RouteAnswer = RouteAnswer::Json(&[("graph", "JobGraph")]);
const REPORT: RouteAnswer = RouteAnswer::Json(&[("report", "JobReport")]);
const TIMELINE: RouteAnswer = RouteAnswer::Json(&[("timeline", "TimelinePicture")]);
const TASKS: RouteAnswer = RouteAnswer::Json(&[("tasks", "[TaskView]")]);
const TASK: RouteAnswer = RouteAnswer::Json(&[("task", "TaskView")]);
const EXPLANATION: RouteAnswer = RouteAnswer::Json(&[("explanation", "Explanation")]);
const LOG: RouteAnswer = RouteAnswer::Json(&[("log", "TaskLogView")]);
const STATUS: RouteAnswer = RouteAnswer::Json(&[("status", "ClusterSummary")]);
const EXECUTORS: RouteAnswer = RouteAnswer::Json(&[("executors", "[ExecutorView]")]);
const POOLS: RouteAnswer = RouteAnswer::Json(&[("pools", "[PoolView]")]);
const NAMES: RouteAnswer = RouteAnswer::Json(&[("names", "[NamedFileView]"), ("next", "string?")]);
const OBJECTS: RouteAnswer = RouteAnswer::Json(&[("objects", "[ObjectView]")]);

/// Paths that show jobs.
fn job_routes() -> Vec<(ApiRoute, Handler)> {
    let graph = "Show the templates of a job, and what they read of each other";
    let (text, stream) = (RouteAnswer::Text, RouteAnswer::Stream);
    let explanation = "Explain why a task waits, or where it ran and why";
    let timeline = "Show what slots of executors did at which time";
    vec![
        read("/jobs", "List jobs", JOBS_QUERY, JOBS_PAGE, || get(jobs::list)),
        read("/jobs/{job}", "Show a job", &[], JOBS, || get(jobs::show)),
        read("/jobs/{job}/graph", graph, &[], GRAPH, || get(jobs::graph)),
        read("/jobs/{job}/report", "Show samples and metrics", &[], REPORT, || get(jobs::report)),
        read("/jobs/{job}/events", "Follow a job to its end", &[AFTER], stream, || {
            get(sse::job_events)
        }),
        read("/jobs/{job}/timeline", timeline, TIMELINE_QUERY, TIMELINE, || {
            get(timeline_answer::show)
        }),
        read("/jobs/{job}/tasks", "List tasks", TASKS_QUERY, TASKS_PAGE, || get(tasks::list)),
        read("/jobs/{job}/tasks.json", "Get all tasks", &[], TASKS, || get(task_export::as_json)),
        read("/jobs/{job}/tasks.csv", "Get all tasks as CSV", &[], RouteAnswer::Csv, || {
            get(task_export::as_csv)
        }),
        read("/jobs/{job}/tasks/{index}", "Show a task", &[], TASK, || get(tasks::show)),
        read("/jobs/{job}/tasks/{index}/explanation", explanation, &[], EXPLANATION, || {
            get(tasks::explain)
        }),
        read("/jobs/{job}/tasks/{index}/log", "Show an end and outputs", &[], LOG, || {
            get(tasks::log)
        }),
        read("/jobs/{job}/tasks/{index}/stdout", "Get standard output", &[], text, || {
            get(tasks::stdout)
        }),
        read("/jobs/{job}/tasks/{index}/stderr", "Get standard error", &[], text, || {
            get(tasks::stderr)
        }),
    ]
}

/// Paths that make or change jobs.
fn change_routes() -> Vec<(ApiRoute, Handler)> {
    let retry = "Run failed and cancelled tasks of an ended job again";
    let release = "Let executors evict the outputs that an ended job keeps in the cluster";
    let mut retried =
        change(Method::POST, "/jobs/{job}/retry", retry, TASKS_CHANGED, || post(jobs::retry));
    retried.0.query = CURRENT;
    vec![
        change(Method::POST, "/jobs", "Submit a job", RouteAnswer::Created, || {
            post(submit::submit)
        }),
        change(Method::POST, "/push", "Copy objects to executors", PUSH, || post(push::push)),
        change(Method::DELETE, "/jobs/{job}", "Forget an ended job", JOBS_CHANGED, || {
            delete(jobs::forget)
        }),
        change(Method::POST, "/jobs/{job}/cancel", "Cancel a job", TASKS_CHANGED, || {
            post(jobs::cancel)
        }),
        retried,
        change(Method::POST, "/jobs/{job}/release", release, OBJECTS_CHANGED, || {
            post(jobs::release)
        }),
        change(
            Method::POST,
            "/jobs/{job}/tasks/{index}/cancel",
            "Cancel a task",
            TASKS_CHANGED,
            || post(tasks::cancel),
        ),
    ]
}

/// Paths that change the cluster.
fn cluster_change_routes() -> Vec<(ApiRoute, Handler)> {
    let of_pool =
        |path, summary, handler: Handler| change(Method::POST, path, summary, POOLS, handler);
    vec![
        change(
            Method::POST,
            "/executors/{executor}/stop",
            "Stop an executor",
            EXECUTORS_CHANGED,
            || post(cluster::stop_executor),
        ),
        of_pool("/pools/{pool}/pause", "Let a pool request no nodes", || post(cluster::pause_pool)),
        of_pool("/pools/{pool}/resume", "Let a pool request nodes again", || {
            post(cluster::resume_pool)
        }),
    ]
}

/// Paths about the cluster.
fn cluster_routes() -> Vec<(ApiRoute, Handler)> {
    let events = "Follow what happens in the cluster";
    let catalog = "Show which executors hold an object";
    vec![
        read("/status", "Show a summary of the cluster", &[], STATUS, || get(cluster::status)),
        read("/executors", "List executors", &[], EXECUTORS, || get(cluster::executors)),
        read("/pools", "List pools of nodes", &[], POOLS, || get(cluster::pools)),
        read("/pools/{pool}", "Show a pool with its nodes", &[], POOLS, || get(cluster::pool)),
        read("/catalog", catalog, OBJECT, OBJECTS, || get(cluster::catalog)),
        read("/names", "List names of files, and their places", NAMES_QUERY, NAMES, || {
            get(cluster::names)
        }),
        read("/events", events, &[AFTER, INCLUDE], RouteAnswer::Stream, || {
            get(sse::cluster_events)
        }),
    ]
}

fn all() -> Vec<(ApiRoute, Handler)> {
    [job_routes(), change_routes(), cluster_routes(), cluster_change_routes()].concat()
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
        let handler = handler().route_layer(from_fn_with_state(route.scope, check_scope));
        router.route(&format!("{API}{}", route.path), handler)
    });
    let page = |State(shared): State<Arc<Shared>>, request: Request| async move {
        page::answer(request.uri(), shared.base.text())
    };
    let other = |State(shared): State<Arc<Shared>>, request: Request| async move {
        let is_api = request.uri().path().starts_with("/api");
        let found: Response = match is_api {
            true => cluster::no_such_path(request.uri().clone()).await,
            false => page::answer(request.uri(), shared.base.text()),
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

/// Refuses a request whose token does not permit it.
async fn check_scope(State(need): State<WebScope>, request: Request, next: Next) -> Response {
    let granted = request.extensions().get::<Granted>().map(|granted| granted.0);
    if granted.is_some_and(|granted| granted >= need) {
        return next.run(request).await;
    }
    let message =
        format!("the token is not permitted to do this: it needs the scope {}", need.name());
    let hint = format!("make a token with `eyas web token create --scope {}`", need.name());
    ApiError::new(StatusCode::FORBIDDEN, "scope", message, hint).into_response()
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
