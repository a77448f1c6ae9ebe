//! The HTTP API of `eyas web`, as much of it as the portal needs, with a token of scope `submit`.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

/// A request is answered within this time.
const ANSWER_DEADLINE: Duration = Duration::from_secs(160);
/// A stream says something within this time: `eyas web` does every 15 s.
const STREAM_DEADLINE: Duration = Duration::from_secs(45);
/// Longest event of a stream.
const MAX_SSE_BYTES: usize = 1 << 20;
/// Tasks of a page.
const TASKS_OF_PAGE: usize = 5000;
/// Longest text of a task that is kept.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Why the cluster does not do what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It may answer later.
    #[error("the cluster does not answer: {0}")]
    Away(String),
    /// The token has expired or was revoked. The administrator can mend that.
    #[error(
        "the cluster refuses the portal's token: the portal's administrator has to make a new one"
    )]
    Token,
    /// There is no such job, or no longer.
    #[error("the cluster does not have the job")]
    Missing,
    /// Asking again does not help.
    #[error("the cluster refuses the request: {0}")]
    Refused(String),
}

/// A job, as `eyas --json job show` has it.
#[derive(Clone, Debug, Deserialize)]
pub struct JobProgress {
    pub job: u64,
    pub name: String,
    pub state: String,
    pub tasks: TaskNumbers,
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl JobProgress {
    /// Whether the job has ended.
    pub fn is_over(&self) -> bool {
        self.state != "running"
    }
}

/// Tasks by state.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct TaskNumbers {
    pub blocked: u64,
    pub waiting: u64,
    pub assigned: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl TaskNumbers {
    /// All tasks.
    pub fn all(&self) -> u64 {
        self.blocked + self.waiting + self.assigned + self.ended()
    }

    /// Tasks that have ended.
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }
}

/// A task, as `eyas --json task list` has it.
#[derive(Clone, Debug, Deserialize)]
pub struct TaskOutcome {
    pub task: String,
    pub state: String,
    pub executor: Option<String>,
    pub status: Option<String>,
}

impl TaskOutcome {
    /// Its index in the job.
    pub fn index(&self) -> Option<usize> {
        self.task.rsplit_once('.')?.1.parse().ok()
    }
}

#[derive(Deserialize)]
struct Jobs {
    jobs: Vec<JobProgress>,
}

#[derive(Deserialize)]
struct Tasks {
    tasks: Vec<TaskOutcome>,
    next: Option<u64>,
}

#[derive(Deserialize)]
struct Created {
    job: u64,
}

/// A cluster, by the URL of its `eyas web`.
pub struct ClusterApi {
    base: String,
    /// Read for each request: the administrator may replace the token.
    token_file: PathBuf,
    client: Client,
}

