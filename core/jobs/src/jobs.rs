//! The decider of jobs: its state, and which part handles each event.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use eyas_types::course::Sample;
use eyas_types::{ExecutorId, JobId, ObjectId, ObjectSpec, TaskId};

use crate::event::{Effect, Event, JobsAction, SchedulerOrder};
use crate::health::Health;
use crate::job::{Job, JobSummary, NewJob, Phase, SAMPLE_EVERY_US};
use crate::lineage::Lineage;
use crate::log::Replay;
use crate::refusals::Refusals;
use crate::reuse::Reuse;

/// Default bound on the captured output of all jobs in the journal and beside it, bytes.
const MAX_JOURNAL_OUTPUT_BYTES: u64 = 16 << 30;
/// Default number of ended jobs that are remembered.
const MAX_ENDED_JOBS: usize = 200;

/// Default number of ended jobs that are in memory.
const MAX_ENDED_IN_MEMORY: usize = 20;
/// Default bound on the memory of ended jobs, bytes: some two million tasks.
const MAX_ENDED_BYTES_IN_MEMORY: u64 = 256 << 20;

/// Default number of inputs of the tasks that one event puts into the queue, about. For example one
/// event queues 100 tasks with 1,000 inputs each.
const INPUTS_AT_ONCE: u64 = 100_000;

/// Default number of inputs of the tasks of one job that wait in the queue, about. The scheduler
/// needs some 20 bytes for each. For example 4,000 tasks with 1,000 inputs each, and 80 MB.
const MAX_WAITING_INPUTS: u64 = 4_000_000;

/// Settings of a decider of jobs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Captured output that the journal keeps, of all jobs, in bytes. When there is more, the
    /// oldest ended jobs are forgotten, with their results; and when that is not enough, further
    /// output is cut.
    pub max_output_bytes: u64,
    /// Ended jobs that are remembered; then the oldest is forgotten, with its results.
    pub max_ended_jobs: usize,
    /// Ended jobs that are in memory; the others are in the journal alone. Jobs for which
    /// executors hold objects are not counted, and stay in memory.
    pub max_ended_in_memory: usize,
    /// Roughly the bytes that ended jobs take in memory.
    pub max_ended_bytes_in_memory: u64,
    /// Tasks are queued until they have about this many inputs, each of them counting as one more.
    /// Other events come before further tasks are queued.
    pub inputs_at_once: u64,
    /// No more tasks of a job are queued while those that wait in the queue have this many inputs.
    /// Tasks with few inputs do not count.
    pub waiting_inputs: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_output_bytes: MAX_JOURNAL_OUTPUT_BYTES,
            max_ended_jobs: MAX_ENDED_JOBS,
            max_ended_in_memory: MAX_ENDED_IN_MEMORY,
            max_ended_bytes_in_memory: MAX_ENDED_BYTES_IN_MEMORY,
            inputs_at_once: INPUTS_AT_ONCE,
            waiting_inputs: MAX_WAITING_INPUTS,
        }
    }
}

/// All jobs, and what is decided about them.
#[derive(Debug)]
pub struct Jobs {
    pub(crate) config: Config,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// Ended jobs that are not in memory.
    pub(crate) archived: BTreeMap<JobId, JobSummary>,
    next_job: u32,
    /// Executors that are here, and their names.
    pub(crate) executors: BTreeMap<ExecutorId, String>,
    pub(crate) health: Health,
    /// Jobs with tasks that are not queued yet.
    pub(crate) queueing: Vec<JobId>,
    /// Tasks that are no longer blocked and wait to be queued, because others had many inputs.
    pub(crate) set_aside: BTreeSet<TaskId>,
    pub(crate) refusals: Refusals,
    pub(crate) lineage: Lineage,
    pub(crate) reuse: Reuse,
    /// Bytes of captured output that the journal keeps.
    pub(crate) output_bytes: u64,
    /// Jobs that clients watch: those are not forgotten.
    pub(crate) watched: BTreeSet<JobId>,
    /// Processors of all executors and those with a task, thousandths, as they were told last.
    pub(crate) processors: (u64, u64),
    is_stopping: bool,
    /// When the last [`Event::Tick`] was told.
    ticked_us: u64,
    /// Microseconds since 1970, as the event under way was told.
    pub(crate) now_us: u64,
    pub(crate) effects: Vec<Effect>,
    /// Tasks that are taken out of the queue, and how many effects came before.
    withdrawn: BTreeMap<TaskId, usize>,
}

