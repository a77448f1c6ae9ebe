//! The path of timelines: which part of which job is drawn.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::Uri;
use serde::Deserialize;

use crate::answer::{Answered, json};
use crate::api_error::ApiError;
use crate::shared::Shared;
use crate::timeline_picture::PictureWindow;
use crate::{asked, jobs};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelineQuery {
    from_us: Option<u64>,
    to_us: Option<u64>,
    #[serde(default)]
    idle: IdleTime,
    executor: Option<String>,
}

/// How long stretches without tasks are drawn.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum IdleTime {
    #[default]
    Whole,
    Compressed,
}

/// `GET /jobs/{job}/timeline`.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
    uri: Uri,
) -> Answered {
    let (job, query): (_, TimelineQuery) = (asked::job(&job)?, asked::query(&uri)?);
    let view = jobs::one(&shared, job).await?;
    let of_job = shared.timelines.of(&shared.dispatcher, &shared.indexes, &view).await?;
    let position = |name: String| {
        of_job.position_of(&name).ok_or_else(|| {
            let message = format!("no task of job {job} was at an executor `{name}`");
            ApiError::not_found(message, "see /api/v1/executors for the names of executors")
        })
    };
    let window = PictureWindow {
        from_us: query.from_us,
        to_us: query.to_us,
        is_compressed: query.idle == IdleTime::Compressed,
        executor: query.executor.map(position).transpose()?,
    };
    Ok(json(of_job.picture(window).await?.to_string()))
}
