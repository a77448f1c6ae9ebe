//! Versions of files, by which the kernel's cache is judged.

use std::time::{Duration, SystemTime};

use rustix::fs::Stat;

use crate::times::time;

/// Two versions that are further apart have different times, on every file system.
const RESOLUTION: Duration = Duration::from_secs(2);

/// Version of a file's content, as far as its size and times show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    bytes: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl FileVersion {
    /// Whether a change after this time would show.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let changed = time(self.changed.0, self.changed.1);
        now.duration_since(changed).is_ok_and(|since| since > RESOLUTION)
    }
}

impl From<&Stat> for FileVersion {
    fn from(stat: &Stat) -> Self {
        FileVersion {
            bytes: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_settled_when_the_next_one_has_another_time() {
        let file = tempfile::tempfile().unwrap();
        let version = FileVersion::from(&rustix::fs::fstat(&file).unwrap());
        let now = SystemTime::now();
        assert!(!version.is_settled(now));
        assert!(version.is_settled(now + 2 * RESOLUTION));
        assert!(!version.is_settled(now - 2 * RESOLUTION), "the clocks differ");
    }
}
