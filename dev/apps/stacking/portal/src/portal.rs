//! What all requests and jobs of a portal share.

use std::io;
use std::path::PathBuf;

use crate::accounts::AccountBook;
use crate::attempts::SignInAttempts;
use crate::cluster_api::ClusterApi;
use crate::job_store::{JobStore, StoreError};
use crate::record::{Phase, StackJob};
use crate::sessions::Sessions;
use crate::slots::AccountSlots;
use crate::surveys::Surveys;
use crate::usage::Usage;
use crate::vosi::Availability;

/// What a job takes as long as none has ended.
const UNKNOWN_MS: u64 = 60_000;

/// Lifetimes that the administrator has set.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// A job and its files are deleted this long after its creation, milliseconds.
    pub kept_ms: u64,
    /// The latest destruction that a job may ask for, milliseconds after now.
    pub longest_kept_ms: u64,
}

/// A portal.
pub struct Portal {
    pub surveys: Surveys,
    pub accounts: AccountBook,
    pub sessions: Sessions,
    pub attempts: SignInAttempts,
    pub jobs: JobStore,
    pub usage: Usage,
    pub slots: AccountSlots,
    pub cluster: ClusterApi,
    pub availability: Availability,
    /// The folder with the files of jobs, which all nodes see.
    pub work: PathBuf,
    /// The program `stack`, at the same path on all nodes.
    pub stack: PathBuf,
    /// What it says of its version.
    pub stack_version: String,
    pub lifetimes: Lifetimes,
}

impl Portal {
    /// The folder with the files of a job.
    pub fn folder_of(&self, id: &str) -> PathBuf {
        self.work.join(id)
    }

    /// The estimated end of a job, milliseconds since 1970; of one that has ended, its end. A job
    /// that has not begun takes as long as others have taken.
    pub fn quote_ms(&self, job: &StackJob, now_ms: u64) -> u64 {
        if let Some(known) = job.ended_ms.or(job.estimated_end_ms(now_ms)) {
            return known;
        }
        let ended = self.jobs.list(|job| job.phase == Phase::Completed);
        let taken = ended.iter().filter_map(|job| job.ended_ms?.checked_sub(job.started_ms?));
        let (sum, count) = taken.fold((0, 0), |(sum, count), ms| (sum + ms, count + 1));
        let usual = u64::checked_div(sum, count).unwrap_or(UNKNOWN_MS);
        job.started_ms.unwrap_or(now_ms).saturating_add(usual).max(now_ms)
    }

    /// Removes a deleted job from the disk.
    pub fn remove_job(&self, id: &str) -> Result<(), StoreError> {
        let folder = self.folder_of(id);
        match std::fs::remove_dir_all(&folder) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(StoreError::File(folder, why)),
            _ => self.jobs.remove(id),
        }
    }
}
