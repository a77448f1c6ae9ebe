//! Changes of a job that callers ask for: whether the job can be changed so, and what follows.

use eyas_jobs::{self as jobs, Job};
use eyas_types::{ObjectSpec, units};
use eyas_wire::client::InputsPart;

use super::{MAX_TASKS_SHOWN, check_ended, check_task};
use crate::events::NewEvent;
use crate::service::answer::{Answer, ServiceError};

/// A change that can be made.
pub(crate) struct JobChange {
    /// How many tasks or outputs it is about, which is the answer.
    pub count: u64,
    /// What the decider of jobs is told.
    pub event: jobs::Event,
    /// Whether the job must be in memory for that.
    pub needs_job: bool,
    /// What is told of it.
    pub told: Option<NewEvent>,
}

/// Cancels a task, or all that have not ended; answers how many.
pub(crate) fn cancel(job: &Job, task: Option<u32>) -> Answer<JobChange> {
    let tasks = match task {
        Some(index) => {
            check_task(job, index)?;
            index..index + 1
        }
        None => 0..job.tasks.len() as u32,
    };
    let count = job.unfinished(tasks.clone());
    // A client may cancel very many tasks, each by itself.
    let told = (task.is_none() && count > 0).then(|| {
        let count = units::format_count(count, "task");
        event_of(job, "job-cancelled", &format!("was cancelled: {count} had not ended"))
    });
    let event = jobs::Event::Cancel { job: job.id, tasks };
    Ok(JobChange { count, event, needs_job: false, told })
}

/// A part of the objects that a retry of the job would read.
pub(crate) fn inputs(job: &Job, from: u32) -> Answer<InputsPart> {
    check_ended(job)?;
    let (places, next) = job.objects_to_retry(from, MAX_TASKS_SHOWN as usize);
    let objects = places.into_iter().map(|place| (place, job.spec.objects[place as usize].clone()));
    Ok(InputsPart { objects: objects.collect(), next })
}

/// Runs tasks of an ended job again; answers how many.
pub(crate) fn retry(job: &Job, current: Vec<(u32, ObjectSpec)>) -> Answer<JobChange> {
    check_ended(job)?;
    let objects = &job.spec.objects;
    let is_of_job = |(place, object): &(u32, ObjectSpec)| {
        objects.get(*place as usize).is_some_and(|before| before.source == object.source)
    };
    if !current.iter().all(is_of_job) {
        return Err(ServiceError::OtherObjects(job.id));
    }
    if job.is_released() {
        return Err(ServiceError::WasReleased(job.id));
    }
    let count = job.retryable();
    let told = (count > 0).then(|| {
        let what = format!("runs {} again", units::format_count(count, "task"));
        event_of(job, "job-retried", &what)
    });
    let event = jobs::Event::Retry { job: job.id, current };
    Ok(JobChange { count, event, needs_job: true, told })
}

/// Releases what an ended job keeps; answers how many outputs.
pub(crate) fn release(job: &Job) -> Answer<JobChange> {
    if !job.has_ended() {
        return Err(ServiceError::StillReads(job.id));
    }
    let (count, event) = (job.kept_count(), jobs::Event::Release { job: job.id });
    Ok(JobChange { count, event, needs_job: true, told: None })
}

/// Forgets an ended job; answers the number of its tasks.
pub(crate) fn forget(job: &Job) -> Answer<JobChange> {
    check_ended(job)?;
    let told = Some(event_of(job, "job-forgotten", "was forgotten"));
    let (count, event) = (job.tasks.len() as u64, jobs::Event::Forget { job: job.id });
    Ok(JobChange { count, event, needs_job: false, told })
}

fn event_of(job: &Job, kind: &'static str, what: &str) -> NewEvent {
    NewEvent::of_job(job.id, &job.spec.name, kind, what)
}
