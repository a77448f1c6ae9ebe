//! Kept outputs: which tasks wrote them, which are missing, and which tasks run again to make them
//! again.
//!
//! A kept object has a lineage: the task that wrote it, and the objects that this task read. A task
//! is blocked while no executor holds one of its inputs. A lost object that a task or the user
//! still needs is recomputed. After a restart, executors first have time to come back with the
//! object.
//!
//! For example task 1 writes x, task 2 reads x and writes y, and task 3 reads y. When the executor
//! that held both is lost, task 3 is blocked, and task 2 is to make y again. For that it needs x:
//! task 2 is blocked, too, and task 1 runs first. If task 3 has succeeded, and no user was promised
//! y, no task runs again.
//!
//! This file has which objects are held, and for how long; `lost.rs` what follows when none is, and
//! `borrowing.rs` what jobs read of other jobs. All of it returns the tasks that may run or that
//! end: others queue them and end them.

mod borrowing;
mod lost;
mod missing_objects;
mod objects;

use alloc::vec;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, JobId, ObjectId, ObjectSpec, TaskId};

pub use self::lost::MAX_RECOMPUTATIONS;
pub(crate) use self::lost::{InputCheck, MissingInputVerdict};
use self::missing_objects::MissingObjects;
use self::objects::LineageObjects;
use crate::event::SchedulerOrder;
use crate::job::{Job, Phase, RetainedOutput};
use crate::job_table::JobTable;
use crate::queueing::ReadyTasks;
use crate::step::JobsStep;

/// After a start, executors have this long to come back with what they hold before it counts as
/// lost, microseconds; so have those that are lost themselves, with what no task waits for.
pub const RETURN_GRACE_US: u64 = 15_000_000;
/// Executors that could not hold an object are asked again after this time, microseconds.
const HOLD_AGAIN_US: u64 = 30_000_000;

/// All kept objects, and which of them are missing.
#[derive(Debug)]
pub(crate) struct Lineage {
    objects: LineageObjects,
    missing: MissingObjects,
    /// When executors were last asked again to hold objects for which they had no room.
    held_again_us: u64,
}

impl Lineage {
    /// No objects. Executors of an earlier dispatcher may come back with theirs from `began_us` on.
    pub fn new(began_us: u64) -> Self {
        Lineage {
            objects: LineageObjects::default(),
            missing: MissingObjects::new(began_us),
            held_again_us: began_us,
        }
    }

    // ---- what is known of objects

