//! All tasks of a job as one table, in CSV or JSON. It is written while it is read from the
//! dispatcher, a part at a time, so its size has no bound and takes no memory.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::JobId;
use eyas_client::view::{SCHEMA_VERSION, TaskView};
use futures_util::stream;

use crate::answer::{Answered, json_text};
use crate::api_error::ApiError;
use crate::asked;
use crate::shared::Shared;

/// Tasks that are asked for at once.
const EXPORTED_AT_ONCE: u32 = 2000;
/// The first line of a table.
const COLUMNS: &str = "task,id,state,priority,item,command,tries,executor,status,queued_us,\
    waited_us,ran_us,suspended_us,cpu_us,peak_memory_bytes,local_bytes,peer_bytes,\
    persistent_bytes,files_bytes\r\n";

/// How tasks are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Csv,
    Json,
}

impl ExportFormat {
    fn head(self) -> String {
        match self {
            ExportFormat::Csv => COLUMNS.into(),
            ExportFormat::Json => format!("{{\"schema_version\":{SCHEMA_VERSION},\"tasks\":["),
        }
    }

    fn tail(self) -> &'static str {
        match self {
            ExportFormat::Csv => "",
            ExportFormat::Json => "]}\n",
        }
    }

    fn task(self, task: &TaskView, is_first: bool) -> String {
        match (self, is_first) {
            (ExportFormat::Csv, _) => csv_line(task),
            (ExportFormat::Json, true) => json_text(task),
            (ExportFormat::Json, false) => format!(",{}", json_text(task)),
        }
    }

    /// Its type, and the ending of a file's name.
    fn kind(self) -> (&'static str, &'static str) {
        match self {
            ExportFormat::Csv => ("text/csv; charset=utf-8", "csv"),
            ExportFormat::Json => ("application/json", "json"),
        }
    }
}

/// A text in CSV. A spreadsheet would take a text that begins like a formula for one, and run it.
fn csv_text(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

fn csv_line(task: &TaskView) -> String {
    let text = |text: &Option<String>| csv_text(text.as_deref().unwrap_or_default());
    let command: Vec<_> = task.command.iter().map(ToString::to_string).collect();
    let reads = &task.reads;
    let texts = [
        task.task.to_string(),
        text(&task.id),
        csv_text(&task.state),
        task.priority.to_string(),
        csv_text(&task.item.to_string()),
        csv_text(&command.join(" ")),
        task.tries.to_string(),
        text(&task.executor),
        text(&task.status),
    ];
    let numbers = [
        task.queued_us,
        task.waited_us,
        task.ran_us,
        task.suspended_us,
        task.cpu_us,
        task.peak_memory_bytes,
        reads.local.bytes,
        reads.peer.bytes,
        reads.persistent.bytes,
        reads.files.bytes(),
    ];
    let cells = texts.into_iter().chain(numbers.map(|number| number.to_string()));
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

/// The tasks that have not been written.
struct TaskExport {
    shared: Arc<Shared>,
    job: JobId,
    format: ExportFormat,
    next: Option<u32>,
    is_first: bool,
}

impl TaskExport {
    /// The next part; `None` at the end.
    async fn part(&mut self) -> Result<Option<String>, ApiError> {
        let Some(from) = self.next else { return Ok(None) };
        let (job, limit) = (self.job, EXPORTED_AT_ONCE);
        let asked = FromClient::Tasks { job, from, limit, failed: false };
        let answer = self.shared.dispatcher.ask(asked).await?;
        let ToClient::Tasks(tasks) = answer else { return Err(ApiError::unexpected()) };
        let mut text = if from == 0 { self.format.head() } else { String::new() };
        for task in &tasks {
            text += &self.format.task(task, std::mem::take(&mut self.is_first));
        }
        self.next = tasks.last().map(|last| last.task.index.saturating_add(1));
        if self.next.is_none() {
            text += self.format.tail();
        }
        Ok(Some(text))
    }
}

async fn export(shared: Arc<Shared>, job: &str, format: ExportFormat) -> Answered {
    let job = asked::job(job)?;
    let mut export = TaskExport { shared, job, format, next: Some(0), is_first: true };
    // A job that does not exist is told as such; a later failure breaks off the connection.
    let first = export.part().await?.unwrap_or_default();
    let parts = stream::unfold((export, Some(first)), |(mut export, first)| async move {
        let part = match first {
            Some(first) => Ok(first),
            None => match export.part().await {
                Ok(part) => Ok(part?),
                Err(why) => {
                    export.next = None;
                    Err(io::Error::other(why.message))
                }
            },
        };
        Some((part.map(Bytes::from), (export, None)))
    });
    let (kind, ending) = format.kind();
    let mut response: Response = Body::from_stream(parts).into_response();
    let name = format!("attachment; filename=\"job-{job}.{ending}\"");
    for (header, value) in [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, &*name)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(header, value);
        }
    }
    Ok(response)
}

/// `GET /jobs/{job}/tasks.csv`.
pub(crate) async fn as_csv(State(shared): State<Arc<Shared>>, Path(job): Path<String>) -> Answered {
    export(shared, &job, ExportFormat::Csv).await
}

/// `GET /jobs/{job}/tasks.json`.
pub(crate) async fn as_json(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
) -> Answered {
    export(shared, &job, ExportFormat::Json).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cells_and_no_formulas() {
        for (text, cell) in [
            ("a.txt", "a.txt"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"\n", "\"say \"\"hi\"\"\n\""),
            ("=1+1", "'=1+1"),
            ("@x,y", "\"'@x,y\""),
            ("", ""),
        ] {
            assert_eq!(csv_text(text), cell);
        }
        assert_eq!(COLUMNS.split(',').count(), 19);
    }
}
