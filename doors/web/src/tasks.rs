//! Tasks: listed, shown, explained and cancelled, and what they have printed.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use eyas_client::messages::{FromClient, TaskResult, ToClient};
use eyas_client::printed::{Printed, PrintedPosition};
use eyas_client::types::task::MAX_CAPTURE_BYTES;
use eyas_client::types::{JobId, Name, TaskId};
use eyas_client::view::{Explanation, SCHEMA_VERSION, TaskView};
use eyas_client::{Client, ClientError};
use serde::{Deserialize, Serialize};

use crate::answer::{Answered, json, json_text, named, plain};
use crate::api_error::ApiError;
use crate::asked;
use crate::dispatcher::OnClient;
use crate::jobs;
use crate::shared::Shared;
use crate::task_index::{TaskFilter, TaskOrder};

/// Tasks of a page, unless the request says another number.
const TASKS_LISTED: u32 = 100;
/// Most tasks of a page.
const MAX_TASKS_LISTED: u32 = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskQuery {
    /// States, separated by commas.
    state: Option<String>,
    text: Option<String>,
    #[serde(default)]
    sort: TaskOrder,
    #[serde(default)]
    order: TaskDirection,
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TaskDirection {
    #[default]
    Ascending,
    Descending,
}

/// A page of tasks, with the fields of `eyas --json task list`.
#[derive(Serialize)]
struct TaskPage {
    schema_version: u32,
    tasks: Vec<TaskView>,
    next: Option<u32>,
    /// Number of all tasks that the filter selects, if it is known.
    matches: Option<usize>,
}

impl TaskQuery {
    fn filter(&self) -> TaskFilter {
        let states = self.state.iter().flat_map(|states| states.split(','));
        TaskFilter {
            states: states.filter(|state| !state.is_empty()).map(str::to_owned).collect(),
            text: self.text.as_ref().filter(|text| !text.is_empty()).map(|t| t.to_lowercase()),
            order: self.sort,
            is_descending: self.order == TaskDirection::Descending,
        }
    }
}

/// `GET /jobs/{job}/tasks`.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
    uri: Uri,
) -> Answered {
    let (job, query): (_, TaskQuery) = (asked::job(&job)?, asked::query(&uri)?);
    let limit = query.limit.unwrap_or(TASKS_LISTED).clamp(1, MAX_TASKS_LISTED);
    let (filter, cursor) = (query.filter(), query.cursor.unwrap_or(0));
    // The dispatcher itself has the order of the job, of all tasks and of failed ones.
    let is_failed = filter.states == ["failed"];
    let of_job = TaskFilter { states: filter.states.clone(), ..TaskFilter::default() };
    let page = match filter == of_job && (is_failed || filter.states.is_empty()) {
        true => in_order(&shared, job, cursor, limit, is_failed).await?,
        false => indexed(&shared, job, &filter, cursor, limit).await?,
    };
    Ok(json(json_text(&page)))
}

async fn in_order(
    shared: &Shared,
    job: JobId,
    from: u32,
    limit: u32,
    failed: bool,
) -> Result<TaskPage, ApiError> {
    // One more than the page has, to know whether there is one.
    let all = limit as usize + 1;
    let (mut tasks, mut from) = (Vec::<TaskView>::new(), from);
    loop {
        let limit = (all - tasks.len()) as u32;
        let answer = shared.dispatcher.look(FromClient::Tasks { job, from, limit, failed }).await?;
        let ToClient::Tasks(part) = &*answer else { return Err(ApiError::unexpected()) };
        tasks.extend(part.iter().cloned());
        // An answer has no more tasks than fit in a message.
        match part.last() {
            Some(last) if tasks.len() < all => from = last.task.index.saturating_add(1),
            _ => break,
        }
    }
    let next = tasks.get(limit as usize).map(|task| task.task.index);
    tasks.truncate(limit as usize);
    Ok(TaskPage { schema_version: SCHEMA_VERSION, tasks, next, matches: None })
}

async fn indexed(
    shared: &Shared,
    job: JobId,
    filter: &TaskFilter,
    from: u32,
    limit: u32,
) -> Result<TaskPage, ApiError> {
    let view = jobs::one(shared, job).await?;
    let index = shared.indexes.of(&shared.dispatcher, &view).await?;
    let (indexes, matches) = index.page(filter, from as usize, limit as usize);
    let end = from as usize + indexes.len();
    let mut tasks = Vec::with_capacity(indexes.len());
    for index in indexes {
        let asked = FromClient::Tasks { job, from: index, limit: 1, failed: false };
        let answer = shared.dispatcher.look(asked).await?;
        let ToClient::Tasks(found) = &*answer else { return Err(ApiError::unexpected()) };
        tasks.extend(found.iter().cloned());
    }
    let next = (end < matches).then_some(end as u32);
    Ok(TaskPage { schema_version: SCHEMA_VERSION, tasks, next, matches: Some(matches) })
}

async fn explanation_of(shared: &Shared, task: TaskId) -> Result<Explanation, ApiError> {
    match &*shared.dispatcher.look(FromClient::Explain { task }).await? {
        ToClient::Explained(explanation) => Ok((**explanation).clone()),
        _ => Err(ApiError::unexpected()),
    }
}

/// `GET /jobs/{job}/tasks/{index}`.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Path(task): Path<(String, String)>,
) -> Answered {
    let explanation = explanation_of(&shared, asked::task(&task)?).await?;
    Ok(named("task", &explanation.task))
}

