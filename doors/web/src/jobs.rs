//! Jobs: listed, shown, cancelled, retried, released and forgotten.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use eyas_client::ChangedInput;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::{JobId, ObjectSpec};
use eyas_client::view::{JobState, JobView};
use serde::Deserialize;

use crate::answer::{Answered, named, paged};
use crate::api_error::ApiError;
use crate::asked;
use crate::shared::Shared;

/// Most jobs of a page of the list.
const MAX_JOBS_LISTED: usize = 10_000;
/// Names of changed inputs in one message.
const MAX_INPUTS_NAMED: usize = 5;

/// Which jobs are listed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFilter {
    state: Option<JobState>,
    /// A text that the name has, in any case.
    name: Option<String>,
    user: Option<String>,
    #[serde(default)]
    order: JobOrder,
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JobOrder {
    #[default]
    Oldest,
    Newest,
}

impl JobFilter {
    fn has(&self, job: &JobView) -> bool {
        let has_name = |name: &String| job.name.to_lowercase().contains(&name.to_lowercase());
        self.state.is_none_or(|state| job.state == state)
            && self.name.as_ref().is_none_or(has_name)
            && self.user.as_ref().is_none_or(|user| job.owner.user == *user)
    }

    /// The jobs of this page, and the cursor of the next one.
    fn page(&self, all: &[JobView]) -> (Vec<JobView>, Option<u32>) {
        let mut jobs: Vec<&JobView> = all.iter().filter(|job| self.has(job)).collect();
        if self.order == JobOrder::Newest {
            jobs.reverse();
        }
        let is_before = |job: &&&JobView| match (self.order, self.cursor) {
            (_, None) => false,
            (JobOrder::Oldest, Some(cursor)) => job.job.0 < cursor,
            (JobOrder::Newest, Some(cursor)) => job.job.0 > cursor,
        };
        let mut jobs = jobs.iter().skip_while(is_before).map(|job| (*job).clone());
        let limit = self.limit.map_or(MAX_JOBS_LISTED, |limit| limit as usize);
        let limit = limit.clamp(1, MAX_JOBS_LISTED);
        let page = jobs.by_ref().take(limit).collect();
        (page, jobs.next().map(|job| job.job.0))
    }
}

/// All jobs, the oldest first.
pub(crate) async fn all(shared: &Shared) -> Result<Vec<JobView>, ApiError> {
    match &*shared.dispatcher.look(FromClient::Jobs { job: None }).await? {
        ToClient::Jobs(jobs) => Ok(jobs.clone()),
        _ => Err(ApiError::unexpected()),
    }
}

/// One job.
pub(crate) async fn one(shared: &Shared, job: JobId) -> Result<JobView, ApiError> {
    let answer = shared.dispatcher.look(FromClient::Jobs { job: Some(job) }).await?;
    let ToClient::Jobs(jobs) = &*answer else { return Err(ApiError::unexpected()) };
    jobs.first().cloned().ok_or_else(ApiError::unexpected)
}

/// `GET /jobs`.
pub(crate) async fn list(State(shared): State<Arc<Shared>>, uri: Uri) -> Answered {
    let filter: JobFilter = asked::query(&uri)?;
    let (page, next) = filter.page(&all(&shared).await?);
    Ok(paged("jobs", &page, next))
}

/// `GET /jobs/{job}`.
pub(crate) async fn show(State(shared): State<Arc<Shared>>, Path(job): Path<String>) -> Answered {
    Ok(named("jobs", &[one(&shared, asked::job(&job)?).await?]))
}

/// `GET /jobs/{job}/graph`.
pub(crate) async fn graph(State(shared): State<Arc<Shared>>, Path(job): Path<String>) -> Answered {
    let job = asked::job(&job)?;
    let graph = shared.dispatcher.with(|client| Box::pin(client.graph(job))).await?;
    Ok(named("graph", &graph))
}

/// `GET /jobs/{job}/report`.
pub(crate) async fn report(State(shared): State<Arc<Shared>>, Path(job): Path<String>) -> Answered {
    let asked = FromClient::Report { job: asked::job(&job)? };
    match &*shared.dispatcher.look(asked).await? {
        ToClient::Report(report) => Ok(named("report", report)),
        _ => Err(ApiError::unexpected()),
    }
}

