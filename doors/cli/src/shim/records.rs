//! The folder of a shim, and what it remembers of jobs. The dispatcher forgets the oldest of many
//! ended jobs; programs that have submitted a job ask for its end later than that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use eyas_client::Client;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::outcome::FailureKind;
use eyas_client::types::{JobId, Status, TaskId};
use eyas_client::view::{JobState, JobView};
use eyas_session::private::PrivateError;
use eyas_session::trusted;
use serde::{Deserialize, Serialize};

use crate::clock::unix_s;
use crate::connect::unexpected;
use crate::error::CliError;
use crate::print::say;

/// Time for which the end of a job is remembered.
const MAX_AGE_S: u64 = 2 * 24 * 3600;
/// The dispatcher and this machine agree on the time of a submission up to this difference. A job
/// of the same number and another time is of an earlier cluster.
const MAX_CLOCK_DIFFERENCE_MS: u64 = 3_600_000;

/// Folders of a shim: records of jobs, what their programs are and how they have ended, and
/// messages that were printed.
const RECORDS: [&str; 3] = ["jobs", "ends", "said"];
/// Mode of the folders. Nodes run what is in them: no other user may write to it, whatever the
/// umask is.
const OPEN_TO_READERS: u32 = 0o755;

/// The state of a job in Slurm's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SlurmState {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
    Timeout,
    OutOfMemory,
    NodeFail,
}

impl SlurmState {
    /// The long and the short name.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            SlurmState::Pending => ("PENDING", "PD"),
            SlurmState::Running => ("RUNNING", "R"),
            SlurmState::Completed => ("COMPLETED", "CD"),
            SlurmState::Failed => ("FAILED", "F"),
            SlurmState::Cancelled => ("CANCELLED", "CA"),
            SlurmState::Timeout => ("TIMEOUT", "TO"),
            SlurmState::OutOfMemory => ("OUT_OF_MEMORY", "OOM"),
            SlurmState::NodeFail => ("NODE_FAIL", "NF"),
        }
    }

    /// Whether the job has ended.
    pub fn has_ended(self) -> bool {
        !matches!(self, SlurmState::Pending | SlurmState::Running)
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EndOfJob {
    pub state: SlurmState,
    pub code: i32,
    pub signal: i32,
    pub node: String,
    pub began_unix_s: u64,
    pub ended_unix_s: u64,
}

/// A job as it was submitted, and its end once that is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub job: JobId,
    /// Name of the file in which the job's program notes its end.
    pub token: String,
    pub name: String,
    pub user: String,
    pub account: String,
    pub partition: String,
    pub comment: String,
    /// The path of the script; empty if there is none.
    #[serde(default)]
    pub command: String,
    pub folder: String,
    pub output: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub time_limit_us: Option<u64>,
    pub submitted_unix_ms: u64,
    pub end: Option<EndOfJob>,
}

/// A job with its present state.
#[derive(Clone, Debug)]
pub(crate) struct ShimJob {
    pub record: JobRecord,
    pub state: SlurmState,
    /// The node, and when the job began, if they are known.
    pub node: String,
    pub began_unix_s: Option<u64>,
}

/// The folder that `eyas shim` has made.
pub(crate) struct ShimFolder(PathBuf);

impl ShimFolder {
    pub fn at(folder: &Path) -> Self {
        ShimFolder(folder.to_owned())
    }

    /// Makes the folder, and the folders for records in it. Returns its path without links.
    pub fn make(folder: &Path) -> Result<PathBuf, PrivateError> {
        let folder = trusted::folder(folder, OPEN_TO_READERS)?;
        RECORDS
            .iter()
            .try_for_each(|name| trusted::folder(&folder.join(name), OPEN_TO_READERS).map(drop))?;
        Ok(folder)
    }

    /// The file for the end of a job.
    pub fn end_path(&self, token: &str) -> PathBuf {
        self.0.join("ends").join(token)
    }

    /// The files of a job's program and script, if they are too large for a command line.
    pub fn script_paths(&self, token: &str) -> [PathBuf; 2] {
        ["program", "script"].map(|what| self.0.join("ends").join(format!("{token}.{what}")))
    }

    /// Writes the file of a job's program or script, for this user alone to write to.
    pub fn write_script(path: &Path, content: &[u8]) -> Result<(), CliError> {
        let file = File::options().write(true).create_new(true).mode(0o644).open(path);
        let written = file.and_then(|mut file| file.write_all(content));
        Ok(written
            .map_err(|e| format!("the script cannot be written to {}: {e}", path.display()))?)
    }

    /// Removes the files of a job's program and script, if there are any.
    pub fn remove_script(&self, token: &str) {
        for path in self.script_paths(token) {
            let _ = fs::remove_file(path);
        }
    }

