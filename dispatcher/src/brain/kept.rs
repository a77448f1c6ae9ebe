//! The brain's kept objects: what tasks wrote and executors hold. It tells the scheduler of them, holds tasks back while
//! nobody has what they read, and runs again those whose output is lost and still needed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use eyas_sched::{self as sched, Ended, Event, MAX_HINTS};
use eyas_types::outcome::FailureKind;
use eyas_types::{ExecutorId, JobId, ObjectId, ObjectSpec, Outcome, OutputSpec, TaskId};
use eyas_wire::client::{KeptOutput, KeptPart};
use eyas_wire::executor::ToExecutor;

use super::Brain;
use crate::job::{Job, Left, Phase};
use crate::journal::Entry;

/// A task whose kept output was lost runs again so many times; then those that need it fail, and it is not made again.
pub(super) const MAX_RECOMPUTATIONS: u16 = 5;
/// A task that could not have a kept object, though somebody is said to hold it, tries again so many times.
const MAX_STARVED: u8 = 100;
/// Each time after so long.
const STARVED_PAUSE: Duration = Duration::from_secs(1);
/// After a start, executors have so long to come back with what they hold, before it counts as lost; so have those that
/// are lost themselves, with what nobody waits for.
pub(super) const RETURN_GRACE: Duration = Duration::from_secs(15);
/// Executors that could not hold an object are asked again so often.
const HOLD_AGAIN: Duration = Duration::from_secs(30);
/// Missing objects that are looked for before other messages are looked at again.
const LOOKED_FOR_AT_ONCE: usize = 10_000;
/// Tasks, and their outputs, of which a client is told at a time.
const TOLD_AT_ONCE: usize = 4096;

/// An executor that leaves in good order stays so long for others to fetch what only it has.
const MOVE_DEADLINE: Duration = Duration::from_secs(60);

/// All kept objects, and those of them that tasks wait for.
pub(crate) struct Kept {
    /// Whose output each is. Tasks that ran again and wrote the same, or take it over, share it.
    tasks: HashMap<ObjectId, Vec<TaskId>>,
    /// Objects that blocked tasks need, or that were promised to users, and when to look for each again.
    missing: HashMap<ObjectId, Missing>,
    /// The same in the order of time; some were looked for since, or are looked for at another time.
    to_look: BTreeSet<(Instant, ObjectId)>,
    /// Objects that nobody holds any more, and that were not looked at since.
    lost: Vec<ObjectId>,
    /// Objects that the journal tells of, and that no executor has reported since.
    unseen: HashSet<ObjectId>,
    pub(super) began: Instant,
    /// They have not all counted as lost yet.
    awaits_return: bool,
    /// When executors were last asked again to hold what they could not.
    held_again: Instant,
    /// Executors that leave once what only they have is elsewhere, and when at the latest.
    leaving: BTreeMap<ExecutorId, Instant>,
}

struct Missing {
    look_at: Instant,
    /// Somebody says to have it, but a task could not have it.
    is_doubted: bool,
}

impl Default for Kept {
    fn default() -> Self {
        let began = Instant::now();
        Kept {
            tasks: HashMap::new(),
            missing: HashMap::new(),
            to_look: BTreeSet::new(),
            lost: Vec::new(),
            unseen: HashSet::new(),
            began,
            awaits_return: true,
            held_again: began,
            leaving: BTreeMap::new(),
        }
    }
}

impl Kept {
    /// Nobody holds the object any more.
    pub fn lost(&mut self, object: ObjectId) {
        self.lost.push(object);
    }

    /// Nobody has the object: it is looked for then, or sooner if that is planned.
    fn miss(&mut self, object: ObjectId, look_at: Instant) {
        let planned = self.missing.get(&object).map_or(look_at, |missing| missing.look_at);
        self.look_at(object, look_at.min(planned), false);
    }

    fn look_at(&mut self, object: ObjectId, look_at: Instant, is_doubted: bool) {
        self.missing.insert(object, Missing { look_at, is_doubted });
        self.to_look.insert((look_at, object));
    }

