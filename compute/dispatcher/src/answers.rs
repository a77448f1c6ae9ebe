//! What clients ask of the dispatcher, request by request. How jobs, tasks, executors and objects look is in `views`,
//! why a task waits is in `explain`, and results come from the journal by `results`.

mod explain;
mod failures;
mod pools;
mod results;
mod views;

use eyas_jobs::{self as jobs, Job};
use eyas_types::{JobId, ObjectSpec, TaskId};
use eyas_wire::client::{FromClient, InputsPart, ToClient};
use thiserror::Error;

pub(crate) use self::results::ResultReader;
use crate::dispatcher_core::DispatcherCore;
use crate::executors::NoSuchExecutor;
use crate::journal::JournalError;

/// An answer has no further tasks once its items and commands have this many bytes; clients ask for the rest.
const MAX_BYTES_SHOWN: usize = 1 << 20;
/// Tasks in one answer; clients ask for the rest.
const MAX_TASKS_SHOWN: u32 = 10_000;
/// Executors in one sentence.
const MAX_NAMES: usize = 5;

/// Whether the answer tells of jobs, so that it must still be true after a crash.
pub(crate) fn is_of_jobs(request: &FromClient) -> bool {
    use FromClient::{
        Cancel, Explain, Failures, Forget, Inputs, Jobs, Kept, Log, Release, Report, Retry, Tasks, Trace,
    };
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
            | Forget { .. }
            | Inputs { .. }
            | Kept { .. }
            | Trace { .. }
    )
}

/// The job that a request is about, which is read if it is not in memory.
fn read_job_of(request: &FromClient) -> Option<JobId> {
    use FromClient::{
        Cancel, Explain, Failures, Forget, Inputs, Jobs, Kept, Log, Release, Report, Retry, Tasks, Trace,
    };
    match request {
        Jobs { job } => *job,
        Log { task } | Explain { task } => Some(task.job),
        Tasks { job, .. }
        | Failures { job, .. }
        | Report { job }
        | Trace { job, .. }
        | Cancel { job, .. }
        | Retry { job, .. }
        | Inputs { job, .. }
        | Release { job }
        | Forget { job }
        | Kept { job, .. } => Some(*job),
        _ => None,
    }
}

