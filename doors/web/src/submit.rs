//! Submission: a job file as the body of a request, in TOML, or the same tables in JSON.
//!
//! The job runs as the user of this process, and relative paths are below the folder in which the
//! process was started.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use eyas_client::read_job_text;

use crate::answer::{Answered, created};
use crate::api_error::ApiError;
use crate::asked;
use crate::shared::Shared;

/// The names by which messages call the body; their endings say which format it has. A job without
/// a name is called `job`.
const TOML_FILE: &str = "job.toml";
const LINES_FILE: &str = "job.jsonl";

/// `POST /jobs`.
pub(crate) async fn submit(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    let (file, is_json) = match &*kind {
        "application/json" => (TOML_FILE, true),
        "application/toml" => (TOML_FILE, false),
        "application/x-ndjson" | "application/jsonl" => (LINES_FILE, false),
        other => return Err(wrong_kind(other)),
    };
    let text = asked::body(&headers, body).await?;
    let text = if is_json { toml_of(&text)? } else { text };
    let cluster = shared.dispatcher.cluster();
    let draft = read_job_text(file, &text, None, cluster, |_| {}).await.map_err(|wrong| {
        // Lines of the TOML that was made from JSON are not those of the request.
        let message = if is_json { wrong.why.to_string() } else { wrong.to_string() };
        wrong_job(message)
    })?;
    if draft.is_empty() {
        return Err(wrong_job("the job has no tasks".into()));
    }
    let job = shared.dispatcher.submit(draft).await?;
    Ok(created(&format!("{}/api/v1/jobs/{job}", shared.base.text()), "job", &job))
}

fn wrong_kind(kind: &str) -> ApiError {
    ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "wrong-content-type",
        format!("a job is not read from content of the type `{kind}`"),
        "send Content-Type: application/toml with a job file, application/json with the same \
         tables in JSON, or application/x-ndjson with a task on each line",
    )
}

fn wrong_job(message: String) -> ApiError {
    let hint = "see docs/guides/job-files.md for the keys of a job";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "wrong-job", message, hint)
}

/// The job file that has the same tables as a JSON object.
fn toml_of(json: &str) -> Result<String, ApiError> {
    let value: serde_json::Value = serde_json::from_str(json)
        .map_err(|wrong| wrong_job(format!("the body is not JSON: {wrong}")))?;
    if !value.is_object() {
        return Err(wrong_job(
            "the body is not an object: write {\"task\": [{\"command\": [\"wc\", \"in.txt\"]}]}"
                .into(),
        ));
    }
    toml::to_string(&value).map_err(|wrong| {
        wrong_job(format!("the body cannot be written as a job file, which has no null: {wrong}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_becomes_the_job_file_with_the_same_tables() {
        let json = r#"{"name": "a\"b", "task": [{"command": ["wc", "{}"], "array": "1-3",
                     "env": {"A": "1"}, "retries": 2}]}"#;
        let toml: toml::Value = toml::from_str(&toml_of(json).unwrap()).unwrap();
        let task = &toml["task"][0];
        assert_eq!(toml["name"].as_str(), Some("a\"b"));
        assert_eq!(task["env"]["A"].as_str(), Some("1"));
        assert_eq!(task["retries"].as_integer(), Some(2));
        for wrong in ["", "[]", "{\"name\": null}", "{\"name\": "] {
            assert!(toml_of(wrong).is_err(), "{wrong}");
        }
    }
}
