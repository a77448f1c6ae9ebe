//! What can go wrong with the store of a node and with persistent storage. The kind says whether a retry can help, the
//! message names the object or file and says what a person can do.

use std::io;

use eyas_types::Name;
use rustix::io::Errno;
use thiserror::Error;

/// A failure of the node-local store.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct StoreError {
    /// What a caller decides by.
    pub kind: StoreErrorKind,
    /// For a person.
    pub message: String,
}

/// Kinds of [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The disk has no room, or the quota is used up: evict, or run the task elsewhere.
    Full,
    /// The object is not in the store (never was, was evicted, or was found damaged and dropped).
    NotHere,
    /// Not as many bytes came as were announced.
    WrongSize,
    /// Another executor has the folder.
    Locked,
    /// Anything else the operating system said.
    Io,
}

impl StoreError {
    pub(crate) fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        StoreError { kind, message: message.into() }
    }

    /// `what` failed with `error`; a full disk is told apart from everything else.
    pub(crate) fn io(what: impl std::fmt::Display, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        if is_full(&error) {
            let message = format!("{what}: {error}; free some space, or give the executor a smaller store");
            return StoreError::new(StoreErrorKind::Full, message);
        }
        StoreError::new(StoreErrorKind::Io, format!("{what}: {error}"))
    }
}

/// Whether the disk, and not the process, has run out: running out of file descriptors must not evict objects.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// A failure of persistent storage, or of the local side of a transfer from or to it.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct StorageError {
    /// What a caller decides by.
    pub kind: StorageErrorKind,
    /// For a person: names the URL, and says what to do.
    pub message: String,
}

/// Kinds of [`StorageError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageErrorKind {
    /// There is nothing at the URL.
    NotFound,
    /// Not allowed to read or write it.
    Denied,
    /// Not the version that the job was promised.
    Changed,
    /// The service did not answer, or answered that it cannot now.
    Unreachable,
    /// This node's disk has no room for it.
    Full,
    /// Persistent storage has no room for it.
    NoSpace,
    /// The URL, or what it names, is nothing that can be read or written.
    Invalid,
    /// This node's own file or store failed.
    Local,
    /// It was not wanted any more when it was to appear.
    Withdrawn,
}

impl StorageErrorKind {
    /// Whether the same request can succeed later.
    pub fn is_retryable(self) -> bool {
        self == StorageErrorKind::Unreachable
    }
}

impl StorageError {
    pub(crate) fn new(kind: StorageErrorKind, message: impl Into<String>) -> Self {
        StorageError { kind, message: message.into() }
    }

    /// What `url` now holds is not what was promised.
    pub(crate) fn changed(url: impl std::fmt::Display, how: impl std::fmt::Display) -> Self {
        let message = format!(
            "`{url}` changed while the job runs ({how}); its tasks would not all see the same data. Submit the job again \
             to use the file as it is now"
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
            // What is left passes: a server that is away (EIO, ESTALE, ETIMEDOUT), a process out of descriptors.
            _ => (Unreachable, ""),
        };
        StorageError::new(kind, format!("cannot {doing} `{url}`: {error}{advice}"))
    }

    /// The local side of a transfer failed.
    pub(crate) fn local(doing: impl std::fmt::Display, error: impl Into<io::Error>) -> Self {
        let error = error.into();
        let kind = if is_full(&error) { StorageErrorKind::Full } else { StorageErrorKind::Local };
        StorageError::new(kind, format!("{doing}: {error}"))
    }
}

impl From<StoreError> for StorageError {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind {
            StoreErrorKind::Full => StorageErrorKind::Full,
            _ => StorageErrorKind::Local,
        };
        StorageError::new(kind, error.message)
    }
}
