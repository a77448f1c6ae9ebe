//! The answer to a request that fails: a status, what failed, and what to do.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::accounts::AccountsError;
use crate::position_list::ListError;

/// Why a request fails.
#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// What failed, and what to do.
    pub message: String,
}

impl Problem {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Problem { status, message: message.into() }
    }

    /// The request has a mistake.
    pub fn wrong(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, message)
    }

    /// The request shows no account.
    pub fn unknown_user(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::UNAUTHORIZED, message)
    }

    /// The account may not do that.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::FORBIDDEN, message)
    }

    /// There is no such thing, or it is another account's.
    pub fn missing(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, message)
    }

    /// The body has a content that is not read.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
    }

    /// The body is too large.
    pub fn too_large(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The request was not answered in time.
    pub fn late(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// The portal cannot do it: its disk, for example.
    pub fn of_portal(message: impl Into<String>) -> Self {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

impl From<ListError> for Problem {
    fn from(why: ListError) -> Self {
        Problem::wrong(why.to_string())
    }
}

impl From<AccountsError> for Problem {
    fn from(why: AccountsError) -> Self {
        match why {
            AccountsError::Damaged(..) | AccountsError::File(..) => {
                tracing::error!("{why}");
                Problem::of_portal("the portal cannot read its accounts: tell its administrator")
            }
            other => Problem::wrong(other.to_string()),
        }
    }
}

/// As plain text, for programs.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        let mut response =
            (self.status, [(header::CONTENT_TYPE, kind)], format!("{}\n", self.message))
                .into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            // `Basic` would have browsers ask for a password.
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
