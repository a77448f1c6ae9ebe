//! Pushes: objects that are copied to executors before tasks need them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use eyas_client::Draft;
use eyas_client::messages::PushRequest;
use eyas_client::types::object::is_kept_name;
use eyas_client::types::{Distribution, Name};
use serde::Deserialize;

use crate::answer::{Answered, named};
use crate::api_error::ApiError;
use crate::asked;
use crate::shared::Shared;

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PushFields {
    /// Paths, URLs or patterns, as for inputs of tasks; or outputs that are kept in the cluster.
    objects: Vec<String>,
    /// Names, ids or labels of executors; `all` for all.
    #[serde(default = "all_executors")]
    to: Vec<String>,
    distribution: Option<String>,
}

fn all_executors() -> Vec<String> {
    vec!["all".into()]
}

fn wrong_push(message: String) -> ApiError {
    let hint = "write {\"objects\": [\"/data/a.fits\", \"eyas://7/*/out.txt\"], \"to\": [\"all\"]}";
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "wrong-push", message, hint)
}

/// `POST /push`. The copies go on after the answer.
pub(crate) async fn push(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    let text = asked::body(&headers, body).await?;
    let fields: PushFields =
        serde_json::from_str(&text).map_err(|wrong| wrong_push(wrong.to_string()))?;
    let distribution = match fields.distribution.as_deref() {
        None => Distribution::Chain,
        Some(name) => name.parse().map_err(|wrong| wrong_push(format!("{wrong}")))?,
    };
    let mut draft = Draft::new("push").on_cluster(shared.dispatcher.cluster());
    let mut kept = Vec::new();
    for pattern in fields.objects.iter().map(|pattern| Name::from(&**pattern)) {
        let found = draft.find(&pattern).await.map_err(|why| wrong_push(why.to_string()))?;
        match is_kept_name(&pattern) {
            true => kept.extend(found),
            false => {
                draft.look_up(&found).await.map_err(|why| wrong_push(why.to_string()))?;
            }
        }
    }
    let objects = draft.into_objects();
    if objects.is_empty() && kept.is_empty() {
        return Err(wrong_push("the request names no objects".into()));
    }
    let request = PushRequest { objects, kept, to: fields.to, distribution, wait: false };
    let mut own = shared.dispatcher.own_client().await?;
    Ok(named("push", &own.client.push(request, |_| {}).await?))
}
