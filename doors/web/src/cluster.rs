//! The cluster: its executors, pools and catalog, and a summary of it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::pool::PoolsRequest;
use eyas_client::types::course::TaskCounts;
use eyas_client::types::{Name, ObjectId};
use eyas_client::view::{ExecutorView, JobState, JobView};
use serde::{Deserialize, Serialize};

use crate::answer::{Answered, named};
use crate::api_error::ApiError;
use crate::shared::Shared;
use crate::{asked, jobs};

/// A summary of the cluster.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClusterSummary {
    pub cluster: String,
    pub eyas_version: &'static str,
    pub jobs: JobCounts,
    /// Tasks of all jobs that are remembered.
    pub tasks: TaskCounts,
    pub executors: u64,
    /// Executors that get no tasks, because tasks failed on them that others completed.
    pub executors_set_aside: u64,
    /// Processors of all executors, thousandths.
    pub capacity_milli: u64,
    /// Processors that tasks at executors request, thousandths.
    pub assigned_milli: u64,
    /// Bytes in the executors' stores, and their capacity.
    pub held_bytes: u64,
    pub store_bytes: u64,
}

/// Numbers of jobs by state.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct JobCounts {
    pub running: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Running jobs with tasks that no executor can run.
    pub stuck: u64,
}

impl ClusterSummary {
    pub fn of(cluster: String, jobs: &[JobView], executors: &[ExecutorView]) -> Self {
        let eyas_version = env!("CARGO_PKG_VERSION");
        let mut sum = ClusterSummary { cluster, eyas_version, ..ClusterSummary::default() };
        for job in jobs {
            *match job.state {
                JobState::Running => &mut sum.jobs.running,
                JobState::Succeeded => &mut sum.jobs.succeeded,
                JobState::Failed => &mut sum.jobs.failed,
                JobState::Cancelled => &mut sum.jobs.cancelled,
            } += 1;
            sum.jobs.stuck += u64::from(job.is_stuck);
            sum.tasks.blocked += job.tasks.blocked;
            sum.tasks.waiting += job.tasks.waiting;
            sum.tasks.assigned += job.tasks.assigned;
            sum.tasks.succeeded += job.tasks.succeeded;
            sum.tasks.failed += job.tasks.failed;
            sum.tasks.cancelled += job.tasks.cancelled;
        }
        for executor in executors {
            sum.executors += 1;
            sum.executors_set_aside += u64::from(executor.state == "set aside");
            sum.capacity_milli += u64::from(executor.capacity.cpus_milli);
            sum.assigned_milli += executor.assigned_milli;
            sum.held_bytes += executor.held_bytes;
            sum.store_bytes += executor.store_bytes;
        }
        sum
    }

    /// The summary of the cluster now.
    pub async fn read(shared: &Shared) -> Result<(Self, Vec<ExecutorView>), ApiError> {
        let jobs = jobs::all(shared).await?;
        let answer = shared.dispatcher.look(FromClient::Executors).await?;
        let ToClient::Executors(executors) = &*answer else { return Err(ApiError::unexpected()) };
        let cluster = shared.dispatcher.cluster().access()?.cluster;
        Ok((ClusterSummary::of(cluster, &jobs, executors), executors.clone()))
    }
}

/// `GET /status`.
pub(crate) async fn status(State(shared): State<Arc<Shared>>) -> Answered {
    Ok(named("status", &ClusterSummary::read(&shared).await?.0))
}

/// `GET /executors`.
pub(crate) async fn executors(State(shared): State<Arc<Shared>>) -> Answered {
    match &*shared.dispatcher.look(FromClient::Executors).await? {
        ToClient::Executors(executors) => Ok(named("executors", executors)),
        _ => Err(ApiError::unexpected()),
    }
}

/// `POST /executors/{executor}/stop`.
pub(crate) async fn stop_executor(
    State(shared): State<Arc<Shared>>,
    Path(executor): Path<String>,
) -> Answered {
    let request = FromClient::StopExecutor { executor };
    Ok(named("executors", &shared.dispatcher.change(request).await?))
}

async fn pools_named(shared: &Shared, name: Option<String>) -> Answered {
    let request = FromClient::Pools(PoolsRequest::Show { name });
    match &*shared.dispatcher.look(request).await? {
        ToClient::Pools(pools) => Ok(named("pools", pools)),
        _ => Err(ApiError::unexpected()),
    }
}

/// `GET /pools`.
pub(crate) async fn pools(State(shared): State<Arc<Shared>>) -> Answered {
    pools_named(&shared, None).await
}

/// `GET /pools/{pool}`.
pub(crate) async fn pool(State(shared): State<Arc<Shared>>, Path(name): Path<String>) -> Answered {
    pools_named(&shared, Some(name)).await
}

async fn change_pool(shared: &Shared, name: String, request: PoolsRequest) -> Answered {
    shared.dispatcher.change(FromClient::Pools(request)).await?;
    pools_named(shared, Some(name)).await
}

/// `POST /pools/{pool}/pause`.
pub(crate) async fn pause_pool(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Answered {
    change_pool(&shared, name.clone(), PoolsRequest::Pause { name }).await
}

/// `POST /pools/{pool}/resume`.
pub(crate) async fn resume_pool(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Answered {
    change_pool(&shared, name.clone(), PoolsRequest::Resume { name }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogQuery {
    /// An id, or a source: a URL.
    object: String,
}

/// `GET /catalog`.
pub(crate) async fn catalog(State(shared): State<Arc<Shared>>, uri: Uri) -> Answered {
    let CatalogQuery { object: named_object } = asked::query(&uri)?;
    let object: Option<ObjectId> = named_object.parse().ok();
    let source = match object {
        Some(_) => Name::default(),
        None if named_object.contains("://") => Name::from(&*named_object),
        None => {
            return Err(ApiError::wrong_request(format!(
                "`{named_object}` names no object: write its id of 32 hexadecimal digits, or the \
                 URL of its source, such as file:///data/a.fits or eyas://7/0/out.txt"
            )));
        }
    };
    let answer = shared.dispatcher.look(FromClient::Catalog { object, source }).await?;
    let ToClient::Objects(objects) = &*answer else { return Err(ApiError::unexpected()) };
    if objects.is_empty() {
        let message = format!("the catalog has no object `{named_object}`");
        return Err(ApiError::not_found(message, "no job has named it, and no executor holds it"));
    }
    Ok(named("objects", objects))
}

/// `GET /healthz`: this process answers.
pub(crate) async fn healthz() -> Answered {
    Ok(named("is_healthy", &true))
}

/// `GET /readyz`: the dispatcher answers, too.
pub(crate) async fn readyz(State(shared): State<Arc<Shared>>) -> Answered {
    match shared.live.is_connected() {
        true => Ok(named("is_ready", &true)),
        false => Err(ApiError::away("the connection is lost")),
    }
}

/// Any other path of the API.
pub(crate) async fn no_such_path(uri: Uri) -> axum::response::Response {
    let message = format!("there is nothing at {}", uri.path());
    ApiError::new(
        StatusCode::NOT_FOUND,
        "no-such-path",
        message,
        "see /api/v1/openapi.json for all paths",
    )
    .into_response()
}
