//! Object-frames that accounts have used, for their quotas. An entry stays when its job is deleted;
//! it ends 24 hours after the job began.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::whole_file::write_private;

/// Object-frames count for this time.
const PERIOD_MS: u64 = 24 * 3600 * 1000;

/// Why a job may not run.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error(
        "the job has {wanted} object-frames, and the account has {left} of its {quota} for 24 h \
         left: stack fewer positions, {later}or ask the administrator for a larger quota"
    )]
    Exceeded { wanted: u64, left: u64, quota: u64, later: String },
    #[error(
        "the account has used its {0} object-frames for 24 h: submit the job later, or ask the \
         administrator for a larger quota"
    )]
    Used(u64),
    #[error(
        "{path} is damaged: {1}. Restore it from a backup, or remove it: all accounts then have \
         their whole quotas again",
        path = .0.display()
    )]
    Damaged(PathBuf, serde_json::Error),
    #[error("cannot read or write {path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
}

#[derive(Clone, Serialize, Deserialize)]
struct Use {
    job: String,
    at_ms: u64,
    object_frames: u64,
}

type Uses = BTreeMap<String, Vec<Use>>;

/// What accounts have used.
pub struct Usage {
    path: PathBuf,
    uses: Mutex<Uses>,
}

impl Usage {
    /// Reads what accounts have used.
    pub fn open(state: &Path) -> Result<Self, UsageError> {
        let path = state.join("usage.json");
        let uses = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|why| UsageError::Damaged(path.clone(), why))?,
            Err(why) if why.kind() == io::ErrorKind::NotFound => Uses::new(),
            Err(why) => return Err(UsageError::File(path, why)),
        };
        Ok(Usage { path, uses: Mutex::new(uses) })
    }

    /// Object-frames that an account has used in the last 24 hours.
    pub fn used(&self, account: &str, now_ms: u64) -> u64 {
        let uses = self.uses.lock().unwrap_or_else(|e| e.into_inner());
        let counts = |one: &&Use| one.at_ms + PERIOD_MS > now_ms;
        uses.get(account).into_iter().flatten().filter(counts).map(|one| one.object_frames).sum()
    }

    /// Refuses a job of an account that has used its whole quota, before its frames are looked for.
    /// One that was charged goes on.
    pub fn must_have_left(
        &self,
        account: &str,
        quota: u64,
        job: &str,
        now_ms: u64,
    ) -> Result<(), UsageError> {
        let uses = self.uses.lock().unwrap_or_else(|e| e.into_inner());
        let own = uses.get(account).into_iter().flatten();
        let own: Vec<&Use> = own.filter(|one| one.at_ms + PERIOD_MS > now_ms).collect();
        let used: u64 = own.iter().map(|one| one.object_frames).sum();
        match used < quota || own.iter().any(|one| one.job == job) {
            true => Ok(()),
            false => Err(UsageError::Used(quota)),
        }
    }

    /// Takes the object-frames of a job from its account. A job is counted once, also if it is
    /// charged again after a restart.
    pub fn charge(
        &self,
        account: &str,
        quota: u64,
        job: &str,
        object_frames: u64,
        now_ms: u64,
    ) -> Result<(), UsageError> {
        let mut uses = self.uses.lock().unwrap_or_else(|e| e.into_inner());
        let mut changed = uses.clone();
        for list in changed.values_mut() {
            list.retain(|one| one.at_ms + PERIOD_MS > now_ms);
        }
        changed.retain(|_, list| !list.is_empty());
        let own = changed.entry(account.to_owned()).or_default();
        if own.iter().any(|one| one.job == job) {
            return Ok(());
        }
        let used: u64 = own.iter().map(|one| one.object_frames).sum();
        let left = quota.saturating_sub(used);
        if object_frames > left {
            let oldest_ms = own.iter().map(|one| one.at_ms + PERIOD_MS).min().unwrap_or(now_ms);
            let hours = oldest_ms.saturating_sub(now_ms).div_ceil(3600 * 1000);
            let may_fit = object_frames <= quota;
            let later =
                if may_fit { format!("submit it again in {hours} h, ") } else { String::new() };
            return Err(UsageError::Exceeded { wanted: object_frames, left, quota, later });
        }
        own.push(Use { job: job.to_owned(), at_ms: now_ms, object_frames });
        let bytes = serde_json::to_vec(&changed).unwrap_or_default();
        write_private(&self.path, &bytes)
            .map_err(|why| UsageError::File(self.path.clone(), why))?;
        *uses = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_frames_count_for_a_day_and_once_for_each_job() {
        let folder = tempfile::tempdir().unwrap();
        let usage = Usage::open(folder.path()).unwrap();
        let hour = 3600 * 1000;
        usage.charge("ada", 100, "a", 60, hour).unwrap();
        usage.charge("ada", 100, "a", 60, hour).unwrap();
        usage.charge("bob", 100, "b", 100, hour).unwrap();
        // A restart forgets nothing.
        let usage = Usage::open(folder.path()).unwrap();
        assert_eq!((usage.used("ada", hour), usage.used("eve", hour)), (60, 0));
        let why = usage.charge("ada", 100, "c", 41, 3 * hour).unwrap_err().to_string();
        assert!(why.contains("has 41 object-frames") && why.contains("has 40 of its 100"), "{why}");
        assert!(why.contains("again in 22 h"), "{why}");
        let why = usage.charge("ada", 100, "c", 101, 3 * hour).unwrap_err().to_string();
        assert!(!why.contains("again"), "{why}");
        usage.charge("ada", 100, "c", 40, 3 * hour).unwrap();
        assert_eq!(usage.used("ada", 26 * hour), 40);
        usage.charge("ada", 100, "d", 60, 26 * hour).unwrap();
        let left = |job| usage.must_have_left("ada", 100, job, 26 * hour);
        assert!(left("e").unwrap_err().to_string().contains("used its 100"));
        left("d").unwrap();
        usage.must_have_left("ada", 101, "e", 26 * hour).unwrap();
        std::fs::write(folder.path().join("usage.json"), "{").unwrap();
        let why = Usage::open(folder.path()).err().unwrap().to_string();
        assert!(why.contains("usage.json is damaged"), "{why}");
    }
}
