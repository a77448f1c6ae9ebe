//! The `eyas` command.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the `eyas` command with these words, and returns its exit code. `program` is the path of
/// the command, for the processes that it starts.
#[pyfunction]
pub fn main(py: Python<'_>, words: Vec<OsString>, program: PathBuf) -> u8 {
    py.detach(|| eyas_cli::run(&words, Some(program)).number())
}
