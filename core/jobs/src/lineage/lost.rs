//! Kept objects that are lost: which tasks wait for them, which tasks make them again, and which
//! tasks fail because of them.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use eyas_types::outcome::FailureKind;
use eyas_types::{ObjectId, ObjectSpec, TaskId};

use super::{Lineage, RETURN_GRACE_US, is_promised};
use crate::event::SchedulerOrder;
use crate::job::{Job, Phase};
use crate::job_table::JobTable;
use crate::queueing::ReadyTasks;
use crate::step::JobsStep;
use crate::task_ending::TaskEnding;

/// A task whose kept output was lost runs again up to this many times; then the tasks that need the
/// output fail, and it is not made again. So it runs up to six times for its output.
pub const MAX_RECOMPUTATIONS: u16 = 5;
/// A task that cannot get a kept object, although an executor reported it, tries again up to this
/// many times.
const MAX_STARVED: u8 = 100;
/// Pause before each of these attempts, microseconds. So a task gives up after 100 s at the
/// soonest.
const STARVED_PAUSE_US: u64 = 1_000_000;

/// Whether a task has all its inputs.
#[derive(Debug)]
pub(crate) enum InputCheck {
    /// Executors hold those that only they have.
    Held,
    /// It is blocked until they do.
    Awaited,
    /// They will not be made again.
    Never(Box<TaskEnding>),
}

/// What becomes of a task that could not get an input.
#[derive(Debug)]
pub(crate) enum MissingInputVerdict {
    /// It waits.
    Waits,
    /// The input will not be made again.
    Never(Box<TaskEnding>),
    /// It has tried too often.
    GivesUp,
}

/// What becomes of a lost object.
#[derive(Debug, Default)]
pub(crate) struct Recomputation {
    /// Tasks that run again to make it.
    pub again: Vec<TaskId>,
    /// Tasks that wait for it in vain.
    pub ends: Vec<TaskEnding>,
}

/// Objects that were looked for.
#[derive(Debug, Default)]
pub(crate) struct LookupResult {
    /// Tasks that waited for those that an executor has.
    pub ready: Vec<ReadyTasks>,
    /// Those that no executor has that stays.
    pub nowhere: Vec<ObjectId>,
}

impl Lineage {
    // ---- inputs of a task

    /// Finds out whether executors hold the inputs of a waiting task, which is blocked if not.
    pub fn check_inputs(&mut self, task: TaskId, now_us: u64, jobs: &mut JobTable) -> InputCheck {
        let Some(job) = jobs.get_mut(task.job) else { return InputCheck::Held };
        if let Some(end) = left_out(job, task) {
            return InputCheck::Never(Box::new(end));
        }
        let mut missing = job.kept_inputs(task.index);
        missing.retain(|(_, object)| !self.is_held(*object));
        let mut borrowed = job.borrowed_inputs(task.index);
        borrowed.retain(|object| !self.is_held(*object));
        if missing.is_empty() && borrowed.is_empty() {
            return InputCheck::Held;
        }
        let has_failed = |producer: u32| job.tasks.phase(producer).has_ended_unsuccessfully();
        if let Some((producer, _)) = missing.iter().find(|(producer, _)| has_failed(*producer)) {
            let producer = job.task_id(*producer);
            let reason = format!(
                "it needs an output of task {producer}, which was lost and was not made again"
            );
            let end = TaskEnding::failed(task, FailureKind::Dependency, reason);
            return InputCheck::Never(Box::new(end));
        }
        block(job, task.index, &missing, &borrowed);
        for object in missing.into_iter().map(|(_, object)| object).chain(borrowed) {
            self.missing.want(now_us, object);
        }
        InputCheck::Awaited
    }