/// `GET /jobs/{job}/tasks/{index}/explanation`.
pub(crate) async fn explain(
    State(shared): State<Arc<Shared>>,
    Path(task): Path<(String, String)>,
) -> Answered {
    Ok(named("explanation", &explanation_of(&shared, asked::task(&task)?).await?))
}

/// `POST /jobs/{job}/tasks/{index}/cancel`.
pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    Path(task): Path<(String, String)>,
) -> Answered {
    let TaskId { job, index } = asked::task(&task)?;
    let request = FromClient::Cancel { job, task: Some(index) };
    Ok(named("tasks", &shared.dispatcher.change(request).await?))
}

/// The fields of `eyas --json task log`.
#[derive(Serialize)]
struct TaskLogView {
    command: Vec<Name>,
    status: String,
    stdout: String,
    stderr: String,
    cut_bytes: u64,
}

/// The output of a task.
struct TaskOutput {
    /// How the task has ended, in words; `running` before.
    status: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cut_bytes: u64,
}

impl TaskOutput {
    fn of(result: &TaskResult) -> Self {
        let outcome = &result.outcome;
        TaskOutput {
            status: outcome.in_words(None),
            stdout: outcome.stdout.clone(),
            stderr: outcome.stderr.clone(),
            cut_bytes: outcome.cut_bytes,
        }
    }

    /// The output of a task, ended or running.
    async fn read(shared: &Shared, task: TaskId) -> Result<Self, ApiError> {
        if let Some(output) = TaskOutput::of_ended(shared, task).await? {
            return Ok(output);
        }
        match TaskOutput::so_far(shared, task).await? {
            Ok(output) => Ok(output),
            // It has ended in the meantime.
            Err(None) => TaskOutput::of_ended(shared, task)
                .await?
                .ok_or_else(|| no_log(task, "the program that submitted it has its result")),
            Err(Some(why)) => Err(no_log(task, &why)),
        }
    }

    async fn of_ended(shared: &Shared, task: TaskId) -> Result<Option<Self>, ApiError> {
        match &*shared.dispatcher.look(FromClient::Log { task }).await? {
            ToClient::Log(result) => Ok(result.as_deref().map(TaskOutput::of)),
            _ => Err(ApiError::unexpected()),
        }
    }

    /// The output of a running task so far. The inner error says why there is none; it is `None` if
    /// the task has ended.
    async fn so_far(
        shared: &Shared,
        task: TaskId,
    ) -> Result<Result<Self, Option<String>>, ApiError> {
        let mut output = TaskOutput {
            status: "running".into(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            cut_bytes: 0,
        };
        let mut position = PrintedPosition::default();
        loop {
            let printed = shared.dispatcher.with(|client| read_printed(client, task, position));
            let piece = match printed.await? {
                Printed::Running { piece, .. } => piece,
                Printed::Ended => return Ok(Err(None)),
                Printed::Waiting { why } => return Ok(Err(Some(why))),
                Printed::NotRunning { executor } => {
                    return Ok(Err(Some(format!("it is on {executor}, and no program runs"))));
                }
                Printed::Silent { executor } => {
                    return Ok(Err(Some(format!("executor {executor} does not answer"))));
                }
            };
            if piece.from.run != position.run {
                output.stdout.clear();
                output.stderr.clear();
            }
            position = piece.end();
            output.stdout.extend_from_slice(&piece.stdout);
            output.stderr.extend_from_slice(&piece.stderr);
            output.cut_bytes = piece.cut_bytes;
            let is_full = output.stdout.len() as u64 > MAX_CAPTURE_BYTES
                || output.stderr.len() as u64 > MAX_CAPTURE_BYTES;
            if !piece.has_more || is_full {
                return Ok(Ok(output));
            }
        }
    }
}

fn read_printed(
    client: &mut Client,
    task: TaskId,
    position: PrintedPosition,
) -> OnClient<'_, Printed> {
    Box::pin(async move {
        match client.printed(task, position, Duration::ZERO, |_| {}).await {
            // An earlier dispatcher cannot tell.
            Err(ClientError::Earlier { .. }) => Ok(Printed::Waiting { why: "it runs".into() }),
            printed => printed,
        }
    })
}

fn no_log(task: TaskId, why: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "no-log",
        format!("task {task} has no log yet: {why}"),
        "see the explanation of the task",
    )
}

/// `GET /jobs/{job}/tasks/{index}/log`.
pub(crate) async fn log(
    State(shared): State<Arc<Shared>>,
    Path(task): Path<(String, String)>,
) -> Answered {
    let task = asked::task(&task)?;
    let output = TaskOutput::read(&shared, task).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let log = TaskLogView {
        command: explanation_of(&shared, task).await?.task.command,
        status: output.status,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        cut_bytes: output.cut_bytes,
    };
    Ok(named("log", &log))
}

/// `GET /jobs/{job}/tasks/{index}/stdout`.
pub(crate) async fn stdout(
    State(shared): State<Arc<Shared>>,
    Path(task): Path<(String, String)>,
) -> Result<Response, ApiError> {
    Ok(plain(TaskOutput::read(&shared, asked::task(&task)?).await?.stdout))
}

/// `GET /jobs/{job}/tasks/{index}/stderr`.
pub(crate) async fn stderr(
    State(shared): State<Arc<Shared>>,
    Path(task): Path<(String, String)>,
) -> Result<Response, ApiError> {
    Ok(plain(TaskOutput::read(&shared, asked::task(&task)?).await?.stderr))
}
