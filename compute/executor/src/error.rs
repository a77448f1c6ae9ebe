//! Why an executor ends.

use eyas_dfs::NodeError;
use eyas_session::SessionError;
use eyas_session::private::PrivateError;
use eyas_store::{StorageError, StoreError};
use thiserror::Error;

/// Why an executor has ended, or could not start.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// The dispatcher could not be reached within the reconnection time.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Storage cannot be emulated as configured.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The dispatcher does not accept this executor.
    #[error("{0}")]
    Refused(String),
    /// Other users can change the executor's folder.
    #[error("cannot use the folder: {0}")]
    Folder(#[from] PrivateError),
    /// The node of the file system cannot start.
    #[error(transparent)]
    Files(#[from] NodeError),
    /// Tasks cannot be limited as configured.
    #[error(
        "cannot limit tasks by control groups: {0}; use --limits auto or --limits poll, without \
         --cpu-quota, or have the system delegate a control group to this user"
    )]
    Limits(String),
    /// A system call has failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted step.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
}
