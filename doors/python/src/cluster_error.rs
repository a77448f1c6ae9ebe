//! The exception for failures of a cluster.

use eyas_client::types::shown::with_short_quotes;
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

// Pickles and tracebacks name it as programs do.
create_exception!(
    eyas,
    ClusterError,
    PyRuntimeError,
    "The cluster cannot be reached, or refuses a request."
);

pub(crate) fn error(why: impl ToString) -> PyErr {
    ClusterError::new_err(short(why))
}

/// A message with short quotes: an argument may have megabytes.
pub(crate) fn short(message: impl ToString) -> String {
    with_short_quotes(&message.to_string()).into_owned()
}
