//! Nodes that are processes on this machine: for trying out pools, and for tests.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchEnd, BatchReport, BatchState};
use eyas_session::descriptor_limit_of_caller;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use crate::batch_error::BatchError;
use crate::batch_system::{BatchSystem, process_line, written_process};
use crate::request::{BatchJob, RequestPlan};
use crate::script::{quoted, shell};

/// File in a request's folder with the way in which its process ended.
const ENDED: &str = "ended";

/// File in a request's folder with its process.
const PROCESS: &str = "process";

pub(super) struct LocalSystem;

/// The id of a process and the time of its start, by which a later process with the same id is told
/// apart.
fn named(process: u32) -> Option<String> {
    Some(format!("{process}:{}", started(process)?))
}

/// When a process was started, in the system's own unit. `None` if it is gone, or has ended and
/// only its status is left.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    match fields.next()? {
        "Z" | "X" => None,
        // The first field here is the third of the line, and the start is the 22nd.
        _ => fields.nth(18)?.parse().ok(),
    }
}

fn process_of(job: &BatchJob) -> Option<u32> {
    let process = job.id.split_once(':')?.0.parse().ok()?;
    (named(process).as_deref() == Some(&job.id)).then_some(process)
}

fn words_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

fn open(folder: &Path, name: &str) -> Result<File, BatchError> {
    let path = folder.join(name);
    File::create(&path).map_err(|why| BatchError::file(&path, &why))
}

#[async_trait]
impl BatchSystem for LocalSystem {
    fn ask_every(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn directives(&self, plan: &RequestPlan) -> Vec<String> {
        let process = process_line(&quoted(&plan.folder.join(PROCESS).display().to_string()));
        // The dispatcher has raised its own limit, which the executor would pass on to its tasks.
        let open_files = descriptor_limit_of_caller().and_then(|limit| limit.current);
        [process]
            .into_iter()
            .chain(open_files.map(|limit| format!("ulimit -S -n {limit}")))
            .collect()
    }

    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError> {
        let mut command = Command::new(shell());
        command.arg(plan.script()).stdin(Stdio::null()).process_group(0);
        command.stdout(open(&plan.folder, "stdout")?).stderr(open(&plan.folder, "stderr")?);
        let not_started = |why: std::io::Error| BatchError::NotStarted {
            program: shell().into(),
            why: why.to_string(),
        };
        let mut child = command.spawn().map_err(not_started)?;
        // A process that has ended keeps its id until `wait`.
        let id =
            child.id().map(|id| named(id).unwrap_or_else(|| format!("{id}:0"))).unwrap_or_default();
        let ended = plan.folder.join(ENDED);
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                // Without the file, only the way in which the process ended stays unknown.
                let _ = std::fs::write(&ended, words_of(status));
            }
        });
        Ok(BatchJob { id, cluster: None, folder: plan.folder.clone() })
    }

    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError> {
        let id = written_process(&plan.folder.join(PROCESS));
        Ok(id.map(|id| BatchJob { id, cluster: None, folder: plan.folder.clone() }))
    }

    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError> {
        let state = |job: &BatchJob| match process_of(job) {
            Some(_) => BatchState::Running,
            None => match std::fs::read_to_string(job.folder.join(ENDED)) {
                Ok(says) => BatchState::Ended(BatchEnd { says, is_of_node: false }),
                // The file is written soon, unless the dispatcher was started again in the
                // meantime.
                Err(_) => BatchState::Unknown,
            },
        };
        Ok(jobs.iter().map(|job| state(job).into()).collect())
    }

    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError> {
        for group in jobs.iter().filter_map(process_of).filter_map(|id| Pid::from_raw(id as i32)) {
            // The group may have ended in the meantime.
            let _ = kill_process_group(group, Signal::TERM);
        }
        Ok(())
    }

    async fn try_out(&self, _: &RequestPlan) -> Result<String, BatchError> {
        Ok("executors start as processes on this machine".into())
    }
}
