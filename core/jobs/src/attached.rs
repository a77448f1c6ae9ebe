//! Jobs that are attached to the connection of a client. The client adds tasks while the job runs,
//! and is sent each result at once. Nothing is written to the journal: the job ends with the
//! connection.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::outcome::FailureKind;
use eyas_types::{JobId, Outcome, TaskId};

use crate::event::{Effect, JobsAction, SchedulerOrder};
use crate::job::{FreedTasks, Job};
use crate::jobs::Jobs;
use crate::spec::{Extension, JobSpec};

impl Jobs {
    /// Begins an attached job, without tasks.
    pub(crate) fn attached(&mut self, mut spec: JobSpec) {
        spec.submitted_unix_ms = self.now_us / 1000;
        let id = self.take_id();
        let mut job = Job::new(id, spec);
        job.was_accepted = true;
        self.jobs.insert(id, job);
        self.name_job(id);
    }

    /// Adds tasks to an attached job, and queues those that may run.
    pub(crate) fn extended(&mut self, id: JobId, extension: Extension) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_open) else { return };
        match job.extend(extension) {
            Ok(FreedTasks { ready, hopeless, .. }) => {
                self.borrow(id);
                for index in hopeless {
                    let reason =
                        "it needs an output of a task that did not succeed or did not write it";
                    let outcome = Outcome::failed(FailureKind::Dependency, reason);
                    self.end(TaskId { job: id, index }, 0, String::new(), outcome);
                }
                ready.into_iter().for_each(|index| self.queue(TaskId { job: id, index }));
            }
            Err(why) => self.effects.push(Effect::Action(JobsAction::NotExtended { job: id, why })),
        }
    }

    /// A client needs no outputs of these tasks any more: what no task reads is released.
    pub(crate) fn unneeded(&mut self, id: JobId, tasks: &[u32]) {
        for index in tasks {
            let Some(job) = self.jobs.get_mut(&id).filter(|job| job.spec.is_attached) else {
                return;
            };
            let unneeded = job.note_unneeded(*index);
            unneeded.into_iter().for_each(|object| self.release_unless_wanted(object));
            self.forget_unneeded(id, *index);
        }
    }

    /// Forgets what a task has left once nothing can need it: not even a task that runs again
    /// because its own output was lost. Then the same may be true of tasks whose outputs it has
    /// read.
    fn forget_unneeded(&mut self, id: JobId, index: u32) {
        let mut candidates = vec![index];
        while let Some(index) = candidates.pop() {
            let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_forgettable(index)) else {
                continue;
            };
            let (producers, objects) = job.forget_outputs(index);
            candidates.extend(producers);
            objects
                .into_iter()
                .for_each(|object| self.let_go_of(object, TaskId { job: id, index }));
        }
    }

    /// No more tasks are added to a job.
    pub(crate) fn closed(&mut self, id: JobId) {
        let now_us = self.now_us;
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_open) {
            job.close(now_us);
        }
    }

    /// Sends the gathered results of attached jobs to their clients, and forgets those that are
    /// over.
    pub(crate) fn deliver(&mut self) {
        let is_due = |job: &&Job| {
            job.spec.is_attached && (!job.recorded.pending.is_empty() || job.has_ended())
        };
        for id in self.jobs.values().filter(is_due).map(|job| job.id).collect::<Vec<_>>() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let has_ended = job.has_ended();
            for ends in job.recorded.pending.take() {
                let results = ends.into_iter().map(|end| end.result).collect();
                self.effects.push(Effect::Action(JobsAction::Deliver { job: id, results }));
            }
            if has_ended {
                self.detach(id);
            }
        }
    }

    /// Forgets an attached job that has ended, and releases what executors hold for it.
    fn detach(&mut self, id: JobId) {
        self.give_back(id);
        let Some(job) = self.jobs.remove(&id) else { return };
        self.effects
            .push(Effect::Action(JobsAction::Detached { summary: Box::new(job.summary()) }));
        self.effects.push(Effect::Order(SchedulerOrder::ForgetJob { job: id }));
        self.effects.push(Effect::Action(JobsAction::Forget { job: id }));
        self.watched.remove(&id);
        job.kept
            .keys()
            .for_each(|(index, object)| self.let_go_of(object, TaskId { job: id, index }));
    }
}
