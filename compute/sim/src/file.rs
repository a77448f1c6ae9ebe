//! Errors of files that a person or program wrote: scenarios and traces.

use std::error::Error as StdError;
use std::io;
use std::path::Path;

use thiserror::Error;

/// Why a scenario or trace cannot be used.
#[derive(Debug, Error)]
pub enum FileError<E: StdError> {
    /// The file cannot be read.
    #[error("{file} cannot be read: {why}")]
    Unreadable {
        /// Path of the file.
        file: String,
        /// Error of the operating system.
        why: io::Error,
    },
    /// A line of the file is wrong.
    #[error("{file}, line {line}: {why}")]
    Wrong {
        /// Path of the file.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// The mistake in the line.
        why: E,
    },
}

impl<E: StdError> FileError<E> {
    pub(crate) fn unreadable(path: &Path, why: io::Error) -> Self {
        FileError::Unreadable { file: path.display().to_string(), why }
    }

    pub(crate) fn wrong(path: &Path, (line, why): (usize, E)) -> Self {
        FileError::Wrong { file: path.display().to_string(), line, why }
    }
}
