//! What can go wrong for a client of the file system. The kind says what a retry can do, the message names the file.

use eyas_types::dfs::FileName;
use thiserror::Error;

/// Why something was not done.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct FilesError {
    /// What a caller decides by.
    pub kind: FilesErrorKind,
    /// For a person: names the file, and what to do.
    pub message: String,
}

/// Kinds of [`FilesError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesErrorKind {
    /// There is no such file, or no such range of it.
    NotFound,
    /// There is such a file already.
    Exists,
    /// Somebody else changed it meanwhile: look again.
    Changed,
    /// It cannot be done at all.
    Invalid,
    /// This process's key or token is not good for it.
    NotAllowed,
    /// No node has room.
    Full,
    /// No replica of a part of it could be read.
    Lost,
    /// Nodes did not answer in time: a retry can help.
    Unreachable,
    /// This side failed: its disk, or whoever it reads from or writes to.
    Local,
}

impl FilesError {
    pub(crate) fn new(kind: FilesErrorKind, message: impl Into<String>) -> Self {
        FilesError { kind, message: message.into() }
    }

    pub(crate) fn not_found(name: &FileName) -> Self {
        FilesError::new(FilesErrorKind::NotFound, format!("there is no file {name}"))
    }

    pub(crate) fn exists(name: &FileName) -> Self {
        let message = format!("there is a file {name} already: remove it first, or choose another name");
        FilesError::new(FilesErrorKind::Exists, message)
    }

    /// The file is not any more what it was.
    pub fn changed(name: &FileName) -> Self {
        FilesError::new(FilesErrorKind::Changed, format!("{name} was changed by somebody else meanwhile: try again"))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        FilesError::new(FilesErrorKind::Invalid, message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        FilesError::new(FilesErrorKind::Unreachable, message)
    }

    pub(crate) fn local(what: &str, source: &std::io::Error) -> Self {
        FilesError::new(FilesErrorKind::Local, format!("{what}: {source}"))
    }
}
