//! Output files appear whole or not at all: they are written under a temporary name, then renamed.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::error::{FileProblem, StackingError};

/// Writes `bytes` to `path`, and replaces an older file.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), StackingError> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).map_err(|error| {
        // Nothing half-written stays behind; the first error is the one that is reported.
        let _ = fs::remove_file(&part);
        StackingError::new(path, FileProblem::Io { action: "write", error })
    })
}