    /// Says something the first time that this folder is used for it.
    pub fn say_once(&self, what: &str, message: &str) {
        let marker = self.0.join("said").join(what.replace('/', "_"));
        match File::options().write(true).create_new(true).open(marker) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            _ => say!("{message}"),
        }
    }

    /// Refuses a folder in which this user cannot note jobs, or other users could replace the
    /// programs of jobs.
    pub fn check(&self) -> Result<(), CliError> {
        for name in RECORDS {
            trusted::folder(&self.0.join(name), OPEN_TO_READERS)?;
        }
        match tempfile::NamedTempFile::new_in(self.0.join("jobs")) {
            Ok(_) => Ok(()),
            Err(why) => Err(format!(
                "jobs cannot be noted in {}: {why}; make a folder of your own with `eyas shim \
                 FOLDER`",
                self.0.display()
            )
            .into()),
        }
    }

    /// Writes a record, whole or not at all.
    pub fn save(&self, record: &JobRecord) -> Result<(), CliError> {
        let folder = self.0.join("jobs");
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.persist(folder.join(format!("{}.json", record.job)))?;
        Ok(())
    }

    fn records(&self) -> Result<Vec<JobRecord>, CliError> {
        let mut records = Vec::new();
        for entry in fs::read_dir(self.0.join("jobs"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                // Another command may remove the file at the same time.
                let read = fs::read(&path)
                    .ok()
                    .and_then(|text| serde_json::from_slice::<JobRecord>(&text).ok());
                records.extend(read);
            }
        }
        records.sort_by_key(|record| record.job);
        Ok(records)
    }

    fn forget(&self, record: &JobRecord) {
        // What remains is removed by the next command.
        let _ = fs::remove_file(self.0.join("jobs").join(format!("{}.json", record.job)));
        let _ = fs::remove_file(self.end_path(&record.token));
        self.remove_script(&record.token);
    }

    /// All jobs that were submitted with this folder, with their present states.
    ///
    /// # Errors
    /// If the folder cannot be read, or the dispatcher does not answer.
    pub async fn jobs(&self, client: &mut Client) -> Result<Vec<ShimJob>, CliError> {
        // Each record is of a job that the dispatcher has accepted before it is asked.
        let records = self.records()?;
        let ToClient::Jobs(views) = client.ask(FromClient::Jobs { job: None }).await? else {
            return unexpected();
        };
        let views: BTreeMap<JobId, JobView> =
            views.into_iter().map(|view| (view.job, view)).collect();
        let now_s = unix_s();
        let mut jobs = Vec::new();
        for mut record in records {
            let is_old = |end: &EndOfJob| now_s.saturating_sub(end.ended_unix_s) > MAX_AGE_S;
            if record.end.as_ref().is_some_and(is_old) {
                self.forget(&record);
                continue;
            }
            if record.end.is_some() {
                jobs.push(ended(record));
                continue;
            }
            let is_it = |view: &&JobView| {
                let difference = view.submitted_unix_ms.abs_diff(record.submitted_unix_ms);
                view.name == record.name && difference <= MAX_CLOCK_DIFFERENCE_MS
            };
            match views.get(&record.job).filter(is_it) {
                Some(view) if view.state == JobState::Running => {
                    let is_assigned = view.tasks.assigned > 0;
                    let state = if is_assigned { SlurmState::Running } else { SlurmState::Pending };
                    jobs.push(ShimJob { record, state, node: String::new(), began_unix_s: None });
                }
                view => {
                    record.end = Some(self.end_of(client, &record, view.cloned()).await?);
                    self.save(&record)?;
                    jobs.push(ended(record));
                }
            }
        }
        Ok(jobs)
    }

    /// The end of a job by the dispatcher; if that has forgotten the job, by the job's own program.
    async fn end_of(
        &self,
        client: &mut Client,
        record: &JobRecord,
        view: Option<JobView>,
    ) -> Result<EndOfJob, CliError> {
        let noted = fs::read_to_string(self.end_path(&record.token)).unwrap_or_default();
        let noted: Vec<_> = noted.split_whitespace().collect();
        let number = |place: usize| noted.get(place).and_then(|text| text.parse::<u64>().ok());
        let submitted_s = record.submitted_unix_ms / 1000;
        let (state, code, signal) = match (&view, number(0)) {
            (Some(view), _) if view.state == JobState::Succeeded => (SlurmState::Completed, 0, 0),
            (Some(view), _) => {
                let task = TaskId { job: view.job, index: 0 };
                match client.ask(FromClient::Log { task }).await? {
                    ToClient::Log(Some(result)) => state_of(&result.outcome.status),
                    _ => (SlurmState::Cancelled, 0, 15),
                }
            }
            (None, Some(0)) => (SlurmState::Completed, 0, 0),
            (None, Some(code)) => (SlurmState::Failed, code as i32, 0),
            // It ended without the end of its program.
            (None, None) => (SlurmState::NodeFail, 0, 0),
        };
        let ended_unix_s = match view {
            Some(view) => (view.submitted_unix_ms + view.elapsed_us / 1000) / 1000,
            None => number(2).unwrap_or(submitted_s),
        };
        Ok(EndOfJob {
            state,
            code,
            signal,
            node: noted.get(3).map_or(String::new(), |node| (*node).to_owned()),
            began_unix_s: number(1).unwrap_or(ended_unix_s),
            ended_unix_s: number(2).unwrap_or(ended_unix_s),
        })
    }
}

fn ended(record: JobRecord) -> ShimJob {
    let end = record.end.clone().expect("the job has ended");
    ShimJob { record, state: end.state, node: end.node, began_unix_s: Some(end.began_unix_s) }
}

/// The state, exit code and signal that Slurm shows for the end of a task.
fn state_of(status: &Status) -> (SlurmState, i32, i32) {
    match status {
        Status::Succeeded => (SlurmState::Completed, 0, 0),
        Status::Exited(code) => (SlurmState::Failed, *code, 0),
        Status::Signalled(signal) => (SlurmState::Failed, 0, *signal),
        Status::TimedOut => (SlurmState::Timeout, 0, 15),
        Status::Cancelled => (SlurmState::Cancelled, 0, 15),
        Status::Failed(failure) => match failure.kind {
            FailureKind::Memory => (SlurmState::OutOfMemory, 0, 9),
            FailureKind::Node | FailureKind::NodeFull | FailureKind::Lost => {
                (SlurmState::NodeFail, 1, 0)
            }
            _ => (SlurmState::Failed, 1, 0),
        },
    }
}