/// Why a request cannot be done.
#[derive(Debug, Error)]
pub(crate) enum AnswerError {
    #[error("there is no job {0}: `eyas job list` shows the jobs that there are")]
    NoSuchJob(JobId),
    #[error("job {0} has no tasks")]
    NoTasks(JobId),
    #[error("there is no task {task}: job {} has tasks {} to {last}", task.job, TaskId { index: 0, ..*task })]
    NoSuchTask { task: TaskId, last: TaskId },
    #[error("job {0} is still running: wait for its end, or cancel it first (`eyas job cancel {0}`)")]
    StillRunning(JobId),
    #[error("job {0} is still running and may read what it keeps: wait for its end")]
    StillReads(JobId),
    #[error("what job {0} kept in the cluster was released: submit the job again")]
    WasReleased(JobId),
    #[error("job {0} has other inputs than the client says: look at it again")]
    OtherObjects(JobId),
    #[error("executors that keep files are connected: stop all of them first, with `eyas executor stop NAME`")]
    FilesNodesConnected,
    #[error("a submission begins with `Submit` and ends with `Commit`")]
    PartOfSubmission,
    #[error("the connection has no attached job: it begins with `Attach`")]
    NotAttached,
    #[error("a watch or a push needs a connection of its own")]
    NotHere,
    #[error(transparent)]
    NoSuchExecutor(#[from] NoSuchExecutor),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl DispatcherCore {
    /// Answers anything but submissions and watches.
    pub(crate) fn answer(&mut self, request: FromClient) -> ToClient {
        self.try_answer(request).unwrap_or_else(|e| ToClient::Refused(e.to_string()))
    }

    fn try_answer(&mut self, request: FromClient) -> Result<ToClient, AnswerError> {
        if let Some(job) = read_job_of(&request) {
            self.load_archived(job)?;
        }
        Ok(match request {
            FromClient::Jobs { job: None } => ToClient::Jobs(self.job_views()),
            FromClient::Jobs { job: Some(job) } => ToClient::Jobs(vec![self.view(self.job(job)?)]),
            FromClient::Tasks { job, from, limit, failed } => {
                ToClient::Tasks(self.tasks(self.job(job)?, from, limit, failed))
            }
            FromClient::Failures { job, tasks } => ToClient::Failures(self.failures(self.job(job)?, &tasks)),
            FromClient::Log { task } => {
                self.check_task(task)?;
                let result = ResultReader::in_full().last(self, self.job(task.job)?, task.index)?;
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
                    return Err(AnswerError::FilesNodesConnected);
                }
                self.journal.forget_file_system()?;
                ToClient::Done(0)
            }
            FromClient::Executors => ToClient::Executors(self.executor_views()),
            FromClient::Addresses => ToClient::Addresses(self.executors.addresses()),
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
            FromClient::Inputs { job, from } => {
                self.check_ended(job)?;
                let job = self.job(job)?;
                let (places, next) = job.objects_to_retry(from, MAX_TASKS_SHOWN as usize);
                let objects = places.into_iter().map(|place| (place, job.spec.objects[place as usize].clone()));
                ToClient::Inputs(InputsPart { objects: objects.collect(), next })
            }
            FromClient::Retry { job, current } => {
                self.check_ended(job)?;
                let objects = &self.job(job)?.spec.objects;
                let is_of_job = |(place, object): &(u32, ObjectSpec)| {
                    objects.get(*place as usize).is_some_and(|before| before.source == object.source)
                };
                if !current.iter().all(is_of_job) {
                    return Err(AnswerError::OtherObjects(job));
                }
                if self.job(job)?.is_released {
                    return Err(AnswerError::WasReleased(job));
                }
                let count = self.job(job)?.retryable();
                self.recall(job)?;
                self.tell_jobs(jobs::Event::Retry { job, current });
                ToClient::Done(count)
            }
            FromClient::Release { job } => {
                if !self.job(job)?.has_ended() {
                    return Err(AnswerError::StillReads(job));
                }
                let count = self.job(job)?.kept_count();
                self.recall(job)?;
                self.tell_jobs(jobs::Event::Release { job });
                ToClient::Done(count)
            }
            FromClient::Forget { job } => {
                self.check_ended(job)?;
                let count = self.job(job)?.tasks.len() as u64;
                self.tell_jobs(jobs::Event::Forget { job });
                ToClient::Done(count)
            }
            FromClient::Kept { job, from, to, doubted } => {
                if self.job(job)?.is_released {
                    return Err(AnswerError::WasReleased(job));
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
            FromClient::StopExecutor { executor } => {
                let executor = self.executors.find(&executor)?;
                self.tell_jobs(jobs::Event::ExecutorLeaves { executor });
                ToClient::Done(1)
            }
            FromClient::Submit { .. }
            | FromClient::Objects(_)
            | FromClient::Chunks(_)
            | FromClient::Items(_)
            | FromClient::Numbers { .. }
            | FromClient::Commit
            | FromClient::Withdraw => return Err(AnswerError::PartOfSubmission),
            FromClient::Templates(_) | FromClient::Unneeded { .. } | FromClient::CancelWaiting | FromClient::Close => {
                return Err(AnswerError::NotAttached);
            }
            FromClient::Watch { .. }
            | FromClient::WatchHere { .. }
            | FromClient::Attach { .. }
            | FromClient::Push(_)
            | FromClient::Keys(_)
            | FromClient::Pools(_) => {
                return Err(AnswerError::NotHere);
            }
        })
    }

    /// A job that is in memory, or was loaded to answer this request.
    fn job(&self, id: JobId) -> Result<&Job, AnswerError> {
        let loaded = || self.loaded.as_ref().filter(|job| job.id == id);
        self.jobs.get(id).or_else(loaded).ok_or(AnswerError::NoSuchJob(id))
    }

    fn check_ended(&self, id: JobId) -> Result<(), AnswerError> {
        let job = self.job(id)?;
        // An attached job that has ended is about to be forgotten.
        if job.has_ended() && !job.spec.is_attached { Ok(()) } else { Err(AnswerError::StillRunning(id)) }
    }

    fn check_task(&self, task: TaskId) -> Result<(), AnswerError> {
        let count = self.job(task.job)?.tasks.len() as u32;
        if task.index < count {
            return Ok(());
        }
        let Some(last) = count.checked_sub(1) else { return Err(AnswerError::NoTasks(task.job)) };
        Err(AnswerError::NoSuchTask { task, last: TaskId { index: last, ..task } })
    }
}
