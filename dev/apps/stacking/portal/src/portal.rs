//! What all requests and jobs of a portal share.

use std::io;
use std::path::PathBuf;

use crate::accounts::AccountBook;
use crate::attempts::SignInAttempts;
use crate::availability::Availability;
use crate::cluster_api::ClusterApi;
use crate::job_store::{JobStore, StoreError};
use crate::record::StackJob;
use crate::sessions::Sessions;
use crate::slots::AccountSlots;
use crate::surveys::Surveys;
use crate::usage::Usage;

/// The time that a job is expected to take until one has ended.
const UNKNOWN_MS: u64 = 60_000;

/// A portal.
pub struct Portal {
    pub surveys: Surveys,
    pub accounts: AccountBook,
    pub sessions: Sessions,
    pub attempts: SignInAttempts,
    pub jobs: JobStore,
    pub usage: Usage,
    /// Jobs that run, and requests that wait.
    pub slots: AccountSlots,
    pub waits: AccountSlots,
    pub cluster: ClusterApi,
    pub availability: Availability,
    /// The folder with the files of jobs, which all nodes see.
    pub work: PathBuf,
    /// The program `stack`, at the same path on all nodes.
    pub stack: PathBuf,
    /// What it says of its version.
    pub stack_version: String,
    /// A job and its files are deleted this long after its creation, milliseconds. No job may ask
    /// for a destruction that is later than this from now.
    pub kept_ms: u64,
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
        let usual = self.jobs.usual_ms().unwrap_or(UNKNOWN_MS);
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
