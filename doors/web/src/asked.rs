//! Parameters and bodies of requests.

use std::str::FromStr;

use axum::body::{Body, to_bytes};
use axum::extract::Query;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use eyas_client::types::{JobId, TaskId};
use serde::de::DeserializeOwned;

use crate::api_error::ApiError;

/// Largest body of a request: a job file.
const MAX_BODY_BYTES: usize = 8 << 20;

/// Reads the parameters behind the `?` of a URL.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    match Query::<T>::try_from_uri(uri) {
        Ok(Query(read)) => Ok(read),
        Err(wrong) => Err(ApiError::wrong_request(wrong.body_text())),
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|wrong: T::Err| ApiError::wrong_request(wrong.to_string()))
}

/// The job that a path names.
pub(crate) fn job(text: &str) -> Result<JobId, ApiError> {
    parsed(text)
}

/// The task that a path names by its job and its index.
pub(crate) fn task((job, index): &(String, String)) -> Result<TaskId, ApiError> {
    parsed(&format!("{job}.{index}"))
}

/// Reads a body. One that is too large is refused by its length, before it is read.
pub(crate) async fn body(headers: &HeaderMap, body: Body) -> Result<String, ApiError> {
    let too_large = || {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            format!("the body of the request has more than {MAX_BODY_BYTES} bytes"),
            "let tasks share a template with `array`, `each` or `each_line`, or submit the job in \
             parts",
        )
    };
    if headers.contains_key(header::CONTENT_ENCODING) {
        let message = "a compressed body is not read";
        let hint = "send the body without Content-Encoding";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(ApiError::new(status, "wrong-encoding", message, hint));
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse().ok()).is_some_and(|n: usize| n > MAX_BODY_BYTES) {
        return Err(too_large());
    }
    let bytes = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| too_large())?;
    String::from_utf8(bytes.into()).map_err(|_| {
        ApiError::wrong_request("the body of the request is not UTF-8 text".to_owned())
    })
}
