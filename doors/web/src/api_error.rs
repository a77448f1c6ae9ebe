//! Errors as JSON: `{"error": {"code", "message", "hint"}}`, with the status of HTTP that fits.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use eyas_client::messages::NO_SUCH_JOB;
use eyas_client::{ClientError, ClusterError};
use eyas_session::SessionError;
use serde::Serialize;

/// Why a request has no other answer.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub status: StatusCode,
    /// A word for programs.
    pub code: &'static str,
    /// The failure and its cause.
    pub message: String,
    /// Advice to the user.
    pub hint: String,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    code: &'a str,
    message: &'a str,
    hint: &'a str,
}

impl ApiError {
    pub fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        ApiError { status, code, message: message.into(), hint: hint.into() }
    }

    /// A parameter or a body that cannot be understood.
    pub fn wrong_request(message: impl Into<String>) -> Self {
        let hint = "see the parameters of this path in /api/v1/openapi.json";
        ApiError::new(StatusCode::BAD_REQUEST, "wrong-request", message, hint)
    }

    pub fn not_found(message: impl Into<String>, hint: &str) -> Self {
        ApiError::new(StatusCode::NOT_FOUND, "not-found", message, hint)
    }

    /// The dispatcher cannot be reached, or does not answer.
    pub fn away(why: impl std::fmt::Display) -> Self {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "dispatcher-away",
            format!("the dispatcher of the cluster does not answer: {why}"),
            "start the cluster again if it was stopped; this server reconnects by itself",
        )
    }

    /// Too many requests or streams at the same time.
    pub fn busy(what: &str) -> Self {
        let message = format!("this server has too many {what} at the same time");
        let hint = "send the request again in a second";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message, hint)
    }

    /// An answer of the dispatcher to another kind of request.
    pub fn unexpected() -> Self {
        ClientError::Unexpected.into()
    }

    fn refused(why: &str) -> Self {
        let is_right = why.contains("is not permitted to") || why.starts_with("the token of job");
        let is_missing = why.starts_with(NO_SUCH_JOB)
            || why.starts_with("there is no task")
            || why.starts_with("there is no executor")
            || why.starts_with("there is no pool");
        // The dispatcher's sentence says what to do behind a colon.
        match (is_missing, is_right) {
            (true, _) => ApiError::not_found(why, "see /api/v1/jobs, /api/v1/executors"),
            (false, true) => ApiError::new(
                StatusCode::FORBIDDEN,
                "not-permitted",
                why,
                "start `eyas web` with an access file of a role that permits it",
            ),
            (false, false) => {
                let hint = "change the request as the message says";
                ApiError::new(StatusCode::CONFLICT, "refused", why, hint)
            }
        }
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(why) => ApiError::refused(&why),
            ClientError::Session(why) => ApiError::from(why),
            ClientError::TooLarge { .. } => ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                error.to_string(),
                "submit the job in parts",
            ),
            other => ApiError::new(
                StatusCode::BAD_GATEWAY,
                "dispatcher-answer",
                other.to_string(),
                "run the same version of eyas in all processes of the cluster",
            ),
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(why: SessionError) -> Self {
        ApiError::away(why)
    }
}

impl From<ClusterError> for ApiError {
    fn from(why: ClusterError) -> Self {
        ApiError::away(why)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let fields = ErrorFields { code: self.code, message: &self.message, hint: &self.hint };
        // Texts always become JSON.
        let body = serde_json::to_vec(&ErrorBody { error: fields }).unwrap_or_default();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self.status.as_u16(), 429 | 503) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_the_status_that_fits() {
        for (why, status) in [
            ("there is no job 7: `eyas job list` shows the jobs that there are", 404),
            ("there is no task 1.9: job 1 has 2 tasks", 404),
            ("key k2 (read) is not permitted to submit, change or end jobs: an admin can", 403),
            ("job 1 still runs", 409),
        ] {
            let error = ApiError::from(ClientError::Refused(why.into()));
            assert_eq!(error.status.as_u16(), status, "{why}");
            assert_eq!(error.message, why);
        }
    }
}
