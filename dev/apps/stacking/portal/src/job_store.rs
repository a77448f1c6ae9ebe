//! The jobs of all accounts: in memory, and each in a file of the state folder. What `change`
//! returns is on disk.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tokio::sync::watch;
use tokio::task::block_in_place;

use crate::record::{Phase, StackJob};
use crate::whole_file::{make_private_folder, write_private};

/// Jobs of an account that are kept.
pub const MAX_JOBS_OF_ACCOUNT: usize = 1000;
/// Positions in the lists of all jobs of an account: some 1 GB.
pub const MAX_POSITIONS_OF_ACCOUNT: u64 = 5_000_000;

/// All jobs.
pub struct JobStore {
    folder: PathBuf,
    /// Held while a job is changed and written, so that readers do not wait for the disk. It is
    /// taken before `jobs`.
    writes: Mutex<()>,
    jobs: Mutex<BTreeMap<String, StackJob>>,
    /// Counts the changes, for readers that wait.
    changes: watch::Sender<u64>,
}

/// Why a job cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot read or write {path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
    #[error(
        "{path} is damaged: {1}. Restore it from a backup, or move it away",
        path = .0.display()
    )]
    Damaged(PathBuf, serde_json::Error),
    #[error("the job `{0}` was deleted")]
    Gone(String),
}

impl JobStore {
    /// Reads all jobs.
    pub fn open(state: &Path) -> Result<Self, StoreError> {
        let folder = state.join("jobs");
        let failed = |why| StoreError::File(folder.clone(), why);
        make_private_folder(&folder).map_err(failed)?;
        let mut jobs = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let bytes = match std::fs::read(&path) {
                Ok(bytes) => bytes,
                // A command reads while the portal runs, and removes jobs.
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                Err(why) => return Err(failed(why)),
            };
            let job: StackJob = serde_json::from_slice(&bytes)
                .map_err(|why| StoreError::Damaged(path.clone(), why))?;
            jobs.insert(job.id.clone(), job);
        }
        let (writes, jobs) = (Mutex::default(), Mutex::new(jobs));
        Ok(JobStore { folder, writes, jobs, changes: watch::Sender::new(0) })
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }

    fn write(&self, job: &StackJob) -> Result<(), StoreError> {
        let path = self.path(&job.id);
        // Texts and numbers always become JSON.
        let bytes = serde_json::to_vec_pretty(job).unwrap_or_default();
        write_private(&path, &bytes).map_err(|why| StoreError::File(path, why))
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, StackJob>> {
        self.jobs.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn writes(&self) -> std::sync::MutexGuard<'_, ()> {
        self.writes.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Keeps a new job, if the check lets it. No job changes between the two.
    pub fn add<E: From<StoreError>>(
        &self,
        job: StackJob,
        check: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _writes = self.writes();
        check()?;
        self.write(&job)?;
        self.jobs().insert(job.id.clone(), job);
        self.changes.send_modify(|changes| *changes += 1);
        Ok(())
    }

    /// Jobs of an account, and the positions in their lists. Jobs that are not removed yet count:
    /// their files are there.
    pub fn held_by(&self, owner: &str) -> (usize, u64) {
        let jobs = self.jobs();
        let own = jobs.values().filter(|job| job.owner == owner);
        own.fold((0, 0), |(count, positions), job| (count + 1, positions + job.params.positions))
    }

    /// A job by its id.
    pub fn get(&self, id: &str) -> Option<StackJob> {
        self.jobs().get(id).cloned()
    }

    /// The jobs that a filter lets pass, the newest first.
    pub fn list(&self, filter: impl Fn(&StackJob) -> bool) -> Vec<StackJob> {
        let mut found: Vec<_> = self.jobs().values().filter(|job| filter(job)).cloned().collect();
        found.sort_by(|a, b| (b.created_ms, &b.id).cmp(&(a.created_ms, &a.id)));
        found
    }

    /// The mean time of jobs that have completed, milliseconds.
    pub fn usual_ms(&self) -> Option<u64> {
        let jobs = self.jobs();
        let completed = jobs.values().filter(|job| job.phase == Phase::Completed);
        let taken = completed.filter_map(|job| job.ended_ms?.checked_sub(job.started_ms?));
        let (sum, count) = taken.fold((0, 0), |(sum, count), ms| (sum + ms, count + 1));
        u64::checked_div(sum, count)
    }

    /// Changes a job, and keeps the change. Returns the job as it is then.
    pub fn change<E: From<StoreError>>(
        &self,
        id: &str,
        change: impl FnOnce(&mut StackJob) -> Result<(), E>,
    ) -> Result<StackJob, E> {
        let _writes = self.writes();
        let job = self.get(id).ok_or_else(|| StoreError::Gone(id.to_owned()))?;
        let mut changed = job.clone();
        change(&mut changed)?;
        if changed != job {
            self.write(&changed)?;
            self.jobs().insert(id.to_owned(), changed.clone());
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(changed)
    }

    /// Changes what is only shown: progress is not worth a write to disk each time.
    pub fn show(&self, id: &str, change: impl FnOnce(&mut StackJob)) {
        // A change that is written now does not undo this one.
        block_in_place(|| {
            let _writes = self.writes();
            self.jobs().get_mut(id).map(change)
        });
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Deletes a job.
    pub fn remove(&self, id: &str) -> Result<(), StoreError> {
        let _writes = self.writes();
        let path = self.path(id);
        match std::fs::remove_file(&path) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::File(path, why));
            }
            _ => self.jobs().remove(id),
        };
        self.changes.send_modify(|changes| *changes += 1);
        Ok(())
    }

    /// Waits until a job has another phase. The caller bounds the time.
    pub async fn wait_while(&self, id: &str, phase: Phase) {
        let mut changes = self.changes.subscribe();
        while self.get(id).is_some_and(|job| job.phase == phase) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