/// `POST /jobs/{job}/cancel`.
pub(crate) async fn cancel(State(shared): State<Arc<Shared>>, Path(job): Path<String>) -> Answered {
    let request = FromClient::Cancel { job: asked::job(&job)?, task: None };
    Ok(named("tasks", &shared.dispatcher.change(request).await?))
}

/// `POST /jobs/{job}/release`.
pub(crate) async fn release(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
) -> Answered {
    let request = FromClient::Release { job: asked::job(&job)? };
    Ok(named("objects", &shared.dispatcher.change(request).await?))
}

/// `DELETE /jobs/{job}`.
pub(crate) async fn forget(State(shared): State<Arc<Shared>>, Path(job): Path<String>) -> Answered {
    let request = FromClient::Forget { job: asked::job(&job)? };
    shared.dispatcher.change(request).await?;
    Ok(named("jobs", &1))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryQuery {
    /// Whether inputs that have changed are read as they are now.
    #[serde(default)]
    current: bool,
}

/// `POST /jobs/{job}/retry`. The look at the inputs has a connection of its own: a job may have
/// many.
pub(crate) async fn retry(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
    uri: Uri,
) -> Answered {
    let (job, RetryQuery { current }) = (asked::job(&job)?, asked::query(&uri)?);
    let mut own = shared.dispatcher.own_client().await?;
    let changed = own.client.changed_inputs(shared.dispatcher.cluster(), job).await?;
    drop(own);
    let current = match current {
        true => changed.into_iter().map(as_now).collect::<Result<_, _>>()?,
        false if changed.is_empty() => Vec::new(),
        false => return Err(has_changed(job, &changed)),
    };
    let count = shared.dispatcher.change(FromClient::Retry { job, current }).await?;
    Ok(named("tasks", &count))
}

fn as_now(input: ChangedInput) -> Result<(u32, ObjectSpec), ApiError> {
    let unreadable = |why: &dyn std::fmt::Display| {
        ApiError::new(
            StatusCode::CONFLICT,
            "input-unreadable",
            format!("an input cannot be read as it is now: {why}"),
            "make the input readable, and retry the job",
        )
    };
    Ok((input.place, input.now.map_err(|why| unreadable(&why))?))
}

fn has_changed(job: JobId, changed: &[ChangedInput]) -> ApiError {
    let named = changed.iter().take(MAX_INPUTS_NAMED);
    let names: Vec<_> = named.map(|input| format!("`{}`", input.before.source)).collect();
    let count = changed.len();
    ApiError::new(
        StatusCode::CONFLICT,
        "inputs-changed",
        format!("inputs of job {job} changed since submission ({count}): {}", names.join(", ")),
        "retry with ?current=true to read them as they are now, or submit the job again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::job;

    #[test]
    fn jobs_are_filtered_and_paged() {
        let (failed, running) = (JobState::Failed, JobState::Running);
        let all = [job(1, "Sky", failed), job(2, "sea", running), job(4, "sky2", running)];
        let page = |query: &str| {
            let uri: Uri = format!("/?{query}").parse().unwrap();
            let (page, next) = asked::query::<JobFilter>(&uri).unwrap().page(&all);
            (page.iter().map(|job| job.job.0).collect::<Vec<_>>(), next)
        };
        assert_eq!(page(""), (vec![1, 2, 4], None));
        assert_eq!(page("limit=2"), (vec![1, 2], Some(4)));
        assert_eq!(page("limit=2&cursor=4"), (vec![4], None));
        assert_eq!(page("limit=2&order=newest"), (vec![4, 2], Some(1)));
        assert_eq!(page("limit=2&order=newest&cursor=1"), (vec![1], None));
        assert_eq!(page("name=SKY"), (vec![1, 4], None));
        assert_eq!(page("state=running&limit=1"), (vec![2], Some(4)));
        assert_eq!(page("user=x"), (vec![], None));
        let wrong: Uri = "/?stat=x".parse().unwrap();
        let error = asked::query::<JobFilter>(&wrong).err().unwrap();
        assert!(error.message.contains("stat"), "{error:?}");
    }
}
