//! Errors of requests to a dispatcher.

use crate::output_file::OutputFileError;
use eyas_files::FilesError;
use eyas_session::SessionError;
use eyas_wire::frame::MAX_FRAME_BYTES;
use thiserror::Error;

/// Why a request has no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The dispatcher cannot be reached, or the connection has ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The dispatcher refused the request; the text is its reason.
    #[error("{0}")]
    Refused(String),
    /// The dispatcher sent an answer to another kind of request.
    #[error(
        "the dispatcher's answer does not fit the request: check that client and dispatcher have \
         the same version of eyas"
    )]
    Unexpected,
    /// The dispatcher is of an earlier version, which lacks a request.
    #[error(
        "the dispatcher of the cluster is of an earlier version of eyas, which cannot {what}: \
         start it with this version"
    )]
    Earlier {
        /// What was asked for.
        what: &'static str,
    },
    /// A part of a job does not fit in a message.
    #[error(
        "{what} cannot be submitted: it has {bytes} bytes, and at most {MAX_FRAME_BYTES} can be \
         sent; put the data in files, or submit the job in parts"
    )]
    TooLarge {
        /// The part of the job, such as `task 3`.
        what: String,
        /// Size of that part.
        bytes: usize,
    },
    /// The cluster has no distributed file system.
    #[error(
        "no executor of this cluster keeps files: start some with `eyas start executor --dfs`, or \
         a cluster on this machine with `eyas start local --dfs`"
    )]
    NoFiles,
    /// The cluster has a distributed file system, but none of its nodes is connected.
    #[error(
        "none of the executors that keep this cluster's files is connected to its dispatcher: \
         start them again with --dfs and their folders"
    )]
    FilesAway,
    /// The distributed file system cannot be used.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Captured output cannot be read from the dispatcher's file.
    #[error(transparent)]
    Output(#[from] OutputFileError),
}
