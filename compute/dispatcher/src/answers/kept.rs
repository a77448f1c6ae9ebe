//! Outputs that jobs keep in the cluster for their users.

use std::ops::Range;

use eyas_jobs::{self as jobs, Job, Phase};
use eyas_sched::MAX_HINTS;
use eyas_types::{JobId, ObjectId, OutputSpec};
use eyas_wire::client::{KeptOutput, KeptPart};

use super::{Views, check_task};
use crate::service::answer::{Answer, ServiceError};

/// Tasks, and outputs of tasks, in one answer about what a job keeps.
const TOLD_AT_ONCE: usize = 4096;

/// Whether a job keeps outputs of these tasks, which the caller asks for.
pub(crate) fn check(job: &Job, tasks: &Range<u32>) -> Answer<()> {
    if job.is_released() {
        return Err(ServiceError::WasReleased(job.id));
    }
    if tasks.end != u32::MAX { check_task(job, tasks.start) } else { Ok(()) }
}

/// The outputs that these tasks of a job keep for its user, or the first of them, and the executors
/// that hold them. Also the outputs that no executor holds.
pub(crate) fn part(views: Views, id: JobId, tasks: Range<u32>) -> (KeptPart, Vec<ObjectId>) {
    let (mut part, mut missing) = (KeptPart::default(), Vec::new());
    let Some(job) = views.jobs.get(id) else { return (part, missing) };
    let tasks = tasks.start..tasks.end.min(job.tasks.len() as u32);
    for (place, index) in tasks.enumerate() {
        if place >= TOLD_AT_ONCE || part.outputs.len() >= TOLD_AT_ONCE {
            part.next = Some(index);
            break;
        }
        let state = job.tasks[index as usize];
        let promises = |output: &OutputSpec| {
            output.replicas > 0 && output.destination.is_none() && !output.until_read
        };
        match state.phase {
            _ if !job.template_at(index).outputs.iter().any(promises) => {}
            Phase::Blocked | Phase::Waiting | Phase::Assigned => part.unfinished += 1,
            Phase::Failed | Phase::Cancelled => part.unsuccessful += 1,
            Phase::Succeeded => {
                for (object, left) in job.kept_by(index).filter(|(_, left)| left.is_promised()) {
                    let holders = views
                        .scheduler
                        .explain_object(object)
                        .map(|view| view.holders)
                        .unwrap_or_default();
                    let holders = holders
                        .iter()
                        .filter_map(|holder| Some(views.executors.get(*holder)?.transfer));
                    let holders: Vec<_> = holders.take(MAX_HINTS).collect();
                    if holders.is_empty() {
                        missing.push(object);
                    }
                    let may_come =
                        views.jobs.may_come_back(object) || views.scheduler.is_moving(object);
                    let is_lost = holders.is_empty()
                        && !may_come
                        && state.recomputed >= jobs::MAX_RECOMPUTATIONS;
                    let (task, object) = (job.task_id(index), left.object.clone());
                    part.outputs.push(KeptOutput { task, object, holders, is_lost });
                }
            }
        }
    }
    (part, missing)
}