impl ClusterApi {
    /// The cluster at a URL, such as `http://127.0.0.1:8080`.
    pub fn new(url: &str, token_file: PathBuf) -> io::Result<Self> {
        let client = Client::builder().connect_timeout(Duration::from_secs(10)).no_proxy();
        // The token is for the cluster alone.
        let client = client.redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(io::Error::other)?;
        Ok(ClusterApi { base: url.trim_end_matches('/').to_owned(), token_file, client })
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, ClusterError> {
        let token = std::fs::read_to_string(&self.token_file)
            .map_err(|why| ClusterError::Away(format!("{}: {why}", self.token_file.display())))?;
        let request = self.client.request(method, format!("{}/api/v1{path}", self.base));
        Ok(request.bearer_auth(token.trim()))
    }

    async fn send(request: RequestBuilder) -> Result<Response, ClusterError> {
        let answered = request.send().await;
        let response = answered.map_err(|why| ClusterError::Away(cause_of(&why)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.unwrap_or_default();
        let error: Value = serde_json::from_str(&text).unwrap_or_default();
        let message = error["error"]["message"].as_str();
        let code = error["error"]["code"].as_str().unwrap_or_default();
        let message = message.map_or_else(|| format!("status {status}"), str::to_owned);
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ClusterError::Token,
            // The job is there, and what a task has printed is not there yet.
            StatusCode::NOT_FOUND if code == "no-log" => ClusterError::Away(message),
            StatusCode::NOT_FOUND => ClusterError::Missing,
            StatusCode::TOO_MANY_REQUESTS => ClusterError::Away(message),
            status if status.is_server_error() => ClusterError::Away(message),
            _ => ClusterError::Refused(message),
        })
    }

    async fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, ClusterError> {
        let response = Self::send(request.timeout(ANSWER_DEADLINE)).await?;
        let bytes = response.bytes().await.map_err(|why| ClusterError::Away(cause_of(&why)))?;
        let wrong = |why| ClusterError::Away(format!("its answer cannot be read: {why}"));
        serde_json::from_slice(&bytes).map_err(wrong)
    }

    /// Submits a job. Returns its id.
    pub async fn submit(&self, job: &Value) -> Result<u64, ClusterError> {
        let request = self.request(Method::POST, "/jobs")?;
        let request = request.header("content-type", "application/json").body(job.to_string());
        Ok(self.ask::<Created>(request).await?.job)
    }

    /// The newest job of a name, which is unique if the portal has chosen it.
    pub async fn find(&self, name: &str) -> Result<Option<JobProgress>, ClusterError> {
        let request = self.request(Method::GET, &format!("/jobs?name={name}&order=newest"))?;
        let found = self.ask::<Jobs>(request).await?.jobs;
        Ok(found.into_iter().find(|job| job.name == name))
    }

    /// A job.
    async fn job(&self, job: u64) -> Result<JobProgress, ClusterError> {
        let request = self.request(Method::GET, &format!("/jobs/{job}"))?;
        self.ask::<Jobs>(request).await?.jobs.pop().ok_or(ClusterError::Missing)
    }

    /// Cancels a job. One that has ended stays as it is.
    pub async fn cancel(&self, job: u64) -> Result<(), ClusterError> {
        let request = self.request(Method::POST, &format!("/jobs/{job}/cancel"))?;
        match Self::send(request.timeout(ANSWER_DEADLINE)).await {
            Ok(_) | Err(ClusterError::Missing | ClusterError::Refused(_)) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// All tasks of a job, page by page.
    pub async fn tasks(
        &self,
        job: u64,
        mut visit: impl FnMut(TaskOutcome),
    ) -> Result<(), ClusterError> {
        let mut cursor = String::new();
        loop {
            let path = format!("/jobs/{job}/tasks?limit={TASKS_OF_PAGE}{cursor}");
            let page: Tasks = self.ask(self.request(Method::GET, &path)?).await?;
            page.tasks.into_iter().for_each(&mut visit);
            let Some(next) = page.next else { return Ok(()) };
            cursor = format!("&cursor={next}");
        }
    }

    /// What a task has printed: `stdout` or `stderr`, the end of it if it is long.
    pub async fn printed(
        &self,
        job: u64,
        index: usize,
        which: &str,
    ) -> Result<String, ClusterError> {
        let request = self.request(Method::GET, &format!("/jobs/{job}/tasks/{index}/{which}"))?;
        let response = Self::send(request.timeout(ANSWER_DEADLINE)).await?;
        let bytes = response.bytes().await.map_err(|why| ClusterError::Away(cause_of(&why)))?;
        let start = bytes.len().saturating_sub(MAX_TEXT_BYTES);
        Ok(String::from_utf8_lossy(&bytes[start..]).into_owned())
    }

    /// Follows a job by its events, until it has ended. Returns it as it is then.
    pub async fn follow(
        &self,
        job: u64,
        mut changed: impl FnMut(&JobProgress),
    ) -> Result<JobProgress, ClusterError> {
        let request = self.request(Method::GET, &format!("/jobs/{job}/events?after=now"))?;
        let late = |_| ClusterError::Away("its stream of events says nothing".into());
        let mut response = timeout(STREAM_DEADLINE, Self::send(request)).await.map_err(late)??;
        let mut events = SseLines::default();
        loop {
            let chunk = timeout(STREAM_DEADLINE, response.chunk()).await.map_err(late)?;
            let chunk = chunk.map_err(|why| ClusterError::Away(cause_of(&why)))?;
            let Some(chunk) = chunk else {
                return Err(ClusterError::Away("its stream of events has ended".into()));
            };
            for (event, data) in events.add(&chunk)? {
                match &*event {
                    "job" | "over" => {
                        let wrong = |_| ClusterError::Away("an event cannot be read".into());
                        let job: JobProgress = serde_json::from_str(&data).map_err(wrong)?;
                        changed(&job);
                        if event == "over" || job.is_over() {
                            return Ok(job);
                        }
                    }
                    // The event comes at once, and the state of the job with the next look at it.
                    "event" if data.contains("\"job-ended\"") => {
                        let ended = self.job(job).await?;
                        if ended.is_over() {
                            changed(&ended);
                            return Ok(ended);
                        }
                    }
                    "forgotten" => return Err(ClusterError::Missing),
                    "dispatcher" if data.contains("false") => {
                        return Err(ClusterError::Away("its dispatcher is away".into()));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The innermost cause, such as `Connection refused`.
fn cause_of(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Server-sent events, from the pieces in which they arrive.
#[derive(Default)]
struct SseLines {
    bytes: Vec<u8>,
}

impl SseLines {
    /// Adds a piece. Returns the events that are whole: their names and data.
    fn add(&mut self, piece: &[u8]) -> Result<Vec<(String, String)>, ClusterError> {
        self.bytes.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
            let text = String::from_utf8_lossy(&self.bytes[..end]).into_owned();
            self.bytes.drain(..end + 2);
            let (mut name, mut data) = (String::new(), String::new());
            for line in text.lines() {
                match line.split_once(": ") {
                    Some(("event", value)) => name = value.to_owned(),
                    Some(("data", value)) => data.push_str(value),
                    _ => {}
                }
            }
            events.push((name, data));
        }
        match self.bytes.len() > MAX_SSE_BYTES {
            true => Err(ClusterError::Away("an event is too long".into())),
            false => Ok(events),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_pieces() {
        let mut lines = SseLines::default();
        assert_eq!(
            lines.add(b"retry: 1000\n\nevent: jo").unwrap(),
            [(String::new(), String::new())]
        );
        let events = lines.add(b"b\ndata: {\"a\":1}\n\nevent: over\ndata: x\n\n: ping\n").unwrap();
        assert_eq!(events, [("job".into(), "{\"a\":1}".into()), ("over".into(), "x".into())]);
        assert!(lines.add(&vec![b'x'; MAX_SSE_BYTES]).is_err());
    }

    #[test]
    fn jobs_are_read_from_answers() {
        let text = r#"{"jobs": [{"job": 1, "name": "n", "state": "failed", "more": 1, "tasks":
            {"blocked": 0, "waiting": 1, "assigned": 2, "succeeded": 3, "failed": 4,
             "cancelled": 5}}]}"#;
        let jobs: Jobs = serde_json::from_str(text).unwrap();
        assert_eq!((jobs.jobs[0].tasks.all(), jobs.jobs[0].tasks.ended()), (15, 12));
        assert!(jobs.jobs[0].is_over());
        let task: TaskOutcome =
            serde_json::from_str(r#"{"task": "1.12", "state": "failed"}"#).unwrap();
        assert_eq!(task.index(), Some(12));
    }
}
