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

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::outcome::FailureKind;
use eyas_types::{Ended, ExecutorId, JobId, ObjectId, ObjectSpec, Outcome, TaskId};

use crate::event::{Effect, JobsAction, SchedulerOrder};
use crate::job::{Phase, RetainedOutput};
use crate::jobs::Jobs;
use crate::log::Entry;

/// A task whose kept output was lost runs again up to this many times; then the tasks that need the
/// output fail, and it is not made again. So it runs up to six times for its output.
pub const MAX_RECOMPUTATIONS: u16 = 5;
/// After a start, executors have this long to come back with what they hold before it counts as
/// lost, microseconds; so have those that are lost themselves, with what no task waits for.
pub const RETURN_GRACE_US: u64 = 15_000_000;
/// A task that cannot get a kept object, although an executor reported it, tries again up to this
/// many times.
const MAX_STARVED: u8 = 100;
/// Pause before each of these attempts, microseconds. So a task gives up after 100 s at the
/// soonest.
const STARVED_PAUSE_US: u64 = 1_000_000;
/// Executors that could not hold an object are asked again after this time, microseconds.
const HOLD_AGAIN_US: u64 = 30_000_000;
/// Missing objects that are looked for before other events are looked at.
const LOOKED_FOR_AT_ONCE: usize = 10_000;
/// An executor that leaves in good order stays for at most this time, microseconds, while others
/// fetch what only it holds.
const MOVE_DEADLINE_US: u64 = 60_000_000;

/// All kept objects, and which of them are missing.
#[derive(Debug)]
pub(crate) struct Lineage {
    objects: BTreeMap<ObjectId, Kept>,
    /// Objects that blocked tasks need, or that were promised to users, and when to look for each
    /// again.
    missing: BTreeMap<ObjectId, Missing>,
    /// The same objects, by time. Entries whose time differs from that in `missing` are stale.
    to_look: BTreeSet<(u64, ObjectId)>,
    /// Objects that were lost since the last look.
    lost: Vec<ObjectId>,
    /// Objects that the journal names, and that no executor has reported since the start.
    unseen: BTreeSet<ObjectId>,
    began_us: u64,
    /// Whether some unseen objects do not count as lost yet.
    awaits_return: bool,
    /// When executors were last asked again to hold objects for which they had no room.
    held_again_us: u64,
    /// Executors that leave after others have fetched what only they hold, each with its deadline.
    leaving: BTreeMap<ExecutorId, u64>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The tasks whose output it is. Tasks that ran again and wrote the same, or took it over,
    /// share it.
    writers: Vec<TaskId>,
    /// Jobs that have not ended and read it, although another job made it.
    borrowers: BTreeSet<JobId>,
    /// An executor that stays holds it, as far as was told.
    is_held: bool,
}

#[derive(Debug)]
struct Missing {
    look_at_us: u64,
    /// An executor reported the object, but a task could not get it.
    is_doubted: bool,
}

impl Lineage {
    pub fn new(began_us: u64) -> Self {
        Lineage {
            objects: BTreeMap::new(),
            missing: BTreeMap::new(),
            to_look: BTreeSet::new(),
            lost: Vec::new(),
            unseen: BTreeSet::new(),
            began_us,
            awaits_return: true,
            held_again_us: began_us,
            leaving: BTreeMap::new(),
        }
    }

    /// The tasks whose output the object is.
    pub fn writers(&self, object: ObjectId) -> &[TaskId] {
        self.objects.get(&object).map_or(&[], |kept| &kept.writers)
    }