    /// An assigned task could not get an input that exists only in the cluster, and waits again.
    pub fn starved(
        &mut self,
        task: TaskId,
        jobs: &mut JobTable,
        step: &mut JobsStep,
    ) -> MissingInputVerdict {
        let Some(job) = jobs.get_mut(task.job) else { return MissingInputVerdict::Waits };
        let (inputs, borrowed) = (job.kept_inputs(task.index), job.borrowed_inputs(task.index));
        let objects: Vec<_> =
            inputs.iter().map(|(_, object)| *object).chain(borrowed.iter().copied()).collect();
        let is_complete = left_out(job, task).is_none();
        if !is_complete || !objects.iter().all(|object| self.is_held(*object)) {
            job.unassigned(task.index);
            return match self.check_inputs(task, step.now_us, jobs) {
                InputCheck::Never(end) => MissingInputVerdict::Never(end),
                InputCheck::Held | InputCheck::Awaited => MissingInputVerdict::Waits,
            };
        }
        let state = job.tasks.get_mut(task.index);
        state.starved += 1;
        if state.starved > MAX_STARVED || objects.is_empty() {
            return MissingInputVerdict::GivesUp;
        }
        // An executor reports the object: it verifies that, and the task tries again after a pause.
        job.unassigned(task.index);
        block(job, task.index, &inputs, &borrowed);
        for object in objects {
            self.missing.doubt(object, step.now_us + STARVED_PAUSE_US);
            step.order(SchedulerOrder::Verify { object });
        }
        MissingInputVerdict::Waits
    }

    /// A task that had succeeded runs again: its remaining inputs are held until it has read them.
    pub fn hold_inputs_again(&self, task: TaskId, jobs: &JobTable, step: &mut JobsStep) {
        let Some(job) = jobs.get(task.job) else { return };
        for (producer, object) in job.inputs_until_read(task.index) {
            if let Some(left) = job.kept.get(producer, object) {
                let replicas = left.replicas;
                step.order(SchedulerOrder::Keep { object, replicas, on: None });
            }
        }
    }

    // ---- what is told of an object

    /// A client wants an object that no executor has.
    pub fn want(&mut self, object: ObjectId, now_us: u64) {
        self.missing.want(now_us, object);
    }

    /// No executor that stays holds the object.
    pub fn object_lost(&mut self, object: ObjectId) {
        if self.objects.note_held(object, false) {
            self.missing.lost(object);
        }
    }

    /// An executor holds the object again. Returns the tasks that waited for it.
    pub fn object_found(&mut self, object: ObjectId, jobs: &mut JobTable) -> Vec<ReadyTasks> {
        if !self.objects.note_held(object, true) {
            return Vec::new();
        }
        self.missing.seen(object);
        // For a doubted object, the report is no news.
        if self.missing.is_sought(object) { self.unblock_readers(object, jobs) } else { Vec::new() }
    }

    fn unblock_readers(&mut self, object: ObjectId, jobs: &mut JobTable) -> Vec<ReadyTasks> {
        self.missing.stop_search(object);
        let mut ready = Vec::new();
        for producer in self.objects.writers(object) {
            if jobs.phase(*producer) == Some(Phase::Succeeded)
                && let Some(job) = jobs.get_mut(producer.job)
            {
                ready.push(ReadyTasks { job: job.id, tasks: job.unblock(producer.index) });
            }
        }
        ready.extend(self.unblock_borrowers(object, jobs));
        ready
    }

    // ---- objects that are lost

    /// Handles objects that were lost since the last call. Returns the tasks that are blocked now
    /// because of them, and leave the queue.
    pub fn hold_back(&mut self, now_us: u64, jobs: &mut JobTable) -> Vec<TaskId> {
        let mut withdrawn = Vec::new();
        for object in self.missing.take_lost() {
            self.hold_readers_back(object, now_us, jobs, &mut withdrawn);
        }
        withdrawn
    }

    /// No executor has the object: waiting tasks that read it are blocked. A search for an object
    /// that was promised to a user is planned after a grace period.
    fn hold_readers_back(
        &mut self,
        object: ObjectId,
        now_us: u64,
        jobs: &mut JobTable,
        withdrawn: &mut Vec<TaskId>,
    ) {
        let is_kept = self.kept_spec(object, jobs).is_some_and(ObjectSpec::is_kept);
        if !is_kept || self.is_held(object) {
            return;
        }
        for producer in self.objects.writers(object) {
            let Some(job) = jobs.get_mut(producer.job) else { continue };
            let mut waiting = job.readers(producer.index, object);
            waiting
                .retain(|index| matches!(job.tasks.phase(*index), Phase::Waiting | Phase::Blocked));
            for index in waiting {
                withdrawn.push(job.task_id(index));
                job.block(index, [producer.index]);
                self.missing.want(now_us, object);
            }
            if is_promised(*producer, object, jobs) {
                self.missing.miss(object, now_us + RETURN_GRACE_US);
            }
        }
        self.hold_borrowers_back(object, now_us, jobs, withdrawn);
    }

