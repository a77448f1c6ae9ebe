//! What clients ask of the dispatcher, request by request. How jobs, tasks, executors and objects look is in `views`, why
//! a task waits is in `explain`, and results come from the journal by `results`.

mod explain;
mod failures;
mod results;
mod views;

use eyas_jobs::{self as jobs, Job};
use eyas_types::{JobId, TaskId};
use eyas_wire::client::{FromClient, ToClient};

pub(crate) use self::results::ResultReader;
use crate::dispatcher_core::DispatcherCore;

/// Tasks in one answer.
const MAX_TASKS_SHOWN: u32 = 10_000;
/// Executors in one sentence.
const MAX_NAMES: usize = 5;

/// Whether the answer tells of jobs, so that it must still be true after a crash.
pub(crate) fn is_of_jobs(request: &FromClient) -> bool {
    use FromClient::{Cancel, Explain, Failures, Jobs, Kept, Log, Release, Report, Retry, Tasks, Trace};
    matches!(
        request,
        Jobs { .. }
            | Tasks { .. }
            | Failures { .. }
            | Log { .. }
            | Explain { .. }
            | Report { .. }
            | Cancel { .. }
            | Retry { .. }
            | Release { .. }
            | Kept { .. }
            | Trace { .. }
    )
}

impl DispatcherCore {
    /// Answers anything but submissions and watches.
    pub(crate) fn answer(&mut self, request: FromClient) -> ToClient {
        match self.try_answer(request) {
            Ok(answer) => answer,
            Err(why) => ToClient::Refused(why),
        }
    }

    fn try_answer(&mut self, request: FromClient) -> Result<ToClient, String> {
        Ok(match request {
            FromClient::Jobs { job: None } => ToClient::Jobs(self.jobs.all().map(|job| self.view(job)).collect()),
            FromClient::Jobs { job: Some(job) } => ToClient::Jobs(vec![self.view(self.job(job)?)]),
            FromClient::Tasks { job, from, limit, failed } => {
                ToClient::Tasks(self.tasks(self.job(job)?, from, limit, failed))
            }
            FromClient::Failures { job, tasks } => ToClient::Failures(self.failures(self.job(job)?, &tasks)),
            FromClient::Log { task } => {
                self.check_task(task)?;
                let result = ResultReader::default().last(self, self.job(task.job)?, task.index)?;
                ToClient::Log(result.map(Box::new))
            }
            FromClient::Explain { task } => ToClient::Explained(Box::new(self.explain(task)?)),
            FromClient::FilesNodes => ToClient::FilesNodes {
                nodes: self.executors.files_nodes(None),
                has_files: self.journal.has_file_system()?,
                are_returning: self.jobs.awaits_executors(self.clock.now_us()),
            },
            FromClient::ForgetFiles => {
                if !self.executors.files_nodes(None).is_empty() {
                    return Err("executors that keep files are there: stop them all before, \
                                with `eyas executor stop NAME`"
                        .into());
                }
                self.journal.forget_file_system()?;
                ToClient::Done(0)
            }
            FromClient::Executors => ToClient::Executors(self.executor_views()),
            FromClient::Catalog { object, source } => ToClient::Objects(self.objects(object, &source)),
            FromClient::Report { job } => ToClient::Report(Box::new(self.report(self.job(job)?))),
            FromClient::Trace { job, from } => ToClient::Trace(self.trace(self.job(job)?, from)?),
            FromClient::Cancel { job, task } => {
                let tasks = match task {
                    Some(index) => {
                        self.check_task(TaskId { job, index })?;
                        index..index + 1
                    }
                    None => 0..self.job(job)?.tasks.len() as u32,
                };
                let count = self.job(job)?.unfinished(tasks.clone());
                self.tell_jobs(jobs::Event::Cancel { job, tasks });
                ToClient::Done(count)
            }
            FromClient::Retry { job } => {
                if !self.job(job)?.has_ended() {
                    return Err(format!("job {job} is still running: wait for its end, or cancel it first"));
                }
                if self.job(job)?.is_released {
                    return Err(format!("what job {job} kept in the cluster was released: submit it again"));
                }
                let count = self.job(job)?.retryable();
                self.tell_jobs(jobs::Event::Retry { job });
                ToClient::Done(count)
            }
            FromClient::Release { job } => {
                if !self.job(job)?.has_ended() {
                    return Err(format!("job {job} is still running and may read what it keeps: wait for its end"));
                }
                let count = self.job(job)?.kept_count();
                self.tell_jobs(jobs::Event::Release { job });
                ToClient::Done(count)
            }
            FromClient::Kept { job, from, to, doubted } => {
                if self.job(job)?.is_released {
                    return Err(format!("what job {job} kept in the cluster was released: submit it again"));
                }
                if to != u32::MAX {
                    self.check_task(TaskId { job, index: from })?;
                }
                ToClient::Kept(self.kept_part(job, from..to, &doubted))
            }
            FromClient::Stop => {
                let of_executors = self.executors.iter().map(|(_, executor)| executor.incarnation.clone());
                let processes = of_executors.chain(self.processes.iter().cloned()).collect();
                let executors = self.executors.len() as u64;
                self.begin_to_stop();
                ToClient::Stopping { executors, processes }
            }
            FromClient::StopExecutor { executor } => ToClient::Done(self.stop_executor(&executor)?),
            FromClient::Submit { .. }
            | FromClient::Objects(_)
            | FromClient::Items(_)
            | FromClient::Numbers { .. }
            | FromClient::Commit
            | FromClient::Withdraw => {
                return Err("a submission begins with `Submit` and ends with `Commit`".into());
            }
            FromClient::Watch { .. } | FromClient::Push(_) | FromClient::Keys(_) => {
                return Err("a watch or a push is for a connection of its own".into());
            }
        })
    }

    fn job(&self, id: JobId) -> Result<&Job, String> {
        self.jobs.get(id).ok_or_else(|| format!("there is no job {id}: `eyas job list` shows those there are"))
    }

    fn check_task(&self, task: TaskId) -> Result<(), String> {
        match self.job(task.job)?.tasks.len() {
            0 => Err(format!("job {} has no tasks", task.job)),
            count if task.index as usize >= count => Err(format!(
                "there is no task {task}: job {} has tasks {} to {}",
                task.job,
                TaskId { index: 0, ..task },
                TaskId { index: count as u32 - 1, ..task }
            )),
            _ => Ok(()),
        }
    }

    fn stop_executor(&mut self, executor: &str) -> Result<u64, String> {
        let executor = self.executors.find(executor)?;
        self.tell_jobs(jobs::Event::ExecutorLeaves { executor });
        Ok(1)
    }
}
