//! UWS 1.1: the jobs of an account, as programs of the Virtual Observatory drive them.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::accounts::Role;
use crate::admission::{Caller, PortalUrl, redirect};
use crate::clock::iso;
use crate::datalink::links_document;
use crate::lifecycle;
use crate::portal::Portal;
use crate::position_files::{kept_positions, positions_csv};
use crate::problem::Problem;
use crate::record::{Phase, StackJob};
use crate::results::result_kind;
use crate::secrets::unix_ms;
use crate::upload::Form;
use crate::uws_documents::{job_document, jobs_document, parameters_document, results_document};

/// `WAIT` waits for this time at most, also if it asks for more, or for ever with -1.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Jobs that `LAST` or a list without it shows.
const MAX_JOBS_LISTED: usize = 10_000;

type Answered = Result<Response, Problem>;
type At = State<Arc<Portal>>;

fn xml(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], text).into_response()
}

fn plain(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

fn base_of(url: &PortalUrl) -> String {
    format!("{}/async", url.text)
}

fn to_job(url: &PortalUrl, id: &str) -> Response {
    redirect(&format!("{}/{id}", base_of(url)))
}

/// A job, if the caller may see it. Others do not learn that it exists.
pub fn visible(portal: &Portal, caller: &Caller, id: &str) -> Result<StackJob, Problem> {
    let job = portal.jobs.get(id).filter(|job| may_see(caller, job));
    let short: String = id.chars().take(40).collect();
    job.ok_or_else(|| Problem::missing(format!("there is no job `{short}` of this account")))
}

/// Whether the caller may see a job.
pub fn may_see(caller: &Caller, job: &StackJob) -> bool {
    !job.is_deleted && (caller.role == Role::Admin || job.owner == caller.account.name)
}

/// `GET /async`.
pub async fn list(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    uri: Uri,
) -> Answered {
    let form = Form::of_query(uri.query())?;
    let phases: Result<Vec<Phase>, Problem> = form
        .texts("PHASE")
        .into_iter()
        .filter(|name| !["HELD", "SUSPENDED", "UNKNOWN", "ARCHIVED"].contains(name))
        .map(|name| Phase::named(name).ok_or_else(|| Problem::wrong("PHASE is not one of UWS")))
        .collect();
    let (phases, has_phases) = (phases?, !form.texts("PHASE").is_empty());
    let after_ms = match form.text("AFTER") {
        None => 0,
        Some(text) => time_ms(text)
            .ok_or_else(|| Problem::wrong("AFTER is a time such as 2030-01-31T12:00:00Z"))?,
    };
    let last = match form.text("LAST") {
        None => MAX_JOBS_LISTED,
        Some(text) => {
            let last = text.parse::<usize>().ok().filter(|last| *last > 0);
            last.ok_or_else(|| Problem::wrong("LAST is a number of jobs, from 1"))?
        }
    };
    let mut jobs = portal.jobs.list(|job| {
        may_see(&caller, job)
            && (!has_phases || phases.contains(&job.phase))
            && job.created_ms > after_ms
    });
    jobs.truncate(last.min(MAX_JOBS_LISTED));
    Ok(xml(jobs_document(&jobs, &base_of(&url))))
}

/// Milliseconds since 1970 of a time in ISO 8601; UTC, if it names no zone.
fn time_ms(text: &str) -> Option<u64> {
    let time: Option<jiff::Timestamp> = text.parse().ok();
    let time = time.or_else(|| format!("{text}Z").parse().ok())?;
    u64::try_from(time.as_millisecond()).ok()
}

/// `POST /async`.
pub async fn create(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    caller.must_be(Role::Submit)?;
    let form = Form::read(&headers, body).await?;
    let phase = form.text("PHASE");
    if phase.is_some_and(|phase| phase != "RUN") {
        return Err(Problem::wrong("a job is created with PHASE=RUN, or without PHASE"));
    }
    let job = block_in_place(|| lifecycle::create(&portal, &caller.account.name, &form))?;
    if phase.is_some() {
        // A job that cannot run is not left behind.
        lifecycle::run(&portal, &job.id).inspect_err(|_| {
            let _ = lifecycle::delete(&portal, &job.id);
        })?;
    }
    Ok(to_job(&url, &job.id))
}

/// `GET /async/{id}`.
pub async fn show(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answered {
    let job = visible(&portal, &caller, &id)?;
    let form = Form::of_query(uri.query())?;
    if let Some(seconds) = form.text("WAIT") {
        let seconds: i64 =
            seconds.parse().map_err(|_| Problem::wrong("WAIT is a number of seconds, or -1"))?;
        let time = u64::try_from(seconds).map_or(MAX_WAIT, Duration::from_secs).min(MAX_WAIT);
        let is_of_phase = form.text("PHASE").is_none_or(|phase| phase == job.phase.name());
        // An account without a slot has its answer at once, as after a WAIT of 0.
        let slots = portal.waits.of_account(&caller.account.name);
        let slot = slots.try_acquire();
        if !job.phase.is_over() && is_of_phase && slot.is_ok() {
            let _ = timeout(time, portal.jobs.wait_while(&id, job.phase)).await;
        }
    }
    let job = visible(&portal, &caller, &id)?;
    let quote_ms = portal.quote_ms(&job, unix_ms());
    Ok(xml(job_document(&job, &base_of(&url), quote_ms)))
}

/// `POST /async/{id}`: parameters, or `ACTION=DELETE`.
pub async fn act(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    caller.must_be(Role::Submit)?;
    visible(&portal, &caller, &id)?;
    let form = Form::read(&headers, body).await?;
    match form.text("ACTION") {
        Some("DELETE") => {
            lifecycle::delete(&portal, &id)?;
            return Ok(redirect(&base_of(&url)));
        }
        Some(_) => return Err(Problem::wrong("ACTION has to be DELETE")),
        None => {}
    }
    change(&portal, &id, &form)?;
    Ok(to_job(&url, &id))
}

/// `DELETE /async/{id}`.
pub async fn delete(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    Path(id): Path<String>,
) -> Answered {
    caller.must_be(Role::Submit)?;
    visible(&portal, &caller, &id)?;
    lifecycle::delete(&portal, &id)?;
    Ok(redirect(&base_of(&url)))
}

/// Sets whatever a form has: a phase, times, parameters.
fn change(portal: &Arc<Portal>, id: &str, form: &Form) -> Result<(), Problem> {
    let is_param = |name: &String| !lifecycle::ACTIONS.contains(&&**name);
    if let Some(text) = form.text("DESTRUCTION") {
        block_in_place(|| lifecycle::set_destruction(portal, id, text))?;
    }
    if let Some(text) = form.text("EXECUTIONDURATION") {
        block_in_place(|| lifecycle::set_duration(portal, id, text))?;
    }
    if form.fields().any(|(name, _)| is_param(&name)) {
        block_in_place(|| lifecycle::set_params(portal, id, form))?;
    }
    match form.text("PHASE") {
        None => Ok(()),
        Some("RUN") => lifecycle::run(portal, id).map(drop),
        Some("ABORT") => lifecycle::abort(portal, id).map(drop),
        Some(_) => Err(Problem::wrong("PHASE is set to RUN or ABORT")),
    }
}

/// `GET /async/{id}/{part}`.
pub async fn part(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    Path((id, part)): Path<(String, String)>,
) -> Answered {
    let (job, base) = (visible(&portal, &caller, &id)?, base_of(&url));
    Ok(match &*part {
        "phase" => plain(job.phase.name().to_owned()),
        "executionduration" => plain(job.duration_s.to_string()),
        "destruction" => plain(iso(job.destruction_ms)),
        "quote" => plain(iso(portal.quote_ms(&job, unix_ms()))),
        "owner" => plain(job.owner),
        "parameters" => xml(parameters_document(&job, &base)),
        "results" => xml(results_document(&job, &base)),
        "error" => plain(job.error.unwrap_or_default()),
        "positions.csv" if job.params.positions > 0 => {
            let list = kept_positions(&portal.folder_of(&id)).map_err(of_disk)?;
            let kind = [(header::CONTENT_TYPE, "text/csv; charset=utf-8")];
            (kind, positions_csv(&list)).into_response()
        }
        _ => return Err(Problem::missing("a job of UWS has no such part")),
    })
}

fn of_disk(why: std::io::Error) -> Problem {
    tracing::error!("a file of a job cannot be read: {why}");
    Problem::of_portal("the portal cannot read a file of the job: tell its administrator")
}

/// `POST /async/{id}/{part}`.
pub async fn set_part(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    Path((id, part)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    caller.must_be(Role::Submit)?;
    visible(&portal, &caller, &id)?;
    let form = Form::read(&headers, body).await?;
    let field = match &*part {
        "phase" => "PHASE",
        "executionduration" => "EXECUTIONDURATION",
        "destruction" => "DESTRUCTION",
        "parameters" => {
            block_in_place(|| lifecycle::set_params(&portal, &id, &form))?;
            return Ok(to_job(&url, &id));
        }
        _ => return Err(Problem::missing("this part of a job cannot be set")),
    };
    if form.text(field).is_none() {
        return Err(Problem::wrong(format!("send a form with the field {field}")));
    }
    change(&portal, &id, &form)?;
    Ok(to_job(&url, &id))
}

/// `GET /async/{id}/results/{result}`.
pub async fn result(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Path((id, result)): Path<(String, String)>,
) -> Answered {
    let job = visible(&portal, &caller, &id)?;
    result_file(&portal, &job, &result).await
}

/// A file of the results.
pub async fn result_file(portal: &Portal, job: &StackJob, result: &str) -> Answered {
    let is_there = job.results.iter().any(|file| file.id == result);
    let kind = result_kind(result).filter(|_| is_there);
    let kind = kind.ok_or_else(|| Problem::missing("the job has no such result"))?;
    let path = portal.folder_of(&job.id).join(kind.file);
    let bytes = tokio::fs::read(path).await.map_err(of_disk)?;
    let name = format!("inline; filename=\"stack-{}-{}\"", job.id, kind.file);
    let head = [(header::CONTENT_TYPE, kind.mime.to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((StatusCode::OK, head, bytes).into_response())
}

/// `GET /links?ID=…`: DataLink.
pub async fn links(
    State(portal): At,
    Extension(caller): Extension<Caller>,
    Extension(url): Extension<PortalUrl>,
    uri: Uri,
) -> Answered {
    let form = Form::of_query(uri.query())?;
    let ids = form.texts("ID").into_iter();
    let job = |id: &str| (id.to_owned(), visible(&portal, &caller, id).ok());
    let jobs: Vec<_> = ids.map(job).collect();
    let kind = "application/x-votable+xml;content=datalink";
    let document = links_document(&jobs, &base_of(&url));
    Ok(([(header::CONTENT_TYPE, kind)], document).into_response())
}
