//! Errors of a client of the file system. The kind says whether a retry can help; the message names
//! the file.

use eyas_types::dfs::{FileName, NamedAttributeError};
use thiserror::Error;

/// The failure of an operation on files.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct FilesError {
    /// The kind, for callers that decide what to do.
    pub kind: FilesErrorKind,
    /// The message, for a person: names the file, and what to do.
    pub message: String,
}

/// Kinds of [`FilesError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesErrorKind {
    /// The file, or the range of it, does not exist.
    NotFound,
    /// The file exists already.
    Exists,
    /// The name is that of a folder, and the operation needs a file.
    IsFolder,
    /// The name, or a part of it, is that of a file, and the operation needs a folder.
    NotFolder,
    /// The folder is not empty.
    NotEmpty,
    /// A quota of a folder does not permit it.
    Quota,
    /// The file has no named attribute of this name.
    NoAttribute,
    /// The named attributes of the file would be too large.
    AttributesFull,
    /// Another client has changed the file: look at it again.
    Changed,
    /// The operation is impossible.
    Invalid,
    /// The content does not have the format of the file. Without records, it can be stored.
    WrongFormat,
    /// The key or token of this process does not permit the operation.
    NotAllowed,
    /// No node has enough space.
    Full,
    /// No node has enough space now. Chunks that clients have left are about to be deleted, so a
    /// retry can help.
    FullNow,
    /// No replica of a chunk could be read.
    Lost,
    /// Nodes did not answer in time. A retry can help.
    Unreachable,
    /// A failure on this side, for example of the source that is written.
    Local,
}

impl FilesError {
    pub(crate) fn new(kind: FilesErrorKind, message: impl Into<String>) -> Self {
        FilesError { kind, message: message.into() }
    }

    pub(crate) fn not_found(name: &FileName) -> Self {
        FilesError::new(FilesErrorKind::NotFound, format!("there is no file {name}"))
    }

    pub(crate) fn exists(name: &FileName, is_folder: bool) -> Self {
        let kind = if is_folder { "folder" } else { "file" };
        let message =
            format!("there is a {kind} {name} already: remove it first, or choose another name");
        FilesError::new(FilesErrorKind::Exists, message)
    }

    pub(crate) fn is_folder(name: &FileName) -> Self {
        FilesError::new(FilesErrorKind::IsFolder, format!("{name} is a folder"))
    }

    pub(crate) fn not_folder(name: &FileName) -> Self {
        FilesError::new(FilesErrorKind::NotFolder, format!("{name} is a file, and not a folder"))
    }

    pub(crate) fn not_empty(name: &FileName) -> Self {
        let message =
            format!("folder {name} is not empty: remove its files first, or remove it with -r");
        FilesError::new(FilesErrorKind::NotEmpty, message)
    }

    pub(crate) fn attribute(name: &FileName, error: &NamedAttributeError) -> Self {
        let kind = match error {
            NamedAttributeError::Name(_) => FilesErrorKind::Invalid,
            NamedAttributeError::Exists(_) => FilesErrorKind::Exists,
            NamedAttributeError::Missing(_) => FilesErrorKind::NoAttribute,
            NamedAttributeError::Full(_) => FilesErrorKind::AttributesFull,
        };
        FilesError::new(kind, format!("{name}: {error}"))
    }

    /// The file has changed.
    pub fn changed(name: &FileName) -> Self {
        FilesError::new(
            FilesErrorKind::Changed,
            format!("{name} was changed by another client at the same time: try again"),
        )
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

/// A node has answered something else than what was asked.
pub(crate) fn unexpected() -> FilesError {
    FilesError::unreachable(
        "a node of the file system sent an unexpected answer: use the same version of eyas on all \
         nodes",
    )
}
