//! What every batch system must do, and how a request is submitted to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use eyas_provision::{BatchReport, BatchState};
use eyas_wire::pool::PoolOptions;

use crate::batch_error::BatchError;
use crate::request::{BatchJob, RequestPlan};

/// Where a node has what its script needs.
#[derive(Debug)]
pub(crate) struct NodePaths {
    /// The `eyas` program.
    pub eyas: PathBuf,
    /// The access file.
    pub access: PathBuf,
    /// The executor's folder, if it is not the usual one.
    pub folder: Option<PathBuf>,
}

/// A batch system. Methods run commands that may take a minute, so they are called in tasks of
/// their own.
#[async_trait]
pub(crate) trait BatchSystem: Send + Sync {
    /// Time between two questions for the states of requests.
    fn ask_every(&self) -> Duration;

    /// Pools with the same scope are asked for together.
    fn scope(&self, _options: &PoolOptions) -> String {
        String::new()
    }

    /// Lines at the beginning of a script, which the batch system reads.
    fn directives(&self, _plan: &RequestPlan) -> Vec<String> {
        Vec::new()
    }

    /// What tells the nodes of a request apart, for a shell on a node. Empty if the executor finds
    /// a name by itself.
    fn node_number(&self) -> &'static str {
        ""
    }

    /// Where a node has what its script needs. Usually the dispatcher's files are on all nodes.
    fn node_paths(&self, plan: &RequestPlan) -> NodePaths {
        NodePaths { eyas: plan.eyas.clone(), access: plan.access(), folder: None }
    }

    /// A signal other than SIGTERM with which the batch system warns a node before it ends it.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// Whether reports name the host of a request. Otherwise the script writes it to
    /// [`RequestPlan::host_file`].
    fn names_hosts(&self) -> bool {
        true
    }

    /// Words before the command that starts an executor, so that it starts on each node of the
    /// request.
    fn launcher(&self, _plan: &RequestPlan) -> String {
        String::new()
    }

    /// Submits a request, whose script has been written.
    async fn submit(&self, plan: &RequestPlan) -> Result<BatchJob, BatchError>;

    /// Looks for a request by its name, because it is not known whether its submission has
    /// succeeded. Has none of it if only a part was submitted.
    async fn find(&self, plan: &RequestPlan) -> Result<Option<BatchJob>, BatchError>;

    /// The states of requests of one scope, in the same order.
    async fn states(&self, jobs: &[BatchJob]) -> Result<Vec<BatchReport>, BatchError>;

    /// Hosts that the last submissions passed over because they could not start a node there, and
    /// why. Each is reported once.
    fn take_failed_hosts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Ends requests, whether they have been granted or not.
    async fn withdraw(&self, jobs: &[BatchJob]) -> Result<(), BatchError>;

    /// Asks whether a request would be accepted, without submitting it. Returns what the batch
    /// system says.
    async fn try_out(&self, plan: &RequestPlan) -> Result<String, BatchError>;

    /// Brings what the nodes of an open request have printed into the request's folder, if they do
    /// not write there.
    async fn bring_log(&self, _job: &BatchJob) -> Result<(), BatchError> {
        Ok(())
    }
}

/// What became of a submission.
#[derive(Debug)]
pub(crate) enum Submission {
    /// The batch system has the request.
    Accepted(BatchJob),
    /// The batch system does not have the request, and will not have it.
    Refused(BatchError),
    /// The batch system may have the request, or may have it later. [`BatchSystem::find`] tells.
    Unclear(BatchError),
}

/// Submits a request, whose script has been written. If that fails, looks whether the batch system
/// has it.
pub(crate) async fn submit(system: &dyn BatchSystem, plan: &RequestPlan) -> Submission {
    let why = match system.submit(plan).await {
        Ok(job) => return Submission::Accepted(job),
        // A batch system that is silent would not answer the next question either.
        Err(why @ BatchError::Slow { .. }) => return Submission::Unclear(why),
        Err(why) => why,
    };
    match system.find(plan).await {
        Ok(Some(job)) => Submission::Accepted(job),
        _ if why.leaves_open() => Submission::Unclear(why),
        _ => Submission::Refused(why),
    }
}

/// A request that is several jobs. If not all were submitted, they are withdrawn: part of a request
/// is of no use, because its number of nodes would be wrong.
pub(crate) async fn whole(
    system: &dyn BatchSystem,
    plan: &RequestPlan,
    ids: &[String],
) -> Result<Option<BatchJob>, BatchError> {
    let job = BatchJob { id: ids.join(","), cluster: None, folder: plan.folder.clone() };
    if ids.len() == plan.nodes as usize {
        return Ok(Some(job));
    }
    if !ids.is_empty() {
        system.withdraw(&[job]).await?;
    }
    Ok(None)
}

/// A line of a script that writes the script's process and the time of its start into a file.
pub(crate) fn process_line(file: &str) -> String {
    format!("echo $$ $(cut -d ' ' -f 22 /proc/$$/stat) >{file}")
}

/// A process that [`process_line`] has written, as `PROCESS:START`.
pub(crate) fn written_process(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let (process, start) = text.trim().split_once(' ')?;
    Some(format!("{process}:{start}"))
}

/// The state of a request that is several jobs.
pub(crate) fn together(states: impl IntoIterator<Item = BatchState>) -> BatchState {
    let mut states: Vec<_> = states.into_iter().collect();
    let order = |state: &BatchState| match state {
        BatchState::Running => 0,
        BatchState::Starting(_) => 1,
        BatchState::Pending(_) => 2,
        BatchState::Unknown => 3,
        BatchState::Ended(_) => 4,
    };
    states.sort_by_key(order);
    states.into_iter().next().unwrap_or(BatchState::Unknown)
}