    /// Objects that are to be looked for now.
    fn due(&mut self, now: Instant) -> Vec<ObjectId> {
        let mut due = Vec::new();
        while due.len() < LOOKED_FOR_AT_ONCE
            && let Some((look_at, object)) = self.to_look.pop_first()
        {
            if look_at > now {
                self.to_look.insert((look_at, object));
                break;
            }
            if self.missing.get(&object).is_some_and(|missing| missing.look_at == look_at) {
                due.push(object);
            }
        }
        due
    }

    /// When what nobody has counts as lost: not before executors could come back with it.
    fn lost_from(&self, object: ObjectId) -> Instant {
        let now = Instant::now();
        if self.unseen.contains(&object) { now.max(self.began + RETURN_GRACE) } else { now }
    }
}

impl Brain {
    /// A kept object's spec.
    pub(crate) fn kept_spec(&self, object: ObjectId) -> Option<&ObjectSpec> {
        let task = self.kept.tasks.get(&object)?.first()?;
        self.jobs.get(&task.job)?.kept.get(&(task.index, object)).map(|left| &left.object)
    }

    /// All kept objects.
    pub(crate) fn kept_objects(&self) -> impl Iterator<Item = (ObjectId, &ObjectSpec)> {
        self.kept.tasks.keys().filter_map(|object| Some((*object, self.kept_spec(*object)?)))
    }

    /// Takes up what a task has left in the cluster, on `executor` if it was there just now, and lets go of what it left
    /// `before`.
    pub(super) fn take_up_kept(&mut self, task: TaskId, executor: Option<ExecutorId>, before: &[ObjectId]) {
        let Some(job) = self.jobs.get(&task.job) else { return };
        let now: Vec<_> = job.kept_by(task.index).map(|(object, left)| (object, left.replicas)).collect();
        for object in before.iter().filter(|object| !now.iter().any(|(other, _)| other == *object)) {
            self.let_go_of(*object, task);
        }
        for (object, replicas) in now {
            let tasks = self.kept.tasks.entry(object).or_default();
            if !tasks.contains(&task) {
                tasks.push(task);
            }
            if executor.is_none() && !self.scheduler.is_held(object) {
                self.kept.unseen.insert(object);
            }
            self.tell(Event::Keep { object, replicas, by: executor });
            self.release_unless_wanted(object);
        }
    }