    /// All kept objects with their specs.
    pub fn kept_objects<'a>(
        &'a self,
        jobs: &'a JobTable,
    ) -> impl Iterator<Item = (ObjectId, &'a ObjectSpec)> {
        self.objects.ids().filter_map(|object| Some((object, self.kept_spec(object, jobs)?)))
    }

    /// A kept object's spec.
    pub fn kept_spec<'a>(&self, object: ObjectId, jobs: &'a JobTable) -> Option<&'a ObjectSpec> {
        let left = |task: &TaskId| retained(*task, object, jobs);
        if let Some(left) = self.objects.writers(object).first().and_then(left) {
            return Some(&left.object);
        }
        let borrower = self.objects.borrowers(object).next();
        borrower.and_then(|job| jobs.get(job)?.borrowed_spec(object))
    }

    /// Whether an executor that stays holds the kept object.
    pub fn is_held(&self, object: ObjectId) -> bool {
        self.objects.is_held(object)
    }

    /// Whether an executor that was there before a restart may come back with the object.
    pub fn is_unseen(&self, object: ObjectId) -> bool {
        self.missing.is_unseen(object)
    }

    /// Whether executors may still come back with what they hold.
    pub fn awaits_executors(&self, now_us: u64) -> bool {
        self.missing.awaits_executors(now_us)
    }

    /// Whether the object is to be held.
    fn is_wanted(&self, object: ObjectId, jobs: &JobTable) -> bool {
        let wants =
            |task: &TaskId| jobs.get(task.job).is_some_and(|job| job.is_wanted(task.index, object));
        self.objects.is_borrowed(object) || self.objects.writers(object).iter().any(wants)
    }

    /// When something is due, microseconds since 1970.
    pub fn next_timeout(&self) -> Option<u64> {
        let hold = (!self.objects.are_none()).then_some(self.held_again_us + HOLD_AGAIN_US);
        self.missing.next_timeout().into_iter().chain(hold).min()
    }

    /// Asks executors again, from time to time, that had no room for objects.
    pub fn hold_again(&mut self, step: &mut JobsStep) {
        if !self.objects.are_none() && step.now_us >= self.held_again_us + HOLD_AGAIN_US {
            self.held_again_us = step.now_us;
            step.order(SchedulerOrder::HoldAgain);
        }
    }

    // ---- what tasks have left

    /// Takes up an object that a task has left in the cluster, on `executor` if it was there just
    /// now. Returns tasks that waited for it.
    pub fn take_up(
        &mut self,
        task: TaskId,
        (object, replicas): (ObjectId, u8),
        executor: Option<ExecutorId>,
        jobs: &mut JobTable,
        step: &mut JobsStep,
    ) -> Vec<ReadyTasks> {
        // What a task wrote is in its executor's store before its end is told.
        let is_held = self.objects.wrote(object, task, executor.is_some());
        if !is_held {
            self.missing.await_return(object);
        }
        step.order(SchedulerOrder::Keep { object, replicas, on: executor });
        self.release_unless_wanted(object, jobs, step);
        if is_held { self.unblock_borrowers(object, jobs) } else { Vec::new() }
    }

    /// Lets go of an object that a task had left.
    pub fn let_go_of(
        &mut self,
        object: ObjectId,
        task: TaskId,
        jobs: &JobTable,
        step: &mut JobsStep,
    ) {
        let Some(is_nowhere) = self.objects.let_go(object, task) else { return };
        if is_nowhere {
            // Tasks of other jobs that wait for it may wait in vain.
            self.missing.want(step.now_us, object);
        }
        self.forget_unless_used(object);
        self.release_unless_wanted(object, jobs, step);
    }

    /// Lets go of all that a job, which was forgotten or has left memory, had left.
    pub fn let_go_of_all(&mut self, of: &Job, jobs: &JobTable, step: &mut JobsStep) {
        for (index, object) in of.kept.keys() {
            self.let_go_of(object, of.task_id(index), jobs, step);
        }
    }

    /// A task has succeeded: releases the objects of which it was the last reader.
    pub fn let_go_of_read(&self, task: TaskId, jobs: &JobTable, step: &mut JobsStep) {
        let Some(job) = jobs.get(task.job) else { return };
        if job.tasks.phase(task.index) == Phase::Succeeded {
            for (_, object) in job.inputs_until_read(task.index) {
                self.release_unless_wanted(object, jobs, step);
            }
        }
    }

    fn release_unless_wanted(&self, object: ObjectId, jobs: &JobTable, step: &mut JobsStep) {
        if !self.is_wanted(object, jobs) {
            step.order(SchedulerOrder::Release { object });
        }
    }

    /// Forgets an object that is the output of no task, and that no job reads.
    fn forget_unless_used(&mut self, object: ObjectId) {
        if self.objects.forget_unless_used(object) {
            self.missing.forget(object);
        }
    }

    /// A client needs no outputs of these tasks of its attached job any more: what no task reads is
    /// released.
    pub fn unneeded(&mut self, id: JobId, tasks: &[u32], jobs: &mut JobTable, step: &mut JobsStep) {
        for index in tasks {
            let Some(job) = jobs.attached_mut(id) else { return };
            for object in job.note_unneeded(*index) {
                self.release_unless_wanted(object, jobs, step);
            }
            self.forget_unneeded(id, *index, jobs, step);
        }
    }

    /// Forgets what a task has left once nothing can need it: not even a task that runs again
    /// because its own output was lost. Then the same may be true of tasks whose outputs it has
    /// read.
    fn forget_unneeded(&mut self, id: JobId, index: u32, jobs: &mut JobTable, step: &mut JobsStep) {
        let mut candidates = vec![index];
        while let Some(index) = candidates.pop() {
            let Some(job) = jobs.get_mut(id).filter(|job| job.is_forgettable(index)) else {
                continue;
            };
            let (producers, objects) = job.forget_outputs(index);
            candidates.extend(producers);
            for object in objects {
                self.let_go_of(object, TaskId { job: id, index }, jobs, step);
            }
        }
    }
}

/// What a task has left, if it is this object.
fn retained(task: TaskId, object: ObjectId, jobs: &JobTable) -> Option<&RetainedOutput> {
    jobs.get(task.job)?.kept.get(task.index, object)
}

/// Whether a task has left the object for its user, who can have it only from here.
fn is_promised(task: TaskId, object: ObjectId, jobs: &JobTable) -> bool {
    retained(task, object, jobs).is_some_and(RetainedOutput::is_promised)
}
