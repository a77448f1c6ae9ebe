//! Statuses and messages of errors, and the frame around every exported function.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use eyas_client::files::{FilesError, FilesErrorKind};
use eyas_client::types::shown::with_short_quotes;
use eyas_client::{ClientError, ClusterError};

/// The result of a function. 0 is success. Later versions may add further statuses; treat an
/// unknown one as an error.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EyasStatus {
    /// Success.
    Ok = 0,
    /// The end: there is no further result, entry or piece. Not an error.
    End = 1,
    /// An argument is not possible: NULL, not UTF-8, not a path, out of range; or a mistake in a
    /// job.
    Invalid = 2,
    /// The handle is NULL, closed, of another type, or was made before a fork.
    BadHandle = 3,
    /// The file, run or cluster does not exist.
    NotFound = 4,
    /// A file of this name exists already.
    Exists = 5,
    /// Another client has changed the file at the same time. Look at it again.
    Changed = 6,
    /// The key of the cluster does not permit this.
    NotAllowed = 7,
    /// No node has enough space.
    Full = 8,
    /// No replica of a part of the file can be read.
    Lost = 9,
    /// The cluster cannot be reached, or too few of its nodes answer. A retry can help.
    Unreachable = 10,
    /// The call has not ended within its timeout. What it should change may have been changed.
    TimedOut = 11,
    /// The dispatcher refuses the request; the message has its reason.
    Refused = 12,
    /// Other workers have processed the block: its results must be discarded.
    Discarded = 13,
    /// A failure of this machine: a file, a folder or a thread.
    Local = 14,
    /// A bug in eyas. Please report the message.
    Internal = 15,
    /// The name is that of a folder, and the function needs a file.
    IsFolder = 16,
    /// The name, or a part of it, is that of a file, and the function needs a folder.
    NotFolder = 17,
    /// The folder is not empty.
    NotEmpty = 18,
    /// A quota of a folder does not permit it.
    Quota = 19,
    /// The file has no named attribute of this name.
    NoAttribute = 20,
    /// The named attributes of the file together would be too large.
    AttributesFull = 21,
}

/// The name of a status, such as `EYAS_STATUS_NOT_FOUND`. Never NULL. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_status_name(status: i32) -> *const c_char {
    let name = match status {
        0 => c"EYAS_STATUS_OK",
        1 => c"EYAS_STATUS_END",
        2 => c"EYAS_STATUS_INVALID",
        3 => c"EYAS_STATUS_BAD_HANDLE",
        4 => c"EYAS_STATUS_NOT_FOUND",
        5 => c"EYAS_STATUS_EXISTS",
        6 => c"EYAS_STATUS_CHANGED",
        7 => c"EYAS_STATUS_NOT_ALLOWED",
        8 => c"EYAS_STATUS_FULL",
        9 => c"EYAS_STATUS_LOST",
        10 => c"EYAS_STATUS_UNREACHABLE",
        11 => c"EYAS_STATUS_TIMED_OUT",
        12 => c"EYAS_STATUS_REFUSED",
        13 => c"EYAS_STATUS_DISCARDED",
        14 => c"EYAS_STATUS_LOCAL",
        15 => c"EYAS_STATUS_INTERNAL",
        16 => c"EYAS_STATUS_IS_FOLDER",
        17 => c"EYAS_STATUS_NOT_FOLDER",
        18 => c"EYAS_STATUS_NOT_EMPTY",
        19 => c"EYAS_STATUS_QUOTA",
        20 => c"EYAS_STATUS_NO_ATTRIBUTE",
        21 => c"EYAS_STATUS_ATTRIBUTES_FULL",
        _ => c"unknown status",
    };
    name.as_ptr()
}

/// The message of the last function that failed in this thread: what failed, and what to do. Never
/// NULL; empty if none has failed. The text belongs to the library, and is valid until the next
/// function of the library fails in this thread, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_error_message() -> *const c_char {
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct CallError {
    pub status: EyasStatus,
    pub message: String,
}

