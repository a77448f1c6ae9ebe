//! Answers to callers of the service. How jobs, tasks, executors and objects look is in `views`,
//! why a task waits is in `explain`, results come from the log by `results`, and what a caller may
//! change is in `changes`. Everything here takes what it reads, and changes nothing.

pub(crate) mod changes;
mod explain;
mod failures;
pub(crate) mod graph;
pub(crate) mod kept;
mod pools;
pub(crate) mod printed;
mod results;
mod shown;
mod stuck;
mod trace;
mod views;

use eyas_jobs::Job;

pub(crate) use self::explain::Explainer;
pub(crate) use self::results::ResultReader;
pub(crate) use self::views::Views;
use crate::service::answer::{Answer, ServiceError};

/// An answer has no further tasks once its items and commands have this many bytes; clients ask for
/// the rest.
const MAX_BYTES_SHOWN: usize = 1 << 20;
/// Tasks in one answer; clients ask for the rest.
const MAX_TASKS_SHOWN: u32 = 10_000;
/// Executors in one sentence.
const MAX_NAMES: usize = 5;

fn check_ended(job: &Job) -> Answer<()> {
    // An attached job that has ended is about to be forgotten.
    if job.has_ended() && !job.spec.is_attached {
        Ok(())
    } else {
        Err(ServiceError::StillRunning(job.id))
    }
}

fn check_task(job: &Job, index: u32) -> Answer<()> {
    let count = job.tasks.len() as u32;
    if index < count {
        return Ok(());
    }
    let Some(last) = count.checked_sub(1) else { return Err(ServiceError::NoTasks(job.id)) };
    Err(ServiceError::NoSuchTask { task: job.task_id(index), last: job.task_id(last) })
}
