//! Kept outputs that tasks of other jobs read. A job borrows them from its submission to its end:
//! they are held for that time, even if the job that made them releases them or is forgotten. A
//! lost one is made again as long as the job that made it keeps it; otherwise the tasks that read
//! it fail.

use alloc::format;
use alloc::vec::Vec;

use eyas_types::outcome::FailureKind;
use eyas_types::{JobId, ObjectId, TaskId};

use super::{Lineage, MAX_RECOMPUTATIONS, is_promised};
use crate::event::SchedulerOrder;
use crate::job::Job;
use crate::job_table::JobTable;
use crate::queueing::ReadyTasks;
use crate::step::JobsStep;
use crate::task_ending::TaskEnding;

/// Replicas of a borrowed object whose own job does not keep it.
const REPLICAS: u8 = 1;

impl Lineage {
    /// Whether other jobs may read the object: a job keeps it for its user.
    pub fn lends(&self, object: ObjectId, jobs: &JobTable) -> bool {
        self.objects.writers(object).iter().any(|task| is_promised(*task, object, jobs))
    }

    /// Whether jobs that have not ended read what this job keeps.
    pub fn is_lender(&self, job: &Job) -> bool {
        job.kept.keys().any(|(_, object)| self.objects.is_borrowed(object))
    }

    /// Has executors hold what a job reads of other jobs, until the job ends. If no executor is
    /// here, executors first have time to come back with it.
    pub fn borrow(&mut self, id: JobId, is_early: bool, jobs: &JobTable, step: &mut JobsStep) {
        let Some(job) = jobs.get(id) else { return };
        for object in job.borrowed() {
            if !self.is_wanted(object, jobs) {
                step.order(SchedulerOrder::Keep { object, replicas: REPLICAS, on: None });
                self.objects.hold(object);
                if is_early && self.missing.awaits_return() {
                    self.missing.await_return(object);
                }
            }
            self.objects.borrow(object, id);
        }
    }

    /// A job has ended: what it read of other jobs need not be held for it.
    pub fn end_borrowing(&mut self, id: JobId, jobs: &JobTable, step: &mut JobsStep) {
        let Some(job) = jobs.get(id) else { return };
        for object in job.borrowed() {
            let had = self.objects.end_borrowing(object, id);
            self.forget_unless_used(object);
            if had {
                self.release_unless_wanted(object, jobs, step);
            }
        }
    }

    /// No executor has the object: waiting tasks of other jobs that read it are blocked. Adds them
    /// to those that leave the queue.
    pub(super) fn hold_borrowers_back(
        &mut self,
        object: ObjectId,
        now_us: u64,
        jobs: &mut JobTable,
        withdrawn: &mut Vec<TaskId>,
    ) {
        for id in self.objects.borrowers(object) {
            let Some(job) = jobs.get_mut(id) else { continue };
            for index in job.waiting_borrowers(object) {
                withdrawn.push(job.task_id(index));
                job.lack(index, [object]);
                self.missing.want(now_us, object);
            }
        }
    }

    /// An executor has the object. Returns tasks of other jobs that waited for it.
    pub(super) fn unblock_borrowers(
        &self,
        object: ObjectId,
        jobs: &mut JobTable,
    ) -> Vec<ReadyTasks> {
        let mut ready = Vec::new();
        for id in self.objects.borrowers(object) {
            if let Some(job) = jobs.get_mut(id) {
                ready.push(ReadyTasks { job: id, tasks: job.found(object) });
            }
        }
        ready
    }

    /// Tasks of other jobs that are blocked because no executor has the object.
    pub(super) fn blocked_borrowers(&self, object: ObjectId, jobs: &JobTable) -> Vec<TaskId> {
        let of_job = |id: JobId| {
            let blocked = jobs.get(id).map(|job| job.lacking(object)).unwrap_or_default();
            blocked.into_iter().map(move |index| TaskId { job: id, index })
        };
        self.objects.borrowers(object).flat_map(of_job).collect()
    }

    /// The object will not be made again. Returns the ends of tasks of other jobs that wait for it.
    pub(super) fn fail_borrowers(
        &self,
        object: ObjectId,
        blocked: Vec<TaskId>,
        jobs: &JobTable,
    ) -> Vec<TaskEnding> {
        let Some(source) = self.kept_spec(object, jobs).map(|spec| &spec.source) else {
            return Vec::new();
        };
        let why = if self.objects.writers(object).is_empty() {
            "no job that is remembered still keeps it: submit the job that made it again".into()
        } else {
            format!(
                "it was made {MAX_RECOMPUTATIONS} times more: have the job that makes it keep \
                 more replicas"
            )
        };
        let reason = format!("every copy of `{source}`, which it reads, was lost, and {why}");
        let failed = |task| TaskEnding::failed(task, FailureKind::Lost, reason.clone());
        blocked.into_iter().map(failed).collect()
    }
}
