//! Files that a user has written, or a program: what is wrong with them, and where.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why a file is not what it should be.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("{file} cannot be read: {why}")]
    Unreadable {
        /// Which file.
        file: String,
        /// Why.
        why: io::Error,
    },
    /// It says something that it must not.
    #[error("{file}, line {line}: {why}")]
    Wrong {
        /// Which file.
        file: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
}

impl FileError {
    pub(crate) fn unreadable(path: &Path, why: io::Error) -> Self {
        FileError::Unreadable { file: path.display().to_string(), why }
    }

    pub(crate) fn wrong(path: &Path, (line, why): (usize, String)) -> Self {
        FileError::Wrong { file: path.display().to_string(), line, why }
    }
}
