//! Failures of operations on the mount: the code for the program that asked, and the reason for the
//! log.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use eyas_files::{FilesError, FilesErrorKind};
use eyas_types::dfs::NamedAttributeError;
use fuser::Errno;

/// The same reason is logged once in this time.
const LOG_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Why an operation was not done.
#[derive(Clone, Debug)]
pub(crate) struct MountFailure {
    pub errno: Errno,
    /// The reason, for failures that the code does not explain.
    pub why: Option<String>,
}

impl From<Errno> for MountFailure {
    fn from(errno: Errno) -> Self {
        MountFailure { errno, why: None }
    }
}

impl From<io::Error> for MountFailure {
    fn from(error: io::Error) -> Self {
        let why = Some(format!("the scratch folder failed: {error}"));
        MountFailure { errno: Errno::from(error), why }
    }
}

impl From<FilesError> for MountFailure {
    fn from(error: FilesError) -> Self {
        let errno = match error.kind {
            FilesErrorKind::NotFound => return Errno::ENOENT.into(),
            FilesErrorKind::Exists => return Errno::EEXIST.into(),
            FilesErrorKind::IsFolder => return Errno::EISDIR.into(),
            FilesErrorKind::NotFolder => return Errno::ENOTDIR.into(),
            FilesErrorKind::NotEmpty => return Errno::ENOTEMPTY.into(),
            FilesErrorKind::NoAttribute => return Errno::NO_XATTR.into(),
            FilesErrorKind::AttributesFull => return Errno::ENOSPC.into(),
            FilesErrorKind::Quota => Errno::EDQUOT,
            FilesErrorKind::Changed => Errno::ESTALE,
            FilesErrorKind::Invalid | FilesErrorKind::WrongFormat => Errno::EINVAL,
            FilesErrorKind::NotAllowed => Errno::EACCES,
            FilesErrorKind::Full | FilesErrorKind::FullNow => Errno::ENOSPC,
            FilesErrorKind::Lost | FilesErrorKind::Unreachable | FilesErrorKind::Local => {
                Errno::EIO
            }
        };
        MountFailure { errno, why: Some(error.message) }
    }
}

impl From<NamedAttributeError> for MountFailure {
    fn from(error: NamedAttributeError) -> Self {
        let errno = match error {
            NamedAttributeError::Name(_) => Errno::EINVAL,
            NamedAttributeError::Exists(_) => Errno::EEXIST,
            NamedAttributeError::Missing(_) => Errno::NO_XATTR,
            NamedAttributeError::Full(_) => Errno::ENOSPC,
        };
        errno.into()
    }
}

/// The operation did not end within the time that the user has set.
pub(crate) fn too_slow(timeout: Duration) -> MountFailure {
    let why = format!("the file system did not answer within {} s", timeout.as_secs());
    MountFailure { errno: Errno::EIO, why: Some(why) }
}

/// The reason that was logged last, and when.
static LAST: Mutex<Option<(String, Instant)>> = Mutex::new(None);

impl MountFailure {
    /// The reason, for a line of the log.
    pub fn reason(&self) -> String {
        self.why
            .clone()
            .unwrap_or_else(|| io::Error::from_raw_os_error(self.errno.code()).to_string())
    }

    /// Writes the reason to the log, unless the same line was written a moment ago.
    pub fn log(&self, operation: &str, name: &str) {
        let Some(why) = &self.why else { return };
        let Ok(mut last) = LAST.lock() else { return };
        if last.as_ref().is_some_and(|(said, at)| said == why && at.elapsed() < LOG_AGAIN_AFTER) {
            return;
        }
        *last = Some((why.clone(), Instant::now()));
        tracing::warn!(
            "{operation} {} failed with error {}: {why}",
            shown(name),
            self.errno.code()
        );
    }
}

/// A path as it is shown in the log.
pub(crate) fn shown(name: &str) -> String {
    if name.is_empty() { "/".into() } else { eyas_types::shown(name.as_bytes()).to_string() }
}