    /// A task has succeeded: lets go of what it was the last to read.
    pub(super) fn let_go_of_read(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task.job) else { return };
        if job.tasks[task.index as usize].phase == Phase::Succeeded {
            job.inputs_until_read(task.index).into_iter().for_each(|(_, object)| self.release_unless_wanted(object));
        }
    }

    fn release_unless_wanted(&mut self, object: ObjectId) {
        let wants = |task: &TaskId| self.jobs.get(&task.job).is_some_and(|job| job.is_wanted(task.index, object));
        if !self.kept.tasks.get(&object).is_some_and(|tasks| tasks.iter().any(wants)) {
            self.tell(Event::Release { object });
        }
    }

    /// A task that had succeeded reads its inputs again: those that are left are held until it has.
    fn hold_inputs_again(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task.job) else { return };
        let left = |(producer, object)| Some((object, job.kept.get(&(producer, object))?.replicas));
        let inputs: Vec<_> = job.inputs_until_read(task.index).into_iter().filter_map(left).collect();
        for (object, replicas) in inputs {
            self.tell(Event::Keep { object, replicas, by: None });
        }
    }

    /// Has an executor hold an object, which is kept or pushed.
    pub(super) fn have_held(&mut self, executor: ExecutorId, object: ObjectId, holders: &[sched::Holder]) {
        let Some(spec) = self.kept_spec(object).or_else(|| self.pushes.spec(object)).cloned() else { return };
        let holders = self.executors.where_to_ask(holders);
        self.executors.send(executor, ToExecutor::Hold { object: spec, holders });
    }

    fn let_go_of(&mut self, object: ObjectId, task: TaskId) {
        let Some(tasks) = self.kept.tasks.get_mut(&object) else { return };
        tasks.retain(|other| *other != task);
        if tasks.is_empty() {
            self.kept.tasks.remove(&object);
            self.kept.missing.remove(&object);
            self.kept.unseen.remove(&object);
        }
        self.release_unless_wanted(object);
    }

    /// Lets go of all that an ended job keeps; how many objects.
    pub(crate) fn release_kept(&mut self, id: JobId) -> u64 {
        let Some(kept) = self.jobs.get_mut(&id).map(Job::release).filter(|kept| !kept.is_empty()) else { return 0 };
        // Results before this entry are of what was kept.
        self.write_results();
        self.write_entry(id, Entry::Released);
        self.release_all(id, kept)
    }

    /// Lets go of these objects of a job.
    pub(super) fn release_all(&mut self, id: JobId, kept: impl IntoIterator<Item = (u32, ObjectId)>) -> u64 {
        let mut count = 0;
        for (index, object) in kept {
            self.let_go_of(object, TaskId { job: id, index });
            count += 1;
        }
        count
    }

    /// Blocks a waiting task if nobody has something that it reads; whether it does.
    pub(super) fn lacks_input(&mut self, id: JobId, index: u32) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let mut missing = job.kept_inputs(index);
        missing.retain(|(_, object)| !self.scheduler.is_held(*object));
        if missing.is_empty() {
            return false;
        }
        job.block(index, missing.iter().map(|(producer, _)| *producer));
        for (_, object) in missing {
            self.kept.miss(object, self.kept.lost_from(object));
        }
        true
    }

    /// A task could not have an input that is kept in the cluster alone, and goes back to waiting.
    pub(super) fn starved(&mut self, executor: ExecutorId, task: TaskId, attempt: u32, outcome: Outcome) {
        let name = self.executors.name(executor);
        self.tell(Event::TaskEnded { executor, task, ended: Ended::Finished, ran_us: None });
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        let inputs = job.kept_inputs(task.index);
        let state = &mut job.tasks[task.index as usize];
        if inputs.iter().all(|(_, object)| self.scheduler.is_held(*object)) {
            state.starved += 1;
            if state.starved > MAX_STARVED || inputs.is_empty() {
                return self.end(task, attempt, name, outcome);
            }
            // Somebody says to have it: they look again, and the task tries again after a while.
            job.unassigned(task.index);
            job.block(task.index, inputs.iter().map(|(producer, _)| *producer));
            for (_, object) in inputs {
                self.kept.look_at(object, Instant::now() + STARVED_PAUSE, true);
                self.tell(Event::Doubted { object });
            }
        } else {
            job.unassigned(task.index);
            self.lacks_input(task.job, task.index);
        }
    }

    /// An executor has the object.
    pub(super) fn found(&mut self, object: ObjectId) {
        self.kept.unseen.remove(&object);
        // Of what is doubted, this is nothing new.
        let is_news = self.kept.missing.get(&object).is_some_and(|missing| !missing.is_doubted);
        if is_news && self.scheduler.is_held(object) {
            self.unblock_readers(object);
        }
    }

    fn unblock_readers(&mut self, object: ObjectId) {
        self.kept.missing.remove(&object);
        for producer in self.kept.tasks.get(&object).cloned().unwrap_or_default() {
            let Some(job) = self.jobs.get_mut(&producer.job) else { continue };
            if job.tasks[producer.index as usize].phase == Phase::Succeeded {
                let ready = job.unblock(producer.index);
                self.queue_released(producer.job, &ready);
            }
        }
    }

    /// Lets an executor leave, after others have what only it has.
    pub(crate) fn let_leave(&mut self, executor: ExecutorId) {
        self.tell(Event::ExecutorDraining { executor });
        self.tell(Event::Evacuate);
        let moving = self.scheduler.moving_from(executor);
        tracing::info!(%executor, moving, "is to leave");
        self.kept.leaving.insert(executor, Instant::now() + MOVE_DEADLINE);
        self.stop_those_that_may_leave();
    }

    fn stop_those_that_may_leave(&mut self) {
        let may = |(executor, until): (&ExecutorId, &Instant)| {
            let is_done = self.scheduler.moving_from(*executor) == 0 || *until <= Instant::now();
            is_done.then_some(*executor)
        };
        for executor in self.kept.leaving.iter().filter_map(may).collect::<Vec<_>>() {
            self.kept.leaving.remove(&executor);
            self.executors.send(executor, ToExecutor::Stop);
        }
    }

    /// Whether executors may still be coming back, as the dispatcher has just started.
    pub(crate) fn awaits_executors(&self) -> bool {
        Instant::now() < self.kept.began + RETURN_GRACE
    }

    /// What nobody has come back with counts as lost; who could not hold an object is asked again.
    pub(super) fn wait_for_kept(&mut self) {
        let now = Instant::now();
        if self.kept.awaits_return && now >= self.kept.began + RETURN_GRACE {
            self.kept.awaits_return = false;
            for object in self.kept.unseen.iter().copied().collect::<Vec<_>>() {
                self.kept.miss(object, now);
            }
        }
        if now >= self.kept.held_again + HOLD_AGAIN {
            self.kept.held_again = now;
            self.tell(Event::HoldAgain);
        }
    }

    /// Looks at what was lost since, and at what is missing and due. Executors of a cluster that stops leave with what they
    /// hold, and come back with it.
    pub(super) fn look_for_kept(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        for object in std::mem::take(&mut self.kept.lost) {
            self.hold_readers_back(object);
        }
        self.stop_those_that_may_leave();
        let now = Instant::now();
        let mut again = BTreeMap::new();
        for object in self.kept.due(now) {
            if self.scheduler.is_held(object) {
                self.unblock_readers(object);
            } else if self.scheduler.is_moving(object) {
                self.kept.look_at(object, now + STARVED_PAUSE, false);
            } else {
                self.make_again(object, &mut again);
            }
        }
        for (job, tasks) in again {
            self.recompute(job, tasks.into_iter().collect());
        }
    }

    /// Nobody has the object: tasks that wait and read it go out of the queue. What was promised to a user is looked for
    /// without hurry.
    fn hold_readers_back(&mut self, object: ObjectId) {
        let is_kept = self.kept_spec(object).is_some_and(ObjectSpec::is_kept);
        if !is_kept || self.scheduler.is_held(object) {
            return;
        }
        for producer in self.kept.tasks.get(&object).cloned().unwrap_or_default() {
            let Some(job) = self.jobs.get_mut(&producer.job) else { continue };
            let readers = job.readers(producer.index, object);
            let waits = |index: &u32| matches!(job.tasks[*index as usize].phase, Phase::Waiting | Phase::Blocked);
            let waiting: Vec<_> = readers.into_iter().filter(waits).collect();
            for index in waiting {
                self.unqueue(TaskId { job: producer.job, index });
                let Some(job) = self.jobs.get_mut(&producer.job) else { break };
                job.block(index, [producer.index]);
                self.kept.miss(object, Instant::now());
            }
            if self.is_promised(producer, object) {
                self.kept.miss(object, Instant::now() + RETURN_GRACE);
            }
        }
    }

    /// Takes a task that waits out of the queue.
    fn unqueue(&mut self, task: TaskId) {
        self.tell(Event::TaskCancelled { task });
        self.refusals.forget(task);
    }

    fn is_promised(&self, producer: TaskId, object: ObjectId) -> bool {
        let job = self.jobs.get(&producer.job);
        job.and_then(|job| job.kept.get(&(producer.index, object))).is_some_and(Left::is_promised)
    }

    /// Adds to those who run `again` who wrote a lost object that somebody still waits for, or that was promised.
    fn make_again(&mut self, object: ObjectId, again: &mut BTreeMap<JobId, BTreeSet<u32>>) {
        self.kept.missing.remove(&object);
        for producer in self.kept.tasks.get(&object).cloned().unwrap_or_default() {
            let is_promised = self.is_promised(producer, object);
            let Some(job) = self.jobs.get(&producer.job) else { continue };
            let state = job.tasks[producer.index as usize];
            let mut waiting = job.readers(producer.index, object);
            waiting.retain(|index| job.waits_for(*index).contains(&producer.index));
            if state.phase != Phase::Succeeded || waiting.is_empty() && !is_promised {
                continue;
            }
            if waiting.is_empty() && self.executors.len() == 0 {
                // Who comes may have it.
                self.kept.miss(object, Instant::now() + RETURN_GRACE);
            } else if state.recomputed < MAX_RECOMPUTATIONS {
                again.entry(producer.job).or_default().insert(producer.index);
            } else {
                self.give_up(producer, waiting);
            }
        }
    }

    /// What a task wrote was lost too often: those that wait for it fail.
    fn give_up(&mut self, producer: TaskId, waiting: Vec<u32>) {
        tracing::warn!(task = %producer, "what it keeps in the cluster was lost again and again");
        for index in waiting {
            let reason = format!(
                "the output of task {producer} that it reads was lost again and again with the executors that kept it, \
                 and was made {MAX_RECOMPUTATIONS} times more: keep more replicas of it, or write it to persistent storage"
            );
            let task = TaskId { index, ..producer };
            self.end(task, 0, String::new(), Outcome::failed(FailureKind::Lost, reason));
        }
    }

    /// Runs tasks again whose output nobody has.
    fn recompute(&mut self, id: JobId, again: Vec<u32>) {
        tracing::info!(job = %id, tasks = again.len(), "tasks run again: nobody has what they kept in the cluster");
        // Results before this entry are of earlier times.
        self.write_results();
        let readers = self.jobs.get(&id).map(|job| job.waiting_readers(&again)).unwrap_or_default();
        for index in readers {
            self.unqueue(TaskId { job: id, index });
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.recompute(&again);
        self.write_entry(id, Entry::Recomputed(again.clone()));
        self.show(id);
        self.name_job(id);
        again.iter().for_each(|index| self.hold_inputs_again(TaskId { job: id, index: *index }));
        // One that reads from another of them waits for it.
        let is_ready = |index: &u32| self.jobs[&id].tasks[*index as usize].phase == Phase::Waiting;
        let ready: Vec<_> = again.into_iter().filter(is_ready).collect();
        self.queue_released(id, &ready);
    }

    /// What these tasks of a job keep for its user, or the first of them, and who has it. What nobody has is made again
    /// without further ado; what is doubted is looked at by those who are said to have it.
    pub(crate) fn kept_part(&mut self, id: JobId, tasks: Range<u32>, doubted: &[ObjectId]) -> KeptPart {
        doubted.iter().for_each(|object| self.tell(Event::Doubted { object: *object }));
        let mut part = KeptPart::default();
        let Some(job) = self.jobs.get(&id) else { return part };
        let tasks = tasks.start..tasks.end.min(job.tasks.len() as u32);
        let mut missing = Vec::new();
        for (place, index) in tasks.enumerate() {
            if place >= TOLD_AT_ONCE || part.outputs.len() >= TOLD_AT_ONCE {
                part.next = Some(index);
                break;
            }
            let state = job.tasks[index as usize];
            let promises =
                |output: &OutputSpec| output.replicas > 0 && output.destination.is_none() && !output.until_read;
            match state.phase {
                _ if !job.template_at(index).outputs.iter().any(promises) => {}
                Phase::Blocked | Phase::Waiting | Phase::Assigned => part.unfinished += 1,
                Phase::Failed | Phase::Cancelled => part.unsuccessful += 1,
                Phase::Succeeded => {
                    for (object, left) in job.kept_by(index).filter(|(_, left)| left.is_promised()) {
                        let holders =
                            self.scheduler.explain_object(object).map(|view| view.holders).unwrap_or_default();
                        let holders = holders.iter().filter_map(|holder| Some(self.executors.get(*holder)?.transfer));
                        let holders: Vec<_> = holders.take(MAX_HINTS).collect();
                        if holders.is_empty() {
                            missing.push(object);
                        }
                        let may_come = self.kept.unseen.contains(&object) || self.scheduler.is_moving(object);
                        let is_lost = holders.is_empty() && !may_come && state.recomputed >= MAX_RECOMPUTATIONS;
                        let (task, object) = (job.task_id(index), left.object.clone());
                        part.outputs.push(KeptOutput { task, object, holders, is_lost });
                    }
                }
            }
        }
        missing.into_iter().for_each(|object| self.kept.miss(object, self.kept.lost_from(object)));
        part
    }
}