impl CallError {
    pub fn new(status: EyasStatus, message: impl Display) -> Self {
        CallError { status, message: with_short_quotes(&message.to_string()).into_owned() }
    }

    pub fn invalid(message: impl Display) -> Self {
        CallError::new(EyasStatus::Invalid, message)
    }

    /// No more entries.
    pub fn end() -> Self {
        CallError::new(EyasStatus::End, "there is no more")
    }
}

impl From<FilesError> for CallError {
    fn from(error: FilesError) -> Self {
        let status = match error.kind {
            FilesErrorKind::NotFound => EyasStatus::NotFound,
            FilesErrorKind::Exists => EyasStatus::Exists,
            FilesErrorKind::IsFolder => EyasStatus::IsFolder,
            FilesErrorKind::NotFolder => EyasStatus::NotFolder,
            FilesErrorKind::NotEmpty => EyasStatus::NotEmpty,
            FilesErrorKind::Quota => EyasStatus::Quota,
            FilesErrorKind::NoAttribute => EyasStatus::NoAttribute,
            FilesErrorKind::AttributesFull => EyasStatus::AttributesFull,
            FilesErrorKind::Changed => EyasStatus::Changed,
            FilesErrorKind::Invalid | FilesErrorKind::WrongFormat => EyasStatus::Invalid,
            FilesErrorKind::NotAllowed => EyasStatus::NotAllowed,
            FilesErrorKind::Full | FilesErrorKind::FullNow => EyasStatus::Full,
            FilesErrorKind::Lost => EyasStatus::Lost,
            FilesErrorKind::Unreachable => EyasStatus::Unreachable,
            FilesErrorKind::Local => EyasStatus::Local,
        };
        CallError::new(status, error)
    }
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Files(error) => error.into(),
            ClientError::Session(_) | ClientError::FilesAway => {
                CallError::new(EyasStatus::Unreachable, error)
            }
            ClientError::Refused(_) | ClientError::Earlier { .. } => {
                CallError::new(EyasStatus::Refused, error)
            }
            ClientError::NoFiles => CallError::new(EyasStatus::NotFound, error),
            ClientError::TooLarge { .. } => CallError::new(EyasStatus::Invalid, error),
            ClientError::Unexpected | ClientError::Output(_) => {
                CallError::new(EyasStatus::Local, error)
            }
        }
    }
}

impl From<ClusterError> for CallError {
    fn from(error: ClusterError) -> Self {
        let status = match error {
            ClusterError::Name(_) | ClusterError::AccessName { .. } => EyasStatus::Invalid,
            ClusterError::Access(_) => EyasStatus::NotFound,
            ClusterError::NoHome | ClusterError::List { .. } | ClusterError::Stores { .. } => {
                EyasStatus::Local
            }
        };
        CallError::new(status, error)
    }
}

/// Runs the body of an exported function: catches panics, and keeps the message of a failure.
pub(crate) fn call(body: impl FnOnce() -> Result<(), CallError>) -> EyasStatus {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return EyasStatus::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            CallError::new(EyasStatus::Internal, format!("a bug in eyas: {text}"))
        }
    };
    let text: Vec<u8> =
        failure.message.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    // A thread that ends has no message any longer.
    let _ =
        MESSAGE.try_with(|message| *message.borrow_mut() = CString::new(text).unwrap_or_default());
    failure.status
}

/// The text of a message for tests.
#[cfg(test)]
pub(crate) fn last_message() -> String {
    MESSAGE.with(|message| message.borrow().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status() {
        assert_eq!(call(|| panic!("x{}", 1)), EyasStatus::Internal);
        assert_eq!(last_message(), "a bug in eyas: x1");
        assert_eq!(call(|| Err(CallError::invalid("a\0b"))), EyasStatus::Invalid);
        assert_eq!(last_message(), "ab");
        assert_eq!(call(|| Ok(())), EyasStatus::Ok);
    }
}