    pub fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Whether an executor that stays holds the kept object.
    pub fn is_held(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|kept| kept.is_held)
    }

    /// Whether jobs that have not ended, and did not make the object, read it.
    pub fn is_borrowed(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|kept| !kept.borrowers.is_empty())
    }

    /// Those jobs.
    pub fn borrowers(&self, object: ObjectId) -> Vec<JobId> {
        self.objects
            .get(&object)
            .map(|kept| kept.borrowers.iter().copied().collect())
            .unwrap_or_default()
    }

    /// A job reads the object until it ends.
    pub fn borrow(&mut self, object: ObjectId, job: JobId) {
        self.objects.entry(object).or_default().borrowers.insert(job);
    }

    /// A job has read the object for good. Returns whether it had borrowed it.
    pub fn give_back(&mut self, object: ObjectId, job: JobId) -> bool {
        let had = self.objects.get_mut(&object).is_some_and(|kept| kept.borrowers.remove(&job));
        self.forget_unless_used(object);
        had
    }

    /// Hold the object again. If no executor has it, report the loss at once; with `is_early`,
    /// first wait for executors to return.
    pub fn hold_again(&mut self, object: ObjectId, is_early: bool) {
        self.objects.entry(object).or_default().is_held = true;
        if is_early && self.awaits_return {
            self.unseen.insert(object);
        }
    }

    /// Forgets an object that is the output of no task, and that no job reads.
    fn forget_unless_used(&mut self, object: ObjectId) {
        if self
            .objects
            .get(&object)
            .is_some_and(|kept| kept.writers.is_empty() && kept.borrowers.is_empty())
        {
            self.objects.remove(&object);
            self.missing.remove(&object);
            self.unseen.remove(&object);
        }
    }

    pub fn is_unseen(&self, object: ObjectId) -> bool {
        self.unseen.contains(&object)
    }

    /// Whether executors may still come back with what they hold.
    pub fn awaits_executors(&self, now_us: u64) -> bool {
        now_us < self.began_us + RETURN_GRACE_US
    }

    pub fn leaving(&self) -> impl Iterator<Item = ExecutorId> {
        self.leaving.keys().copied()
    }

    /// An executor is gone.
    pub fn gone(&mut self, executor: ExecutorId) {
        self.leaving.remove(&executor);
    }

    /// A task or client wants an object that no executor has.
    pub fn want(&mut self, now_us: u64, object: ObjectId) {
        self.miss(object, self.lost_from(now_us, object));
    }

    pub fn next_timeout(&self) -> Option<u64> {
        let look = self.to_look.first().map(|(look_at_us, _)| *look_at_us);
        let back = (self.awaits_return && !self.unseen.is_empty())
            .then_some(self.began_us + RETURN_GRACE_US);
        let hold = (!self.objects.is_empty()).then_some(self.held_again_us + HOLD_AGAIN_US);
        let leave = self.leaving.values().min().copied();
        [look, back, hold, leave].into_iter().flatten().min()
    }

    /// Plans a search for an object that no executor has, unless an earlier search is planned.
    fn miss(&mut self, object: ObjectId, look_at_us: u64) {
        let planned = self.missing.get(&object).map_or(look_at_us, |missing| missing.look_at_us);
        self.look_at(object, look_at_us.min(planned), false);
    }

    fn look_at(&mut self, object: ObjectId, look_at_us: u64, is_doubted: bool) {
        self.missing.insert(object, Missing { look_at_us, is_doubted });
        self.to_look.insert((look_at_us, object));
    }

    /// Objects that are to be looked for now.
    fn due(&mut self, now_us: u64) -> Vec<ObjectId> {
        let mut due = Vec::new();
        while due.len() < LOOKED_FOR_AT_ONCE
            && let Some((look_at_us, object)) = self.to_look.pop_first()
        {
            if look_at_us > now_us {
                self.to_look.insert((look_at_us, object));
                break;
            }
            if self.missing.get(&object).is_some_and(|missing| missing.look_at_us == look_at_us) {
                due.push(object);
            }
        }
        due
    }

    /// When an object that no executor has counts as lost: not before executors could come back
    /// with it.
    fn lost_from(&self, now_us: u64, object: ObjectId) -> u64 {
        if self.unseen.contains(&object) {
            now_us.max(self.began_us + RETURN_GRACE_US)
        } else {
            now_us
        }
    }
}

impl Jobs {
    /// Takes up what a task has left in the cluster, on `executor` if it was there just now, and
    /// lets go of what it left `before`.
    pub(crate) fn take_up_kept(
        &mut self,
        task: TaskId,
        executor: Option<ExecutorId>,
        before: &[ObjectId],
    ) {
        let Some(job) = self.jobs.get(&task.job) else { return };
        let now: Vec<_> =
            job.kept_by(task.index).map(|(object, left)| (object, left.replicas)).collect();
        for object in before.iter().filter(|object| !now.iter().any(|(other, _)| other == *object))
        {
            self.let_go_of(*object, task);
        }
        for (object, replicas) in now {
            let kept = self.lineage.objects.entry(object).or_default();
            if !kept.writers.contains(&task) {
                kept.writers.push(task);
            }
            // What a task wrote is in its executor's store before its end is told.
            kept.is_held |= executor.is_some();
            if !kept.is_held {
                self.lineage.unseen.insert(object);
            }
            let is_held = kept.is_held;
            self.effects.push(Effect::Order(SchedulerOrder::Keep {
                object,
                replicas,
                on: executor,
            }));
            self.release_unless_wanted(object);
            if is_held {
                self.unblock_borrowers(object);
            }
        }
    }

