//! Server-sent events: the numbered events of the cluster, and changes of its state.
//!
//! | event | data | id |
//! | --- | --- | --- |
//! | `event` | an event, as `eyas --json events` has it | its position |
//! | `gap` | events are missing here: load again what is shown | |
//! | `jobs` | jobs that have changed; `only`: all ids, if some are forgotten | |
//! | `executors` | all executors | |
//! | `dispatcher` | whether the dispatcher answers | |
//! | `job` | the job of a job's stream, when it has changed | |
//! | `over` | the same, when it has ended; the stream ends | |
//! | `forgotten` | the job of a job's stream, when it was forgotten; the stream ends | |
//!
//! A reader has a position and no queue. What it does not read in time is left out: of the state,
//! it gets the newest; of events, the `gap`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use eyas_client::types::JobId;
use eyas_client::view::JobState;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use crate::answer::{Answered, json_text};
use crate::api_error::ApiError;
use crate::feed::FeedPosition;
use crate::live::LiveState;
use crate::shared::Shared;
use crate::{asked, jobs};

/// A stream says something after this time, so that its connection stays open.
const STREAM_KEEPALIVE: Duration = Duration::from_secs(15);
/// Time that a browser waits before it opens a lost stream again, milliseconds.
const RETRY_MS: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// The id of the last event that the reader has, or `now`.
    after: Option<String>,
    /// `state`: also changes of jobs and executors.
    include: Option<String>,
}

/// A reader of the cluster's events and state.
struct EventStream {
    shared: Arc<Shared>,
    position: Option<FeedPosition>,
    changes: watch::Receiver<u64>,
    live: Option<LiveReader>,
    /// Only what is about this job.
    job: Option<JobId>,
    /// The parts that are sent next.
    parts: VecDeque<String>,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

/// A reader of the state.
struct LiveReader {
    state: watch::Receiver<LiveState>,
    version: u64,
    /// Whether the reader was told that the dispatcher is connected.
    told: Option<bool>,
    /// Whether the job of the stream was in the state.
    has_seen: bool,
}

/// `GET /events`.
pub(crate) async fn cluster_events(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    uri: Uri,
) -> Answered {
    let query: EventsQuery = asked::query(&uri)?;
    let is_live = match query.include.as_deref() {
        None => false,
        Some("state") => true,
        Some(other) => {
            let message = format!("`include={other}` is not known: write include=state");
            return Err(ApiError::wrong_request(message));
        }
    };
    let position = position(&shared, &headers, &query)?;
    // Nothing has looked at the state while there was no reader. If the dispatcher is away, the
    // reader is told so.
    if is_live && let Err(why) = shared.look().await {
        tracing::debug!("no state of the cluster: {}", why.message);
    }
    Ok(EventStream::new(shared, position, None, is_live)?.response())
}

/// `GET /jobs/{job}/events`.
pub(crate) async fn job_events(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Answered {
    let job = asked::job(&job)?;
    let position = position(&shared, &headers, &asked::query(&uri)?)?;
    // Of a job that does not exist, there would be nothing to tell.
    jobs::one(&shared, job).await?;
    shared.look().await?;
    Ok(EventStream::new(shared, position, Some(job), true)?.response())
}

/// Where a reader goes on: the header of a browser that connects again comes first.
fn position(
    shared: &Shared,
    headers: &HeaderMap,
    query: &EventsQuery,
) -> Result<Option<FeedPosition>, ApiError> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    match last.filter(|id| !id.is_empty()).or(query.after.as_deref()) {
        None => Ok(None),
        Some("now") => Ok(shared.feed.newest()),
        Some(id) => id.parse().map(Some).map_err(|()| {
            ApiError::wrong_request(format!(
                "`{id}` is not the id of an event: send the id of the last event that you have, \
                 or after=now"
            ))
        }),
    }
}

/// One event of a stream. JSON on one line has no line feed that would end it.
fn sse(name: &str, id: Option<FeedPosition>, data: &impl Serialize) -> String {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    format!("event: {name}\n{id}data: {}\n\n", json_text(data))
}

impl EventStream {
    fn new(
        shared: Arc<Shared>,
        position: Option<FeedPosition>,
        job: Option<JobId>,
        is_live: bool,
    ) -> Result<Self, ApiError> {
        let permit = shared.streams.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ApiError::busy("streams of events"))?;
        let live = is_live.then(|| LiveReader {
            state: shared.live.read(),
            version: 0,
            told: None,
            has_seen: false,
        });
        shared.wanted.notify_one();
        let mut changes = shared.feed.changes();
        changes.mark_changed();
        Ok(EventStream {
            shared,
            position,
            changes,
            live,
            job,
            parts: VecDeque::from([format!("retry: {RETRY_MS}\n\n")]),
            is_over: false,
            _permit: permit,
        })
    }