impl Jobs {
    /// No jobs and no executors. Executors of an earlier dispatcher may come back from `now_us` on.
    pub fn new(config: Config, now_us: u64) -> Self {
        Jobs {
            config,
            jobs: BTreeMap::new(),
            archived: BTreeMap::new(),
            next_job: 1,
            executors: BTreeMap::new(),
            health: Health::default(),
            queueing: Vec::new(),
            set_aside: BTreeSet::new(),
            refusals: Refusals::default(),
            lineage: Lineage::new(now_us),
            reuse: Reuse::default(),
            output_bytes: 0,
            watched: BTreeSet::new(),
            processors: (0, 0),
            is_stopping: false,
            ticked_us: now_us,
            now_us,
            effects: Vec::new(),
            withdrawn: BTreeMap::new(),
        }
    }

    /// Applies one event, told at `now_us` (microseconds since 1970, never less than before), and
    /// adds to `effects` what is to be done about it, in order.
    ///
    /// # Panics
    /// If the event contradicts earlier ones.
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        self.now_us = self.now_us.max(now_us);
        mem::swap(&mut self.effects, effects);
        match event {
            Event::Submitted { job } => self.submitted(*job),
            Event::Attached { spec } => self.attached(*spec),
            Event::Extended { job, extension } => self.extended(job, *extension),
            Event::Unneeded { job, tasks } => self.unneeded(job, &tasks),
            Event::Closed { job } => self.closed(job),
            Event::Deliver => self.deliver(),
            Event::Accepted { job } => self.begin(job),
            Event::Recovered { replay } => self.recovered(*replay),
            Event::RecoveredSummary { summary } => self.recovered_summary(*summary),
            Event::Pushed { job } => self.pushed(job),
            Event::QueueMore { tasks } => self.queue_more(tasks),
            Event::ExecutorJoined { executor, name } => {
                self.executors.insert(executor, name);
            }
            Event::ExecutorGone { executor, tasks, lost_with, suspended } => {
                self.executor_gone(executor, &tasks, lost_with, &suspended);
            }
            Event::ExecutorLeaves { executor } => self.let_leave(executor),
            Event::Moving { executor, objects } => self.moving(executor, objects),
            Event::Assigned { task, executor } => {
                let job =
                    self.jobs.get_mut(&task.job).expect("only tasks of known jobs are queued");
                job.assigned(self.now_us, task.index, executor);
            }
            Event::Unplaceable { task } => self.unplaceable(task),
            Event::TaskEnded { executor, task, attempt, outcome } => {
                self.task_ended(executor, task, attempt, *outcome);
            }
            Event::TaskReturned { executor, task, attempt } => {
                self.task_returned(executor, task, attempt)
            }
            Event::ObjectLost { object } => self.object_lost(object),
            Event::ObjectFound { object } => self.object_found(object),
            Event::Located { moving, nowhere } => self.located(&moving, &nowhere),
            Event::ObjectWanted { object } => self.lineage.want(self.now_us, object),
            Event::EarlierResult { task, earlier, outcome } => {
                self.earlier_result(task, earlier, outcome)
            }
            Event::Claim { executor, task, places } => self.claim(executor, task, places),
            Event::Checked { executor, task, is_unchanged } => {
                self.checked(executor, task, is_unchanged)
            }
            Event::Cancel { job, tasks } => self.cancel(job, tasks),
            Event::Retry { job, current } => self.retry(job, current),
            Event::Release { job } => self.release(job),
            Event::Forget { job } => self.forget(job),
            Event::Watched { job } => _ = self.watched.insert(job),
            Event::Tick { capacity_milli, busy_milli, watched } => {
                self.processors = (capacity_milli, busy_milli);
                self.watched = watched;
                self.ticked_us = self.now_us;
                self.sample();
                self.retain();
            }
            Event::Flush => self.flush(),
            Event::Stopping => self.is_stopping = true,
        }
        self.pass_time();
        self.withdraw_first();
        mem::swap(&mut self.effects, effects);
    }

    /// Takes a task that waits out of the queue.
    pub(crate) fn withdraw(&mut self, task: TaskId) {
        self.withdrawn.insert(task, self.effects.len());
        self.set_aside.remove(&task);
        self.refusals.forget(task);
    }

    /// Puts the withdrawal of tasks before all other effects, and removes earlier effects that
    /// would queue them.
    fn withdraw_first(&mut self) {
        if self.withdrawn.is_empty() {
            return;
        }
        let withdrawn = mem::take(&mut self.withdrawn);
        let mut place = 0;
        self.effects.retain(|effect| {
            place += 1;
            let Effect::Order(SchedulerOrder::Queue { task, .. }) = effect else { return true };
            withdrawn.get(task).is_none_or(|before| place > *before)
        });
        self.effects.insert(
            0,
            Effect::Order(SchedulerOrder::Withdraw { tasks: withdrawn.into_keys().collect() }),
        );
    }

    /// Does everything that is due, after each event.
    fn pass_time(&mut self) {
        self.queue_refused();
        for executor in self.health.due(self.now_us) {
            self.effects.push(Effect::Order(SchedulerOrder::TakeBack { executor }));
            self.effects.push(Effect::Action(JobsAction::TakenBack { executor }));
        }
        // Executors of a cluster that stops leave with what they hold, and come back with it.
        if !self.is_stopping {
            self.look_after_kept();
        }
    }

    /// The next deadline, microseconds since 1970. Any event at or after the deadline handles it.
    pub fn next_timeout(&self) -> Option<u64> {
        let lineage = self.lineage.next_timeout().filter(|_| !self.is_stopping);
        [self.refusals.next_timeout(), lineage, self.health.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// When the next [`Event::Tick`] is due, microseconds since 1970: there is none while no job
    /// runs, unless a snapshot is owed.
    pub fn next_tick(&self) -> Option<u64> {
        let is_due = self.owes_snapshots() || self.jobs.values().any(|job| !job.has_ended());
        is_due.then_some(self.ticked_us + SAMPLE_EVERY_US)
    }

    // ---- what there is

    /// The id that the next submitted job gets.
    pub fn next_job(&self) -> JobId {
        JobId(self.next_job)
    }

    /// All jobs that are in memory, the oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.jobs.values()
    }

    /// Ended jobs that are not in memory, the oldest first.
    pub fn archived(&self) -> impl Iterator<Item = &JobSummary> {
        self.archived.values()
    }

    /// What is remembered of a job that is not in memory.
    pub fn summary(&self, job: JobId) -> Option<&JobSummary> {
        self.archived.get(&job)
    }

    /// Whether a job is remembered, but not in memory.
    pub fn is_archived(&self, job: JobId) -> bool {
        self.archived.contains_key(&job)
    }

    /// A job that is in memory.
    pub fn get(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job)
    }

    /// Whether tasks of new jobs, or tasks that one end has released, can be queued now.
    pub fn has_more_to_queue(&self) -> bool {
        !self.set_aside.is_empty() || self.next_to_queue().is_some()
    }

    /// Whether an entry of results is full, so that waiting would not make it larger.
    pub fn has_full_entry(&self) -> bool {
        self.jobs.values().any(|job| job.recorded.pending.has_full_entry())
    }

    /// Bytes of captured output that the journal keeps.
    pub fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// How much captured output the journal may keep, bytes.
    pub fn max_output_bytes(&self) -> u64 {
        self.config.max_output_bytes
    }

    /// Why a task waits to be offered to executors again, if it does.
    pub fn why_refused(&self, task: TaskId) -> Option<&str> {
        self.refusals.why_waiting(task)
    }

    /// Until when an executor is given no tasks, if it is set aside, microseconds since 1970.
    pub fn set_aside_until(&self, executor: ExecutorId) -> Option<u64> {
        self.health.set_aside_until(executor)
    }

    /// Executors that leave once what only they hold is elsewhere.
    pub fn leaving(&self) -> impl Iterator<Item = ExecutorId> {
        self.lineage.leaving()
    }

    /// A kept object's spec.
    pub fn kept_spec(&self, object: ObjectId) -> Option<&ObjectSpec> {
        let left = |task: &TaskId| self.jobs.get(&task.job)?.kept.get(task.index, object);
        if let Some(left) = self.lineage.writers(object).first().and_then(left) {
            return Some(&left.object);
        }
        self.lineage
            .borrowers(object)
            .first()
            .and_then(|job| self.jobs.get(job)?.borrowed_spec(object))
    }

    /// All kept objects.
    pub fn kept_objects(&self) -> impl Iterator<Item = (ObjectId, &ObjectSpec)> {
        self.lineage.objects().filter_map(|object| Some((object, self.kept_spec(object)?)))
    }

    /// Whether executors may still be coming back, as the dispatcher has just started.
    pub fn awaits_executors(&self, now_us: u64) -> bool {
        self.lineage.awaits_executors(now_us)
    }

    /// Whether an executor that was there before a restart may come back with the object.
    pub fn may_come_back(&self, object: ObjectId) -> bool {
        self.lineage.is_unseen(object)
    }

    pub(crate) fn phase(&self, task: TaskId) -> Option<Phase> {
        self.jobs.get(&task.job).map(|job| job.tasks[task.index as usize].phase)
    }

    pub(crate) fn name_of(&self, executor: ExecutorId) -> String {
        self.executors.get(&executor).cloned().unwrap_or_default()
    }

    // ---- jobs come

    fn submitted(&mut self, new: NewJob) {
        let id = self.take_id();
        let job = new.submit(id, self.now_us / 1000);
        self.effects.push(Effect::Action(JobsAction::Write(crate::log::JournalRecord::Job {
            job: id,
            spec: job.spec.clone(),
        })));
        self.jobs.insert(id, job);
        self.borrow(id);
    }

    /// The id of a new job.
    pub(crate) fn take_id(&mut self) -> JobId {
        let id = self.next_job();
        self.next_job += 1;
        id
    }

    /// Begins a job: queues its tasks, or has its inputs pushed before.
    pub(crate) fn begin(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.was_accepted = true;
        let waits = job.is_pushed_first();
        self.effects.push(Effect::Action(JobsAction::Broadcast { job: id }));
        if !waits {
            self.queueing.push(id);
        }
    }

    /// Later jobs get later ids.
    pub(crate) fn note_id(&mut self, job: JobId) {
        self.next_job = self.next_job.max(job.0 + 1);
    }

    /// A job from the journal goes on where it was.
    fn recovered(&mut self, replay: Replay) {
        let Replay { mut job, hopeless } = replay;
        let id = job.id;
        self.note_id(id);
        // One that was archived comes back into memory, because a client changes it.
        let was_archived = self.archived.remove(&id).is_some();
        if !was_archived {
            self.output_bytes += job.recorded.output_bytes;
        }
        job.was_accepted = true;
        let cancelled = mem::take(&mut job.cancelling);
        let goes_on = !job.has_ended();
        job.course.resume(job.time_us(self.now_us));
        if !goes_on {
            job.next_to_queue = job.tasks.len() as u32;
        }
        let kept: BTreeSet<u32> = job.kept.keys().map(|(index, _)| index).collect();
        let (reuses, count) = (job.spec.reuse, job.tasks.len() as u32);
        self.jobs.insert(id, job);
        if goes_on {
            self.borrow(id);
            self.begin(id);
        }
        for index in kept {
            self.take_up_kept(TaskId { job: id, index }, None, &[]);
        }
        if reuses && !was_archived {
            (0..count).for_each(|index| self.note_reusable(TaskId { job: id, index }));
        }
        self.end_what_cannot_go_on(id, &cancelled, &hopeless);
    }

    /// Closes an interval of each job's course.
    fn sample(&mut self) {
        let (capacity_milli, busy_milli) = self.processors;
        let executors = self.executors.len() as u64;
        for job in self.jobs.values_mut().filter(|job| !job.has_ended()) {
            let (at_us, counts) = (job.time_us(self.now_us), job.counts());
            let (waiting, assigned) = (counts.waiting, counts.assigned);
            let state = Sample {
                at_us,
                waiting,
                assigned,
                executors,
                capacity_milli,
                busy_milli,
                ..Sample::default()
            };
            job.course.tick(false, state);
            // What gathers is written soon, and shown then.
            if self.watched.contains(&job.id) && job.recorded.pending.is_empty() {
                self.effects.push(Effect::Action(JobsAction::Show { job: job.id }));
            }
        }
        let old: Vec<_> = self
            .jobs
            .values()
            .filter(|job| job.course.has_old_samples())
            .map(|job| job.id)
            .collect();
        old.into_iter().for_each(|job| self.write_samples(job));
    }

    /// Closes a job's course with its last task, so that a short one has a sample too.
    pub(crate) fn close_course(&mut self, id: JobId) {
        let ((capacity_milli, busy_milli), executors) =
            (self.processors, self.executors.len() as u64);
        let now_us = self.now_us;
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.has_ended()) {
            let at_us = job.time_us(now_us);
            job.course.tick(
                true,
                Sample { at_us, executors, capacity_milli, busy_milli, ..Sample::default() },
            );
        }
    }
}