    /// Executors that were there before a start have had time to come back.
    pub fn end_return(&mut self, now_us: u64) {
        self.missing.end_return(now_us);
    }

    /// Looks for missing objects that are due.
    pub fn look(&mut self, now_us: u64, jobs: &mut JobTable) -> LookupResult {
        let mut looked = LookupResult::default();
        for object in self.missing.due(now_us) {
            if self.is_held(object) {
                looked.ready.extend(self.unblock_readers(object, jobs));
            } else {
                looked.nowhere.push(object);
            }
        }
        looked
    }

    /// An object is on its way to an executor.
    pub fn moving(&mut self, object: ObjectId, now_us: u64) {
        self.missing.look_again(object, now_us + STARVED_PAUSE_US);
    }

    /// An object is nowhere. If a task waits for it or a user was promised it, its writers run
    /// again. If it will not be made again, the tasks that wait for it end. Without executors, what
    /// no task waits for is looked for later: one that comes may have it.
    pub fn make_again(
        &mut self,
        object: ObjectId,
        has_executors: bool,
        now_us: u64,
        jobs: &JobTable,
    ) -> Recomputation {
        self.missing.stop_search(object);
        let borrowers = self.blocked_borrowers(object, jobs);
        let (mut remade, mut is_made) = (Recomputation::default(), false);
        // A task may read the object as the output of several.
        let mut given_up = BTreeSet::new();
        for producer in self.objects.writers(object) {
            let Some(job) = jobs.get(producer.job) else { continue };
            let state = job.tasks[producer.index as usize];
            let mut waiting = job.readers(producer.index, object);
            waiting.retain(|index| {
                job.waits_on(*index, producer.index) && !given_up.contains(&job.task_id(*index))
            });
            is_made |= state.phase != Phase::Succeeded;
            let is_awaited = !waiting.is_empty() || !borrowers.is_empty();
            let is_needed = is_awaited || is_promised(*producer, object, jobs);
            if state.phase != Phase::Succeeded || !is_needed {
                continue;
            }
            if !is_awaited && !has_executors {
                self.missing.miss(object, now_us + RETURN_GRACE_US);
            } else if state.recomputed < MAX_RECOMPUTATIONS {
                remade.again.push(*producer);
                is_made = true;
            } else {
                given_up.extend(waiting.iter().map(|index| job.task_id(*index)));
                remade.ends.extend(waiting.into_iter().map(|index| lost_again(*producer, index)));
            }
        }
        if !is_made {
            remade.ends.extend(self.fail_borrowers(object, borrowers, jobs));
        }
        remade
    }
}

/// Blocks a waiting task until executors have these inputs: outputs of tasks of its job, and of
/// other jobs.
fn block(job: &mut Job, index: u32, inputs: &[(u32, ObjectId)], borrowed: &[ObjectId]) {
    job.block(index, inputs.iter().map(|(producer, _)| *producer));
    if !borrowed.is_empty() {
        job.lack(index, borrowed.iter().copied());
    }
}

/// The end of a task that lacks an output for good: the task that wrote the output has run again,
/// and has left it out.
fn left_out(job: &Job, task: TaskId) -> Option<TaskEnding> {
    let producer = job.task_id(job.optional_left_out_by(task.index)?);
    let reason = format!("it needs an output of task {producer}, which did not write it again");
    Some(TaskEnding::failed(task, FailureKind::Dependency, reason))
}

/// The output of `producer` was lost too often: the end of a task that waits for it.
fn lost_again(producer: TaskId, index: u32) -> TaskEnding {
    let reason = format!(
        "the output of task {producer} that it reads was lost again and again with the executors \
         that kept it, and was made {MAX_RECOMPUTATIONS} times more: keep more replicas of it, or \
         write it to persistent storage"
    );
    TaskEnding::failed(TaskId { index, ..producer }, FailureKind::Lost, reason)
}
