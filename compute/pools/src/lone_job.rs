//! A batch job that runs one command and belongs to no pool: a dispatcher that must not run on a
//! login node.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use eyas_provision::{BatchState, MAX_UNKNOWN};
use eyas_wire::pool::PoolOptions;

use crate::batch_error::BatchError;
use crate::batch_system::{self, BatchSystem, Submission};
use crate::request::{BatchJob, RequestPlan, make_private_folder, new_mark, write_private};
use crate::script::{quoted, shell};
use crate::systems;

/// File in the job's folder with the exit code of the command.
const STATUS: &str = "status";

/// What the job runs, and where.
pub struct LoneCommand {
    /// Name of the job in the batch system.
    pub name: String,
    /// The words of the command.
    pub words: Vec<String>,
    /// The command's working folder.
    pub working_folder: PathBuf,
    /// The command's environment, beside what the batch system passes on.
    pub variables: Vec<(String, String)>,
}

/// A job, which may have been submitted.
pub struct LoneJob {
    system: Arc<dyn BatchSystem>,
    plan: RequestPlan,
    /// The job in the batch system, once that is known.
    job: Option<BatchJob>,
}

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoneState {
    /// It waits, and what the batch system says of that.
    Waits(Option<String>),
    /// It runs.
    Runs,
    /// It has ended, and how; or the batch system does not know it.
    Ended(String),
}

impl LoneJob {
    /// Writes the script of a job with the time limit, size and verbatim options of `options`.
    /// Script and output are in `folder`, which the batch system's hosts must share. Without the
    /// folder, a job that starts ends at once.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(
        folder: &Path,
        command: &LoneCommand,
        options: PoolOptions,
    ) -> Result<Self, BatchError> {
        let unknown = || BatchError::Missing { program: options.system.clone() };
        let system = systems::of(&options).ok_or_else(unknown)?;
        let plan = RequestPlan {
            pool: command.name.clone(),
            number: 0,
            nodes: 1,
            mark: new_mark(),
            options: Arc::new(options),
            excluded: Vec::new(),
            folder: folder.to_owned(),
            eyas: PathBuf::new(),
        };
        make_private_folder(folder)?;
        let text = script(&plan, command, &*system);
        write_private(&plan.script(), text.as_bytes(), 0o700)
            .map_err(|why| BatchError::file(&plan.script(), &why))?;
        Ok(LoneJob { system, plan, job: None })
    }

    /// Submits the job. If the batch system does not say what became of that, looks for the job
    /// until the batch system has said three times in a row that it does not have it.
    ///
    /// # Errors
    /// If the batch system refuses the job.
    pub async fn submit(&mut self) -> Result<(), BatchError> {
        let why = match batch_system::submit(&*self.system, &self.plan).await {
            Submission::Accepted(job) => {
                self.job = Some(job);
                return Ok(());
            }
            Submission::Refused(why) => return Err(why),
            Submission::Unclear(why) => why,
        };
        tracing::warn!("{why}: looking for the job {}", self.plan.name());
        let mut absent = 0;
        while absent < MAX_UNKNOWN {
            tokio::time::sleep(self.ask_every()).await;
            match self.system.find(&self.plan).await {
                Ok(Some(job)) => {
                    self.job = Some(job);
                    return Ok(());
                }
                Err(silent) if silent.leaves_open() => absent = 0,
                _ => absent += 1,
            }
        }
        Err(why)
    }

    /// The batch system's id of the job, or its name while the id is not known.
    pub fn id(&self) -> String {
        self.job.as_ref().map_or_else(|| self.plan.name(), |job| job.id.clone())
    }

    /// Time between two questions for the state.
    pub fn ask_every(&self) -> Duration {
        self.system.ask_every()
    }

    /// Asks the batch system for the state.
    ///
    /// # Errors
    /// If the batch system does not answer.
    pub async fn state(&self) -> Result<LoneState, BatchError> {
        let Some(job) = &self.job else { return Ok(LoneState::Waits(None)) };
        let reports = self.system.states(std::slice::from_ref(job)).await?;
        Ok(match reports.into_iter().next().map(|report| report.state) {
            Some(BatchState::Pending(says)) => LoneState::Waits(says),
            Some(BatchState::Running | BatchState::Starting(_)) => LoneState::Runs,
            Some(BatchState::Ended(end)) => LoneState::Ended(end.says),
            Some(BatchState::Unknown) | None => {
                LoneState::Ended("the batch system does not know it".into())
            }
        })
    }

    /// Ends the job, if the batch system has it.
    ///
    /// # Errors
    /// If the batch system refuses, or does not answer.
    pub async fn withdraw(&self) -> Result<(), BatchError> {
        let job = match &self.job {
            Some(job) => Some(job.clone()),
            None => self.system.find(&self.plan).await?,
        };
        match job {
            Some(job) => self.system.withdraw(&[job]).await,
            None => Ok(()),
        }
    }

    /// The exit code of the command, once it has ended.
    pub fn exit_code(&self) -> Option<u8> {
        std::fs::read_to_string(self.plan.folder.join(STATUS)).ok()?.trim().parse().ok()
    }

    /// File with the standard output of the command.
    pub fn stdout(&self) -> PathBuf {
        self.plan.folder.join("stdout")
    }

    /// File with the standard error of the command.
    pub fn stderr(&self) -> PathBuf {
        self.plan.folder.join("stderr")
    }
}

fn script(plan: &RequestPlan, command: &LoneCommand, system: &dyn BatchSystem) -> String {
    let mut script = format!("#!{}\n", shell());
    let mut line = |text: &str| _ = writeln!(script, "{text}");
    system.directives(plan).iter().for_each(|directive| line(directive));
    // Without its folder, the job is no longer wanted.
    line(&format!("test -e {} || exit 1", quoted(&plan.script().display().to_string())));
    let folder = quoted(&command.working_folder.display().to_string());
    line(&format!("cd {folder} || exit 1"));
    for (name, value) in &command.variables {
        line(&format!("export {name}={}", quoted(value)));
    }
    let words = command.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let warning = system.warning();
    match warning {
        None => line(&format!("{words} &")),
        Some(signal) => line(&format!("( trap '' {signal}; exec {words} ) &")),
    }
    line("command=$!");
    line(&format!(
        "trap 'kill -TERM $command 2>/dev/null' TERM INT HUP {}",
        warning.unwrap_or_default()
    ));
    line("wait $command; status=$?");
    line("while kill -0 $command 2>/dev/null; do wait $command; status=$?; done");
    let status = quoted(&plan.folder.join(STATUS).display().to_string());
    line(&format!("echo $status >{status}.new && mv {status}.new {status}"));
    line("exit $status");
    script
}
