//! Errors of the node-local store and of persistent storage. The kind says whether a retry can
//! help. The message names the object or file and says what a person can do.

use std::io;

use eyas_types::Name;
use rustix::io::Errno;
use thiserror::Error;

/// A failure of the node-local store.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct StoreError {
    /// The kind, for callers that decide what to do.
    pub kind: StoreErrorKind,
    /// The message, for a person.
    pub message: String,
}

/// Kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The disk has no room, or the quota is used up: evict, or run the task elsewhere.
    Full,
    /// The object is not in the store: it was never stored, was evicted, or was found damaged.
    NotHere,
    /// The content has another size than was announced.
    WrongSize,
    /// The content has another checksum than is registered for its name.
    WrongContent,
    /// Another executor uses the folder.
    Locked,
    /// Any other failure of the operating system.
    Io,
}

impl StoreError {
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        StoreError { kind, message: message.into() }
    }

    /// An error in doing `what`. A full disk gets a kind of its own.
    pub(crate) fn io(what: impl std::fmt::Display, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        if is_full(&error) {
            let message =
                format!("{what}: {error}; free some space, or give the executor a smaller store");
            return StoreError::new(StoreErrorKind::Full, message);
        }
        StoreError::new(StoreErrorKind::Io, format!("{what}: {error}"))
    }
}

/// Whether the disk or quota is full. A process without free file descriptors does not count:
/// evicting objects would not help.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// A failure of persistent storage, or of the local side of a transfer from or to it.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct StorageError {
    /// The kind, for callers that decide what to do.
    pub kind: StorageErrorKind,
    /// The message, for a person: names the URL, and says what to do.
    pub message: String,
}

/// Kinds of [`StorageError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageErrorKind {
    /// There is nothing at the URL.
    NotFound,
    /// Reading or writing is not permitted.
    Denied,
    /// The content is not the version that the job was promised.
    Changed,
    /// The service did not answer, or answered that it is unavailable.
    Unreachable,
    /// The disk of this node is full.
    Full,
    /// Persistent storage is full.
    NoSpace,
    /// The URL is malformed, or names something that cannot be read or written.
    Invalid,
    /// A local file or the store of this node failed.
    Local,
    /// The output was no longer wanted when it was about to be published.
    Withdrawn,
}

impl StorageErrorKind {
    /// Whether the same request can succeed later.
    pub fn is_retryable(self) -> bool {
        self == StorageErrorKind::Unreachable
    }
}

impl StorageError {
    /// An error with a message for a person.
    pub fn new(kind: StorageErrorKind, message: impl Into<String>) -> Self {
        StorageError { kind, message: message.into() }
    }

    /// The content at `url` is no longer the promised version.
    pub fn changed(url: impl std::fmt::Display, how: impl std::fmt::Display) -> Self {
        let message = format!(
            "`{url}` changed while the job was running ({how}), so its tasks would not all see \
             the same data. Submit the job again to use the new version"
        );
        StorageError::new(StorageErrorKind::Changed, message)
    }

    /// Reading or writing the file behind `url` failed.
    pub(crate) fn file(doing: &str, url: &Name, error: &io::Error) -> Self {
        use StorageErrorKind::{Denied, Invalid, NoSpace, NotFound, Unreachable};
        let (kind, advice) = match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::NOTDIR) => {
                (NotFound, "; check the path, and that every node mounts the file system")
            }
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                (Denied, "; give the user that runs the executors access to it")
            }
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => {
                (NoSpace, "; free some space or quota there, then run the job again")
            }
            Some(Errno::ISDIR | Errno::EXIST | Errno::NAMETOOLONG | Errno::LOOP | Errno::INVAL) => {
                (Invalid, "; name another path")
            }
            // All other errors are temporary: a server that is away (EIO, ESTALE, ETIMEDOUT), or a
            // process without free descriptors.
            _ => (Unreachable, ""),
        };
        StorageError::new(kind, format!("cannot {doing} `{url}`: {error}{advice}"))
    }

    /// The local side of a transfer failed.
    pub fn local(doing: impl std::fmt::Display, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let kind = if is_full(&error) { StorageErrorKind::Full } else { StorageErrorKind::Local };
        StorageError::new(kind, format!("{doing}: {error}"))
    }
}

impl From<StoreError> for StorageError {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind {
            StoreErrorKind::Full => StorageErrorKind::Full,
            StoreErrorKind::WrongContent => StorageErrorKind::Changed,
            _ => StorageErrorKind::Local,
        };
        StorageError::new(kind, error.message)
    }
}