    fn response(self) -> Response {
        let parts = stream::unfold(self, |mut stream| async move {
            let part = stream.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(part)), stream))
        });
        let mut response = Body::from_stream(parts).into_response();
        let kind = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        // nginx passes on each event at once.
        let name = HeaderName::from_static("x-accel-buffering");
        response.headers_mut().insert(name, HeaderValue::from_static("no"));
        response
    }

    /// The next part; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Some(part);
            }
            if self.is_over {
                return None;
            }
            self.take_events();
            self.take_state();
            let newest = self.shared.feed.newest();
            let is_behind = newest.is_some() && newest != self.position;
            if !self.parts.is_empty() || is_behind {
                continue;
            }
            if timeout(STREAM_KEEPALIVE, self.changed()).await.is_err() {
                return Some(": still here\n\n".into());
            }
        }
    }

    async fn changed(&mut self) {
        // The senders live as long as this reader.
        match &mut self.live {
            Some(live) => tokio::select! {
                _ = self.changes.changed() => {}
                _ = live.state.changed() => {}
            },
            None => drop(self.changes.changed().await),
        }
    }

    fn take_events(&mut self) {
        let taken = self.shared.feed.after(self.position);
        if taken.is_gap {
            self.parts.push_back(sse("gap", None, &json!({ "do": "reload" })));
        }
        let Some(FeedPosition(end)) = taken.position else { return };
        for event in taken.events {
            let mut at = end;
            at.number = event.number;
            if self.job.is_none() || event.job == self.job {
                self.parts.push_back(sse("event", Some(FeedPosition(at)), &event));
            }
        }
        self.position = taken.position;
    }

    fn take_state(&mut self) {
        let Some(live) = &mut self.live else { return };
        let state = live.state.borrow_and_update().clone();
        if live.told != Some(state.is_connected) {
            live.told = Some(state.is_connected);
            let is_connected = state.is_connected;
            self.parts.push_back(sse("dispatcher", None, &json!({ "is_connected": is_connected })));
        }
        let version = std::mem::replace(&mut live.version, state.version);
        if let Some(job) = self.job {
            // A job that was just submitted may not be in the state yet.
            live.has_seen |= state.has(job);
            if live.has_seen && !state.has(job) {
                self.is_over = true;
                self.parts.push_back(sse("forgotten", None, &json!({ "job": job })));
            }
            let Some(view) = state.job_since(job, version) else { return };
            self.is_over = view.state != JobState::Running;
            let name = if self.is_over { "over" } else { "job" };
            self.parts.push_back(sse(name, None, &*view));
            return;
        }
        let changes = state.since(version);
        if !changes.jobs.is_empty() || changes.only.is_some() {
            let jobs: Vec<_> = changes.jobs.iter().map(|job| &**job).collect();
            let data = JobsData { jobs, only: changes.only };
            self.parts.push_back(sse("jobs", None, &data));
        }
        if let Some(executors) = changes.executors {
            self.parts.push_back(sse("executors", None, &*executors));
        }
    }
}

/// The data of the event `jobs`.
#[derive(Serialize)]
struct JobsData<'a> {
    jobs: Vec<&'a eyas_client::view::JobView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    only: Option<Vec<JobId>>,
}
