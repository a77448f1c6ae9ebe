//! Answers as JSON, the same that the command line prints with `--json`.
//!
//! JavaScript has no whole numbers above 2^53, and would round them without a word. They are
//! written as text.

use std::io;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use eyas_client::view::SCHEMA_VERSION;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::{CompactFormatter, Formatter};

use crate::api_error::ApiError;

/// The largest whole number up to which JavaScript has them all.
const MAX_EXACT: u64 = 1 << 53;

/// Result of a handler.
pub(crate) type Answered = Result<Response, ApiError>;

/// Writes whole numbers above [`MAX_EXACT`] as text.
struct ExactNumbers;

impl Formatter for ExactNumbers {
    fn write_u64<W: ?Sized + io::Write>(&mut self, to: &mut W, value: u64) -> io::Result<()> {
        match value > MAX_EXACT {
            true => write!(to, "\"{value}\""),
            false => CompactFormatter.write_u64(to, value),
        }
    }

    fn write_i64<W: ?Sized + io::Write>(&mut self, to: &mut W, value: i64) -> io::Result<()> {
        match value.unsigned_abs() > MAX_EXACT {
            true => write!(to, "\"{value}\""),
            false => CompactFormatter.write_i64(to, value),
        }
    }
}

/// A value as JSON on one line.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, ExactNumbers);
    // Views have no maps with other keys than text, and memory takes every write.
    let written = value.serialize(&mut writer);
    debug_assert!(written.is_ok(), "{written:?}");
    String::from_utf8(bytes).unwrap_or_default()
}

/// Fields with a `schema_version` before them.
struct Versioned<'a, T: ?Sized>(&'a str, &'a T, Option<(&'a str, serde_json::Value)>);

impl<T: Serialize + ?Sized> Serialize for Versioned<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema_version", &SCHEMA_VERSION)?;
        map.serialize_entry(self.0, self.1)?;
        if let Some((name, value)) = &self.2 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// `{"schema_version": …, NAME: VALUE}`.
pub(crate) fn named(name: &str, value: &(impl Serialize + ?Sized)) -> Response {
    json(json_text(&Versioned(name, value, None)))
}

/// The same with one more field.
pub(crate) fn paged(
    name: &str,
    value: &(impl Serialize + ?Sized),
    next: impl Into<serde_json::Value>,
) -> Response {
    json(json_text(&Versioned(name, value, Some(("next", next.into())))))
}

/// Text that is JSON already.
pub(crate) fn json(text: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Something that was made, and its path.
pub(crate) fn created(path: &str, name: &str, value: &impl Serialize) -> Response {
    let mut response = named(name, value);
    *response.status_mut() = StatusCode::CREATED;
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(header::LOCATION, path);
    }
    response
}

/// Content of a task, which a browser must never take for a page.
pub(crate) fn plain(content: Vec<u8>) -> Response {
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_javascript_would_round_are_text() {
        let values: (u64, u64, i64, f64) = (1 << 53, (1 << 53) + 1, i64::MIN, 1e300);
        assert_eq!(
            json_text(&values),
            "[9007199254740992,\"9007199254740993\",\"-9223372036854775808\",1e+300]"
        );
    }
}
