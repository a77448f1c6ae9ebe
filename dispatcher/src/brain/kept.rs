//! The brain's kept objects: what tasks wrote and executors hold. It tells the scheduler of them, holds tasks back while
//! nobody has what they read, and runs again those whose output is lost and still needed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use eyas_sched::{self as sched, Ended, Event};
use eyas_types::outcome::FailureKind;
use eyas_types::{ExecutorId, JobId, ObjectId, ObjectSpec, Outcome, TaskId};
use eyas_wire::executor::ToExecutor;

use super::Brain;
use crate::job::{Job, Phase};
use crate::journal::Entry;

/// A task whose kept output was lost runs again so many times; then those that need it fail.
pub(super) const MAX_RECOMPUTATIONS: u16 = 5;
/// A task that could not have a kept object, though somebody is said to hold it, tries again so many times.
const MAX_STARVED: u8 = 100;
/// Each time after so long.
const STARVED_PAUSE: Duration = Duration::from_secs(1);
/// After a start, executors have so long to come back with what they hold, before it counts as lost.
const RETURN_GRACE: Duration = Duration::from_secs(15);

/// An executor that leaves in good order stays so long for others to fetch what only it has.
const MOVE_DEADLINE: Duration = Duration::from_secs(60);

/// All kept objects, and those of them that tasks wait for.
pub(crate) struct Kept {
    /// Whose output each is. Tasks that ran again and wrote the same, or take it over, share it.
    tasks: HashMap<ObjectId, Vec<TaskId>>,
    /// Objects that blocked tasks need, and when to look for each again.
    missing: BTreeMap<ObjectId, Missing>,
    /// Objects that nobody holds any more, and that were not looked at since.
    lost: Vec<ObjectId>,
    /// Objects that the journal tells of, and that no executor has reported since.
    unseen: HashSet<ObjectId>,
    began: Instant,
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
        let (tasks, missing, unseen) = (HashMap::new(), BTreeMap::new(), HashSet::new());
        Kept { tasks, missing, lost: Vec::new(), unseen, began: Instant::now(), leaving: BTreeMap::new() }
    }
}

impl Kept {
    /// Nobody holds the object any more.
    pub fn lost(&mut self, object: ObjectId) {
        self.lost.push(object);
    }
}

impl Brain {
    /// A kept object's spec.
    pub(crate) fn kept_spec(&self, object: ObjectId) -> Option<&ObjectSpec> {
        let task = self.kept.tasks.get(&object)?.first()?;
        self.jobs.get(&task.job)?.kept.get(&(task.index, object)).map(|(spec, _)| spec)
    }

    /// All kept objects.
    pub(crate) fn kept_objects(&self) -> impl Iterator<Item = (ObjectId, &ObjectSpec)> {
        self.kept.tasks.keys().filter_map(|object| Some((*object, self.kept_spec(*object)?)))
    }

    /// Takes up what a task has left in the cluster, on `executor` if it was there just now, and lets go of what it left
    /// `before`.
    pub(super) fn take_up_kept(&mut self, task: TaskId, executor: Option<ExecutorId>, before: &[ObjectId]) {
        let Some(job) = self.jobs.get(&task.job) else { return };
        let now: Vec<_> = job.kept_by(task.index).map(|(object, _, replicas)| (object, replicas)).collect();
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
            self.tell(Event::Release { object });
        }
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
            let now = Instant::now();
            let is_unseen = self.kept.unseen.contains(&object);
            let look_at = if is_unseen { now.max(self.kept.began + RETURN_GRACE) } else { now };
            self.kept.missing.entry(object).or_insert(Missing { look_at, is_doubted: false });
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
                let look_at = Instant::now() + STARVED_PAUSE;
                self.kept.missing.insert(object, Missing { look_at, is_doubted: true });
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

    /// Looks at what was lost since, and at what is missing and due.
    pub(super) fn look_for_kept(&mut self) {
        for object in std::mem::take(&mut self.kept.lost) {
            self.hold_readers_back(object);
        }
        self.stop_those_that_may_leave();
        let now = Instant::now();
        let due = self.kept.missing.iter().filter(|(_, missing)| missing.look_at <= now);
        for object in due.map(|(object, _)| *object).collect::<Vec<_>>() {
            if self.scheduler.is_held(object) {
                self.unblock_readers(object);
            } else if !self.scheduler.is_moving(object) {
                self.make_again(object);
            }
        }
    }

    /// Nobody has the object: tasks that wait and read it go out of the queue.
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
                let task = TaskId { job: producer.job, index };
                self.tell(Event::TaskCancelled { task });
                self.refusals.forget(task);
                let Some(job) = self.jobs.get_mut(&producer.job) else { break };
                job.block(index, [producer.index]);
                self.kept.missing.insert(object, Missing { look_at: Instant::now(), is_doubted: false });
            }
        }
    }

    /// Runs those again that wrote a lost object which somebody still waits for.
    fn make_again(&mut self, object: ObjectId) {
        self.kept.missing.remove(&object);
        for producer in self.kept.tasks.get(&object).cloned().unwrap_or_default() {
            let Some(job) = self.jobs.get_mut(&producer.job) else { continue };
            let state = job.tasks[producer.index as usize];
            let readers = job.readers(producer.index, object);
            let is_waited_for = readers.iter().any(|index| job.waits_for(*index).contains(&producer.index));
            if state.phase != Phase::Succeeded || !is_waited_for {
                continue;
            }
            if state.recomputed < MAX_RECOMPUTATIONS {
                self.recompute(producer);
                continue;
            }
            for index in readers {
                if self.jobs[&producer.job].waits_for(index).contains(&producer.index) {
                    let reason = format!(
                        "the output of task {producer} that it reads was lost again and again with the executors that kept \
                         it, and was made {MAX_RECOMPUTATIONS} times more: keep more replicas of it, or write it to \
                         persistent storage"
                    );
                    let task = TaskId { index, ..producer };
                    self.end(task, 0, String::new(), Outcome::failed(FailureKind::Lost, reason));
                }
            }
        }
    }

    fn recompute(&mut self, task: TaskId) {
        tracing::info!(%task, "runs again: nobody has its output, which others need");
        // Results before this entry are of earlier times.
        self.write_results();
        if let Some(job) = self.jobs.get_mut(&task.job) {
            job.recompute(&[task.index]);
        }
        self.write_entry(task.job, Entry::Recomputed(vec![task.index]));
        self.show(task.job);
        self.queue_released(task.job, &[task.index]);
    }
}
