//! Kept outputs that tasks of other jobs read. A job borrows them from its submission to its end:
//! they are held for that time, even if the job that made them releases them or is forgotten. A
//! lost one is made again as long as the job that made it keeps it; otherwise the tasks that read
//! it fail.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::outcome::FailureKind;
use eyas_types::{JobId, ObjectId, Outcome, TaskId};

use crate::event::{Effect, SchedulerOrder};
use crate::job::{Job, RetainedOutput};
use crate::jobs::Jobs;
use crate::lineage::MAX_RECOMPUTATIONS;

/// Replicas of a borrowed object whose own job does not keep it.
const REPLICAS: u8 = 1;

impl Jobs {
    /// Whether other jobs may read the object: a job keeps it for its user.
    pub fn lends(&self, object: ObjectId) -> bool {
        let is_promised = |task: &TaskId| {
            let job = self.jobs.get(&task.job);
            job.and_then(|job| job.kept.get(task.index, object))
                .is_some_and(RetainedOutput::is_promised)
        };
        self.lineage.writers(object).iter().any(is_promised)
    }

    /// Whether jobs that have not ended read what this job keeps.
    pub(crate) fn is_lender(&self, job: &Job) -> bool {
        job.kept.keys().any(|(_, object)| self.lineage.is_borrowed(object))
    }

    /// Whether the object is to be held.
    pub(crate) fn is_wanted(&self, object: ObjectId) -> bool {
        let wants = |task: &TaskId| {
            self.jobs.get(&task.job).is_some_and(|job| job.is_wanted(task.index, object))
        };
        self.lineage.is_borrowed(object) || self.lineage.writers(object).iter().any(wants)
    }

    /// Has executors hold what a job reads of other jobs, until the job ends.
    pub(crate) fn borrow(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        for object in job.borrowed().collect::<Vec<_>>() {
            if !self.is_wanted(object) {
                self.effects.push(Effect::Order(SchedulerOrder::Keep {
                    object,
                    replicas: REPLICAS,
                    on: None,
                }));
                self.lineage.hold_again(object, self.executors.is_empty());
            }
            self.lineage.borrow(object, id);
        }
    }

    /// A job has ended: what it read of other jobs need not be held for it.
    pub(crate) fn give_back(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        for object in job.borrowed().collect::<Vec<_>>() {
            if self.lineage.give_back(object, id) {
                self.release_unless_wanted(object);
            }
        }
    }

    /// No executor has the object: waiting tasks of other jobs that read it leave the queue.
    pub(crate) fn hold_borrowers_back(&mut self, object: ObjectId) {
        for id in self.lineage.borrowers(object) {
            for index in
                self.jobs.get(&id).map(|job| job.waiting_borrowers(object)).unwrap_or_default()
            {
                self.withdraw(TaskId { job: id, index });
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.lack(index, [object]);
                }
                self.lineage.want(self.now_us, object);
            }
        }
    }

    /// An executor has the object: tasks of other jobs that waited for it may run.
    pub(crate) fn unblock_borrowers(&mut self, object: ObjectId) {
        for id in self.lineage.borrowers(object) {
            if let Some(job) = self.jobs.get_mut(&id) {
                let ready = job.found(object);
                self.queue_released(id, &ready);
            }
        }
    }

    /// Tasks of other jobs that are blocked because no executor has the object.
    pub(crate) fn blocked_borrowers(&self, object: ObjectId) -> Vec<TaskId> {
        let of_job = |id: JobId| {
            let blocked = self.jobs.get(&id).map(|job| job.lacking(object)).unwrap_or_default();
            blocked.into_iter().map(move |index| TaskId { job: id, index })
        };
        self.lineage.borrowers(object).into_iter().flat_map(of_job).collect()
    }

    /// The object will not be made again: tasks of other jobs that wait for it fail.
    pub(crate) fn fail_borrowers(&mut self, object: ObjectId, blocked: Vec<TaskId>) {
        let Some(source) = self.kept_spec(object).map(|spec| spec.source.clone()) else { return };
        let why = if self.lineage.writers(object).is_empty() {
            "no job that is remembered still keeps it: submit the job that made it again".into()
        } else {
            format!(
                "it was made {MAX_RECOMPUTATIONS} times more: have the job that makes it keep \
                 more replicas"
            )
        };
        for task in blocked {
            let reason = format!("every copy of `{source}`, which it reads, was lost, and {why}");
            self.end(task, 0, String::new(), Outcome::failed(FailureKind::Lost, reason));
        }
    }
}