    /// A task has succeeded: releases the objects of which it was the last reader.
    pub(crate) fn let_go_of_read(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task.job) else { return };
        if job.tasks[task.index as usize].phase == Phase::Succeeded {
            job.inputs_until_read(task.index)
                .into_iter()
                .for_each(|(_, object)| self.release_unless_wanted(object));
        }
    }

    pub(crate) fn release_unless_wanted(&mut self, object: ObjectId) {
        if !self.is_wanted(object) {
            self.effects.push(Effect::Order(SchedulerOrder::Release { object }));
        }
    }

    /// A task that had succeeded runs again: its remaining inputs are held until it has read them.
    fn hold_inputs_again(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task.job) else { return };
        let left = |(producer, object)| Some((object, job.kept.get(producer, object)?.replicas));
        let inputs: Vec<_> =
            job.inputs_until_read(task.index).into_iter().filter_map(left).collect();
        for (object, replicas) in inputs {
            self.effects.push(Effect::Order(SchedulerOrder::Keep { object, replicas, on: None }));
        }
    }

    pub(crate) fn let_go_of(&mut self, object: ObjectId, task: TaskId) {
        let Some(kept) = self.lineage.objects.get_mut(&object) else { return };
        kept.writers.retain(|other| *other != task);
        if kept.writers.is_empty() && !kept.is_held {
            // Tasks of other jobs that wait for it may wait in vain.
            self.lineage.want(self.now_us, object);
        }
        self.lineage.forget_unless_used(object);
        self.release_unless_wanted(object);
    }

    /// Blocks a waiting task if no executor holds one of its inputs. Returns whether the task is
    /// blocked.
    pub(crate) fn lacks_input(&mut self, task: TaskId) -> bool {
        let Some(job) = self.jobs.get_mut(&task.job) else { return false };
        let mut missing = job.kept_inputs(task.index);
        missing.retain(|(_, object)| !self.lineage.is_held(*object));
        let mut borrowed = job.borrowed_inputs(task.index);
        borrowed.retain(|object| !self.lineage.is_held(*object));
        if missing.is_empty() && borrowed.is_empty() {
            return false;
        }
        let has_failed =
            |producer: u32| job.tasks[producer as usize].phase.has_ended_unsuccessfully();
        if let Some((producer, _)) = missing.iter().find(|(producer, _)| has_failed(*producer)) {
            let producer = job.task_id(*producer);
            let reason = format!(
                "it needs an output of task {producer}, which was lost and was not made again"
            );
            self.end(task, 0, String::new(), Outcome::failed(FailureKind::Dependency, reason));
            return true;
        }
        job.block(task.index, missing.iter().map(|(producer, _)| *producer));
        if !borrowed.is_empty() {
            job.lack(task.index, borrowed.iter().copied());
        }
        for object in missing.into_iter().map(|(_, object)| object).chain(borrowed) {
            self.lineage.want(self.now_us, object);
        }
        true
    }

    /// A task could not get an input that exists only in the cluster, and waits again.
    pub(crate) fn starved(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        attempt: u32,
        outcome: Outcome,
    ) {
        self.effects.push(Effect::Order(SchedulerOrder::Done {
            executor,
            task,
            ended: Ended::Finished,
            ran_us: None,
        }));
        let name = self.name_of(executor);
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        let (inputs, borrowed) = (job.kept_inputs(task.index), job.borrowed_inputs(task.index));
        let objects: Vec<_> =
            inputs.iter().map(|(_, object)| *object).chain(borrowed.iter().copied()).collect();
        let state = job.tasks.get_mut(task.index);
        if objects.iter().all(|object| self.lineage.is_held(*object)) {
            state.starved += 1;
            if state.starved > MAX_STARVED || objects.is_empty() {
                return self.end(task, attempt, name, outcome);
            }
            // An executor reports the object: it verifies that, and the task tries again after a
            // pause.
            job.unassigned(task.index);
            job.block(task.index, inputs.iter().map(|(producer, _)| *producer));
            if !borrowed.is_empty() {
                job.lack(task.index, borrowed);
            }
            for object in objects {
                self.lineage.look_at(object, self.now_us + STARVED_PAUSE_US, true);
                self.effects.push(Effect::Order(SchedulerOrder::Verify { object }));
            }
        } else {
            job.unassigned(task.index);
            self.lacks_input(task);
        }
    }

    /// No executor that stays holds the object.
    pub(crate) fn object_lost(&mut self, object: ObjectId) {
        if let Some(kept) = self.lineage.objects.get_mut(&object) {
            kept.is_held = false;
            self.lineage.lost.push(object);
        }
    }

    /// An executor holds the object again.
    pub(crate) fn object_found(&mut self, object: ObjectId) {
        if let Some(kept) = self.lineage.objects.get_mut(&object) {
            kept.is_held = true;
            self.lineage.unseen.remove(&object);
            // For a doubted object, the report is no news.
            if self.lineage.missing.get(&object).is_some_and(|missing| !missing.is_doubted) {
                self.unblock_readers(object);
            }
        }
    }

    fn unblock_readers(&mut self, object: ObjectId) {
        self.lineage.missing.remove(&object);
        for producer in self.lineage.writers(object).to_vec() {
            if self.phase(producer) == Some(Phase::Succeeded)
                && let Some(job) = self.jobs.get_mut(&producer.job)
            {
                let ready = job.unblock(producer.index);
                self.queue_released(producer.job, &ready);
            }
        }
        self.unblock_borrowers(object);
    }

    /// Lets an executor leave, after others have what only it has.
    pub(crate) fn let_leave(&mut self, executor: ExecutorId) {
        self.effects.extend([
            Effect::Order(SchedulerOrder::Drain { executor }),
            Effect::Order(SchedulerOrder::Evacuate),
        ]);
        self.lineage.leaving.insert(executor, self.now_us + MOVE_DEADLINE_US);
    }

    /// Others fetch this many objects that only the executor has, which leaves.
    pub(crate) fn moving(&mut self, executor: ExecutorId, objects: usize) {
        let Some(until_us) = self.lineage.leaving.get(&executor) else { return };
        if objects == 0 || *until_us <= self.now_us {
            self.lineage.leaving.remove(&executor);
            self.effects.push(Effect::Action(JobsAction::Stop { executor }));
        }
    }

    /// Handles objects that were lost since the last call, missing objects that are due, and
    /// objects with which no executor has come back.
    pub(crate) fn look_after_kept(&mut self) {
        let now_us = self.now_us;
        if self.lineage.awaits_return && !self.lineage.awaits_executors(now_us) {
            self.lineage.awaits_return = false;
            for object in self.lineage.unseen.iter().copied().collect::<Vec<_>>() {
                self.lineage.miss(object, now_us);
            }
        }
        if !self.lineage.objects.is_empty() && now_us >= self.lineage.held_again_us + HOLD_AGAIN_US
        {
            self.lineage.held_again_us = now_us;
            self.effects.push(Effect::Order(SchedulerOrder::HoldAgain));
        }
        for object in core::mem::take(&mut self.lineage.lost) {
            self.hold_readers_back(object);
        }
        let mut nowhere = Vec::new();
        for object in self.lineage.due(now_us) {
            if self.lineage.is_held(object) {
                self.unblock_readers(object)
            } else {
                nowhere.push(object)
            }
        }
        if !nowhere.is_empty() {
            self.effects.push(Effect::Order(SchedulerOrder::Locate { objects: nowhere }));
        }
    }

    /// The result of a search: some objects are on their way to an executor, others are nowhere.
    pub(crate) fn located(&mut self, moving: &[ObjectId], nowhere: &[ObjectId]) {
        for object in moving {
            self.lineage.look_at(*object, self.now_us + STARVED_PAUSE_US, false);
        }
        let mut again = BTreeMap::new();
        nowhere.iter().for_each(|object| self.make_again(*object, &mut again));
        for (job, tasks) in again {
            self.recompute(job, tasks.into_iter().collect());
        }
    }

    /// No executor has the object: waiting tasks that read it leave the queue. A search for an
    /// object that was promised to a user is planned after a grace period.
    fn hold_readers_back(&mut self, object: ObjectId) {
        let is_kept = self.kept_spec(object).is_some_and(ObjectSpec::is_kept);
        if !is_kept || self.lineage.is_held(object) {
            return;
        }
        for producer in self.lineage.writers(object).to_vec() {
            let Some(job) = self.jobs.get_mut(&producer.job) else { continue };
            let readers = job.readers(producer.index, object);
            let waits = |index: &u32| {
                matches!(job.tasks[*index as usize].phase, Phase::Waiting | Phase::Blocked)
            };
            let waiting: Vec<_> = readers.into_iter().filter(waits).collect();
            for index in waiting {
                self.withdraw(TaskId { job: producer.job, index });
                let Some(job) = self.jobs.get_mut(&producer.job) else { break };
                job.block(index, [producer.index]);
                self.lineage.miss(object, self.lineage.lost_from(self.now_us, object));
            }
            if self.is_promised(producer, object) {
                self.lineage.miss(object, self.now_us + RETURN_GRACE_US);
            }
        }
        self.hold_borrowers_back(object);
    }

    fn is_promised(&self, producer: TaskId, object: ObjectId) -> bool {
        let job = self.jobs.get(&producer.job);
        job.and_then(|job| job.kept.get(producer.index, object))
            .is_some_and(RetainedOutput::is_promised)
    }

    /// Adds to `again` the writers of a lost object, if a task waits for the object or a user was
    /// promised it. If the object will not be made again, tasks of other jobs that wait for it
    /// fail.
    fn make_again(&mut self, object: ObjectId, again: &mut BTreeMap<JobId, BTreeSet<u32>>) {
        self.lineage.missing.remove(&object);
        let borrowers = self.blocked_borrowers(object);
        let mut is_made = false;
        for producer in self.lineage.writers(object).to_vec() {
            let is_promised = self.is_promised(producer, object);
            let Some(job) = self.jobs.get(&producer.job) else { continue };
            let state = job.tasks[producer.index as usize];
            let mut waiting = job.readers(producer.index, object);
            waiting.retain(|index| job.waits_on(*index, producer.index));
            is_made |= state.phase != Phase::Succeeded;
            let is_awaited = !waiting.is_empty() || !borrowers.is_empty();
            if state.phase != Phase::Succeeded || !is_awaited && !is_promised {
                continue;
            }
            if !is_awaited && self.executors.is_empty() {
                // An executor that comes may have it.
                self.lineage.miss(object, self.now_us + RETURN_GRACE_US);
            } else if state.recomputed < MAX_RECOMPUTATIONS {
                again.entry(producer.job).or_default().insert(producer.index);
                is_made = true;
            } else {
                self.give_up(producer, waiting);
            }
        }
        if !is_made {
            self.fail_borrowers(object, borrowers);
        }
    }

    /// The output of `producer` was lost too often: tasks that wait for it fail.
    fn give_up(&mut self, producer: TaskId, waiting: Vec<u32>) {
        for index in waiting {
            let reason = format!(
                "the output of task {producer} that it reads was lost again and again with the \
                 executors that kept it, and was made {MAX_RECOMPUTATIONS} times more: keep more \
                 replicas of it, or write it to persistent storage"
            );
            let task = TaskId { index, ..producer };
            self.end(task, 0, String::new(), Outcome::failed(FailureKind::Lost, reason));
        }
    }

    /// Runs tasks again because no executor has their output.
    fn recompute(&mut self, id: JobId, tasks: Vec<u32>) {
        // Results before this entry are of earlier times.
        self.flush();
        let readers = self.jobs.get(&id).map(|job| job.waiting_readers(&tasks)).unwrap_or_default();
        for index in readers {
            self.withdraw(TaskId { job: id, index });
        }
        let now_us = self.now_us;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let paused_us = job.paused_until(now_us);
        job.recompute(&tasks, paused_us);
        self.borrow(id);
        self.write_entry(id, Entry::Recomputed { tasks: tasks.clone(), paused_us });
        self.effects.push(Effect::Action(JobsAction::Show { job: id }));
        self.name_job(id);
        tasks.iter().for_each(|index| self.hold_inputs_again(TaskId { job: id, index: *index }));
        // One that reads from another of them waits for it.
        let is_ready = |index: &u32| self.jobs[&id].tasks[*index as usize].phase == Phase::Waiting;
        let ready: Vec<_> = tasks.into_iter().filter(is_ready).collect();
        self.queue_released(id, &ready);
    }
}
