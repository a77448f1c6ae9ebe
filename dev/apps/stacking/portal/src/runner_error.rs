//! Why a job fails.

use crate::job_store::StoreError;
use crate::usage::UsageError;

/// Why a job fails, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("the portal cannot read or write the files of the job: {0}")]
    Files(#[from] std::io::Error),
    #[error("{0}")]
    Job(String),
    /// A job of eyas is lost: it is submitted again.
    #[error("the cluster has lost the work of the job {0} times: submit the job again")]
    Lost(u32),
}

impl RunError {
    /// Whether the step may succeed later, without another list: the disk is full, for example. A
    /// file that is lost or damaged stays so.
    pub fn may_pass(&self) -> bool {
        let why = match self {
            RunError::Store(StoreError::File(_, why)) => why,
            RunError::Usage(UsageError::File(_, why)) | RunError::Files(why) => why,
            _ => return false,
        };
        use std::io::ErrorKind as Kind;
        !matches!(why.kind(), Kind::NotFound | Kind::InvalidData | Kind::UnexpectedEof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_full_disk_is_waited_for_and_a_lost_file_is_not() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        assert!(RunError::from(full()).may_pass());
        assert!(RunError::from(StoreError::File("a".into(), full())).may_pass());
        assert!(RunError::from(UsageError::File("a".into(), full())).may_pass());
        assert!(!RunError::from(io::Error::from(io::ErrorKind::NotFound)).may_pass());
        let damaged = serde_json::from_str::<u8>("x").unwrap_err();
        assert!(!RunError::from(io::Error::from(damaged)).may_pass());
        assert!(!RunError::Job("no frames".into()).may_pass());
    }
}
