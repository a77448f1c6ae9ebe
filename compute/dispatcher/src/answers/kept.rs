//! Outputs that jobs keep in the cluster for their users.

use std::ops::Range;

use eyas_jobs::{self as jobs, Phase};
use eyas_sched::MAX_HINTS;
use eyas_types::{JobId, ObjectId, OutputSpec, TaskId};
use eyas_wire::client::{KeptOutput, KeptPart};

use crate::dispatcher_core::DispatcherCore;
use crate::service::answer::{Answer, ServiceError};

/// Tasks, and outputs of tasks, in one answer about what a job keeps.
const TOLD_AT_ONCE: usize = 4096;

impl DispatcherCore {
    /// The outputs that these tasks of a job keep for its user, or the first of them, and the
    /// executors that hold them. An output that no executor holds is made again. Executors check
    /// the `doubted` objects that they are said to hold.
    pub(crate) fn kept(
        &mut self,
        id: JobId,
        tasks: Range<u32>,
        doubted: &[ObjectId],
    ) -> Answer<KeptPart> {
        if self.job(id)?.is_released() {
            return Err(ServiceError::WasReleased(id));
        }
        if tasks.end != u32::MAX {
            self.check_task(TaskId { job: id, index: tasks.start })?;
        }
        doubted
            .iter()
            .for_each(|object| self.tell_scheduler(eyas_sched::Event::Doubted { object: *object }));
        let mut part = KeptPart::default();
        let Some(job) = self.jobs.get(id) else { return Ok(part) };
        let tasks = tasks.start..tasks.end.min(job.tasks.len() as u32);
        let mut missing = Vec::new();
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
                    for (object, left) in job.kept_by(index).filter(|(_, left)| left.is_promised())
                    {
                        let holders = self
                            .scheduler
                            .explain_object(object)
                            .map(|view| view.holders)
                            .unwrap_or_default();
                        let holders = holders
                            .iter()
                            .filter_map(|holder| Some(self.executors.get(*holder)?.transfer));
                        let holders: Vec<_> = holders.take(MAX_HINTS).collect();
                        if holders.is_empty() {
                            missing.push(object);
                        }
                        let may_come =
                            self.jobs.may_come_back(object) || self.scheduler.is_moving(object);
                        let is_lost = holders.is_empty()
                            && !may_come
                            && state.recomputed >= jobs::MAX_RECOMPUTATIONS;
                        let (task, object) = (job.task_id(index), left.object.clone());
                        part.outputs.push(KeptOutput { task, object, holders, is_lost });
                    }
                }
            }
        }
        missing.into_iter().for_each(|object| self.tell_jobs(jobs::Event::ObjectWanted { object }));
        Ok(part)
    }
}
