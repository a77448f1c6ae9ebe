//! What the core does for callers of the service, call by call. How jobs, tasks, executors and
//! objects look is in `views`, why a task waits is in `explain`, and results come from the log by
//! `results`.

mod explain;
mod failures;
mod kept;
mod pools;
mod results;
mod shown;
mod trace;
mod views;

use eyas_jobs::{self as jobs, Job};
use eyas_types::{JobId, ObjectSpec, TaskId, TaskResult, units};
use eyas_wire::client::InputsPart;

pub(crate) use self::explain::Explainer;
pub(crate) use self::results::ResultReader;
pub(crate) use self::views::Views;
use crate::dispatcher_core::DispatcherCore;
use crate::service::answer::{Answer, FilesNodes, ServiceError, StoppingCluster};

/// An answer has no further tasks once its items and commands have this many bytes; clients ask for
/// the rest.
const MAX_BYTES_SHOWN: usize = 1 << 20;
/// Tasks in one answer; clients ask for the rest.
const MAX_TASKS_SHOWN: u32 = 10_000;
/// Executors in one sentence.
const MAX_NAMES: usize = 5;

impl DispatcherCore {
    // ---- jobs

    /// The last try of a task, if it has ended.
    pub(crate) fn result(&self, task: TaskId) -> Answer<Option<TaskResult>> {
        self.check_task(task)?;
        Ok(ResultReader::in_full().last(self, self.job(task.job)?, task.index)?)
    }

    /// Cancels a task, or all that have not ended; returns how many.
    pub(crate) fn cancel(&mut self, job: JobId, task: Option<u32>) -> Answer<u64> {
        let tasks = match task {
            Some(index) => {
                self.check_task(TaskId { job, index })?;
                index..index + 1
            }
            None => 0..self.job(job)?.tasks.len() as u32,
        };
        let count = self.job(job)?.unfinished(tasks.clone());
        self.tell_jobs(jobs::Event::Cancel { job, tasks });
        // A client may cancel very many tasks, each by itself.
        if task.is_none() && count > 0 {
            let what =
                format!("was cancelled: {} had not ended", units::format_count(count, "task"));
            self.add_job_event(job, "job-cancelled", &what);
        }
        Ok(count)
    }

    /// A part of the objects that a retry of the job would read.
    pub(crate) fn inputs(&self, job: JobId, from: u32) -> Answer<InputsPart> {
        self.check_ended(job)?;
        let job = self.job(job)?;
        let (places, next) = job.objects_to_retry(from, MAX_TASKS_SHOWN as usize);
        let objects =
            places.into_iter().map(|place| (place, job.spec.objects[place as usize].clone()));
        Ok(InputsPart { objects: objects.collect(), next })
    }

    /// Runs tasks of an ended job again; returns how many.
    pub(crate) fn retry(&mut self, job: JobId, current: Vec<(u32, ObjectSpec)>) -> Answer<u64> {
        self.check_ended(job)?;
        let objects = &self.job(job)?.spec.objects;
        let is_of_job = |(place, object): &(u32, ObjectSpec)| {
            objects.get(*place as usize).is_some_and(|before| before.source == object.source)
        };
        if !current.iter().all(is_of_job) {
            return Err(ServiceError::OtherObjects(job));
        }
        if self.job(job)?.is_released() {
            return Err(ServiceError::WasReleased(job));
        }
        let count = self.job(job)?.retryable();
        self.recall(job);
        if count > 0 {
            let what = format!("runs {} again", units::format_count(count, "task"));
            self.add_job_event(job, "job-retried", &what);
        }
        self.tell_jobs(jobs::Event::Retry { job, current });
        Ok(count)
    }

    /// Releases what an ended job keeps; returns how many outputs.
    pub(crate) fn release(&mut self, job: JobId) -> Answer<u64> {
        if !self.job(job)?.has_ended() {
            return Err(ServiceError::StillReads(job));
        }
        let count = self.job(job)?.kept_count();
        self.recall(job);
        self.tell_jobs(jobs::Event::Release { job });
        Ok(count)
    }

    /// Forgets an ended job; returns the number of its tasks.
    pub(crate) fn forget(&mut self, job: JobId) -> Answer<u64> {
        self.check_ended(job)?;
        let count = self.job(job)?.tasks.len() as u64;
        self.add_job_event(job, "job-forgotten", "was forgotten");
        self.tell_jobs(jobs::Event::Forget { job });
        Ok(count)
    }

    /// A job that is in memory, or was loaded for this call.
    pub(crate) fn job(&self, id: JobId) -> Answer<&Job> {
        self.jobs.get(id).or_else(|| self.loaded(id)).ok_or(ServiceError::NoSuchJob(id))
    }

    fn check_ended(&self, id: JobId) -> Answer<()> {
        let job = self.job(id)?;
        // An attached job that has ended is about to be forgotten.
        if job.has_ended() && !job.spec.is_attached {
            Ok(())
        } else {
            Err(ServiceError::StillRunning(id))
        }
    }

    fn check_task(&self, task: TaskId) -> Answer<()> {
        let count = self.job(task.job)?.tasks.len() as u32;
        if task.index < count {
            return Ok(());
        }
        let Some(last) = count.checked_sub(1) else { return Err(ServiceError::NoTasks(task.job)) };
        Err(ServiceError::NoSuchTask { task, last: TaskId { index: last, ..task } })
    }

    // ---- the cluster

    /// Nodes of the file system.
    pub(crate) fn files_nodes(&self) -> Answer<FilesNodes> {
        Ok(FilesNodes {
            nodes: self.executors.files_nodes(None),
            has_files: self.log.has_file_system()?,
            are_returning: self.jobs.awaits_executors(self.clock.now_us()),
        })
    }

    /// Forgets which the cluster's file system is.
    pub(crate) fn forget_files(&self) -> Answer<()> {
        if !self.executors.files_nodes(None).is_empty() {
            return Err(ServiceError::FilesNodesConnected);
        }
        Ok(self.log.forget_file_system()?)
    }

    /// Has an executor stop once its tasks have ended.
    pub(crate) fn stop_executor(&mut self, executor: &str) -> Answer<()> {
        let executor = self.executors.find(executor)?;
        self.tell_jobs(jobs::Event::ExecutorLeaves { executor });
        Ok(())
    }

    /// Begins to stop the cluster.
    pub(crate) fn stop(&mut self) -> StoppingCluster {
        let of_executors = self.executors.iter().map(|(_, executor)| executor.incarnation.clone());
        let processes = of_executors.chain(self.processes.iter().cloned()).collect();
        let executors = self.executors.len() as u64;
        self.begin_to_stop();
        StoppingCluster { executors, processes }
    }
}
