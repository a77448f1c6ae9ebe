//! One job: the phases of its tasks, the dependencies between them, and its counts.
//!
//! A task's moves: `Blocked → Waiting → Assigned → Ended`, back from `Assigned` to `Waiting`, and from `Ended` to
//! `Waiting` or `Blocked` when it is retried, or when what it left in the cluster is lost and still needed; then those
//! that need it go from `Waiting` back to `Blocked`.

mod borrowed;
mod course;
mod growth;
mod inputs;
mod kept;
mod new_job;
mod output;
mod pending;
mod places;
mod retry;
mod snapshot;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use eyas_types::course::{JobState, Metrics, Sample, TaskCounts};
use eyas_types::{
    Distribution, ExecutorId, Input, JobId, ObjectId, ObjectSpec, Outcome, Reads, Status, TaskId, TaskItem, TaskResult,
    TaskTemplate,
};
use serde::{Deserialize, Serialize};

use self::borrowed::BorrowedObject;
pub(crate) use self::course::SAMPLE_EVERY_US;
use self::course::{EndedTask, JobCourse};
pub use self::kept::RetainedOutput;
pub use self::new_job::NewJob;
pub(crate) use self::output::cut_output;
pub use self::output::output_bytes;
use self::pending::Pending;
use self::places::Places;
pub use self::snapshot::{JobSnapshot, JobSummary};
use crate::log::JobEnd;
use crate::spec::JobSpec;

/// Tasks with up to this many inputs do not count among those whose inputs are bounded: what is kept of them is as much
/// as what is kept of any task.
const FEW_INPUTS: usize = 64;

/// Failures that a report describes; it counts the others.
const MAX_FAILURES: usize = 100;

/// The phase of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Waits for an output of another task.
    Blocked,
    /// Waits for an executor.
    #[default]
    Waiting,
    /// Assigned to an executor.
    Assigned,
    /// Has succeeded.
    Succeeded,
    /// Has failed.
    Failed,
    /// Was cancelled.
    Cancelled,
}

impl Phase {
    /// Whether the task has ended. It runs again only if it is retried or its output is lost.
    pub fn has_ended(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed | Phase::Cancelled)
    }

    /// Whether it has failed or was cancelled.
    pub fn has_ended_unsuccessfully(self) -> bool {
        self.has_ended() && self != Phase::Succeeded
    }

    /// Whether a task may go from this phase to the next one. A retry goes on from `Failed` and `Cancelled`, a lost
    /// output from `Succeeded`.
    fn may_become(self, next: Phase) -> bool {
        use Phase::{Assigned, Blocked, Cancelled, Failed, Succeeded, Waiting};
        matches!(
            (self, next),
            (Blocked, Blocked | Waiting | Succeeded | Failed | Cancelled)
                | (Waiting, Blocked | Assigned | Succeeded | Failed | Cancelled)
                | (Assigned, Waiting | Succeeded | Failed | Cancelled)
                | (Succeeded, Waiting)
                | (Failed | Cancelled, Waiting | Blocked)
        )
    }

    /// Its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Blocked => "blocked",
            Phase::Waiting => "waiting",
            Phase::Assigned => "assigned",
            Phase::Succeeded => "succeeded",
            Phase::Failed => "failed",
            Phase::Cancelled => "cancelled",
        }
    }
}

/// The state of a task in memory; by default, of one that has not run. Its result is in the journal.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskState {
    /// The phase of the task.
    pub phase: Phase,
    /// Failed attempts.
    pub failures: u16,
    /// Number of executors that were lost while the task may have run there.
    pub losses: u16,
    /// Number of times that it was recomputed because its kept output was lost.
    pub recomputed: u16,
    /// Attempts that failed because an executor could not get a kept input.
    pub starved: u8,
    /// Attempts that ended with their executors, which were ended in good order.
    pub interrupted: u8,
    /// Number of its inputs, if they are many and it waits in the queue.
    waiting_inputs: u32,
    /// The executor that has it, or had it last.
    pub executor: Option<ExecutorId>,
    /// When it could first run, microseconds from the job's submission.
    pub ready_us: u64,
    /// When it was assigned last, microseconds from the job's submission.
    pub assigned_us: u64,
    /// Once it has ended: the number of the journal entry with its result.
    entry: u64,
}

// There is one for each task.
const _: () = assert!(size_of::<TaskState>() == 48);

/// A job: its tasks, what they wait for and what they have left in the cluster, its counts and its course.
#[derive(Debug)]
pub struct Job {
    /// The id that clients name.
    pub id: JobId,
    /// The job as it was submitted.
    pub spec: Arc<JobSpec>,
    object_ids: Vec<ObjectId>,
    /// Of each template with many inputs, their ids and sizes in order, once they were needed.
    shared_inputs: BTreeMap<u16, Box<[(ObjectId, u64)]>>,
    /// Its tasks.
    pub tasks: Vec<TaskState>,
    /// Number of tasks in each phase.
    pub counts: TaskCounts,
    /// Attempts beyond the first of each task.
    pub retried: u64,
    /// Tasks that ended with the result of another.
    pub reused: u64,
    /// Tasks that ran again because their kept output was lost.
    pub recomputed: u64,
    pub(crate) course: JobCourse,
    /// The first failures: the task, and what happened.
    pub failures: Vec<(TaskId, String)>,
    /// Sum of the inputs of its tasks that wait in the queue and have many.
    waiting_inputs: u64,
    /// The first task that was not yet put into the queue; jobs are put there in parts.
    pub(crate) next_to_queue: u32,
    /// Whether the job as it was submitted is on disk.
    pub(crate) was_accepted: bool,
    /// Whether tasks may still be added.
    pub(crate) is_open: bool,
    /// Bytes of items that are no longer needed, of an attached job.
    done_bytes: usize,
    /// Journal entries written or on their way.
    pub entries: u64,
    /// How many entries the last snapshot covers, if there is one.
    pub(crate) snapshot_entries: Option<u64>,
    /// Entries and earlier results that a snapshot would replace.
    pub(crate) uncovered: u64,
    /// Results in its entries, also those that were removed since.
    pub(crate) results: u64,
    /// Results that were removed from its entries because the task has a later one.
    pub dropped_results: u64,
    /// Results that were not put to be written yet.
    pub(crate) pending: Pending,
    /// Bytes of captured output in its results.
    pub output_bytes: u64,
    /// Most memory that one of its tasks used; 0 if unknown.
    pub peak_memory_bytes: u64,
    /// Output was cut because there was no room for it.
    pub lacked_output_room: bool,
    /// Assigned tasks that were told to end.
    pub(crate) cancelling: BTreeSet<u32>,
    /// When its time began: its submission, microseconds since 1970.
    began_us: u64,
    /// Time during which the job was ended, summed over its ends: from each end to the retry or addition that resumed
    /// it. Not counted in its duration.
    paused_us: u64,
    /// Its time at its end.
    ended_us: Option<u64>,
    /// What is pushed ahead of its tasks is where it is to be, or was given up.
    pub(crate) was_pushed: bool,
    /// Where its tasks' outputs are in persistent storage.
    pub(crate) places: Places,
    /// What tasks have left in the cluster.
    pub(crate) kept: BTreeMap<(u32, ObjectId), RetainedOutput>,
    /// Readers left: for each output that is kept until it is read, by task and place, the number of inputs of
    /// unfinished tasks that still read it.
    unread: BTreeMap<(u32, u16), u32>,
    /// Its outputs need not be kept any longer.
    pub is_released: bool,
    /// For each task that other tasks wait for: those tasks.
    dependents: BTreeMap<u32, Vec<u32>>,
    /// For each blocked task: the tasks that it waits for.
    unmet: BTreeMap<u32, BTreeSet<u32>>,
    /// Whether kept outputs of other jobs are among its objects.
    names_kept: bool,
    /// Kept outputs of other jobs that its tasks read.
    borrowed: BTreeMap<ObjectId, BorrowedObject>,
    /// For each blocked task: those of them that it reads and no executor has.
    lacking: BTreeMap<u32, BTreeSet<ObjectId>>,
    /// What tasks whose outputs are read have delivered. Ids are made when it comes, and not for all inputs of a task
    /// at once.
    produced: BTreeMap<(u32, u16), (ObjectId, ObjectSpec)>,
}

/// Tasks that an end has set free, or made pointless.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FreedTasks {
    pub ready: Vec<u32>,
    pub hopeless: Vec<u32>,
}

impl Job {
    /// A job none of whose tasks has run.
    pub fn new(id: JobId, mut spec: JobSpec) -> Self {
        let (count, is_open, dependencies) = (spec.items.len(), spec.is_attached, spec.dependencies.take());
        let began_us = spec.submitted_unix_ms * 1000;
        let mut object_ids = core::mem::take(&mut spec.object_ids);
        let shared_inputs = core::mem::take(&mut spec.shared_inputs);
        if object_ids.len() != spec.objects.len() {
            object_ids = spec.objects.iter().map(ObjectSpec::id).collect();
        }
        let spec = Arc::new(spec);
        let mut job = Job {
            id,
            object_ids,
            shared_inputs,
            tasks: vec![TaskState::default(); count],
            counts: TaskCounts { waiting: count as u64, ..TaskCounts::default() },
            spec,
            retried: 0,
            reused: 0,
            recomputed: 0,
            peak_memory_bytes: 0,
            course: JobCourse::default(),
            failures: Vec::new(),
            waiting_inputs: 0,
            next_to_queue: 0,
            was_accepted: false,
            is_open,
            done_bytes: 0,
            entries: 0,
            snapshot_entries: None,
            uncovered: 0,
            results: 0,
            dropped_results: 0,
            pending: Pending::default(),
            output_bytes: 0,
            lacked_output_room: false,
            cancelling: BTreeSet::new(),
            began_us,
            paused_us: 0,
            ended_us: None,
            was_pushed: false,
            places: Places::default(),
            kept: BTreeMap::new(),
            unread: BTreeMap::new(),
            is_released: false,
            dependents: BTreeMap::new(),
            unmet: BTreeMap::new(),
            names_kept: false,
            borrowed: BTreeMap::new(),
            lacking: BTreeMap::new(),
            produced: BTreeMap::new(),
        };
        job.depend(dependencies);
        job.count_unread(0);
        job.find_borrowed(0, 0);
        if count == 0 && !is_open {
            job.ended_us = Some(0);
        }
        job
    }

    /// The job's own time, microseconds: it begins with the submission and stands still while the job has ended.
    pub fn time_us(&self, now_us: u64) -> u64 {
        self.ended_us.unwrap_or_else(|| now_us.saturating_sub(self.began_us + self.paused_us))
    }

    /// How long its time has stood still in all, if it goes on now.
    pub(crate) fn paused_until(&self, now_us: u64) -> u64 {
        match self.ended_us {
            Some(ended_us) => now_us.saturating_sub(self.began_us + ended_us).max(self.paused_us),
            None => self.paused_us,
        }
    }

    /// Lets the job's time continue, because these tasks run again.
    fn go_on(&mut self, again: &[u32], paused_us: u64) {
        if !again.is_empty() {
            (self.ended_us, self.paused_us) = (None, paused_us);
        }
    }

    /// The id of its task at this index.
    pub fn task_id(&self, index: u32) -> TaskId {
        TaskId { job: self.id, index }
    }

    /// The template of an item.
    pub fn template_of(&self, item: &TaskItem) -> &TaskTemplate {
        &self.spec.templates[usize::from(item.template)]
    }

    /// The template of the task at this index.
    pub fn template_at(&self, index: u32) -> &TaskTemplate {
        &self.spec.templates[usize::from(self.spec.items.template(index))]
    }

    // ---- moves

    /// Moves a task to another phase.
    pub(super) fn enter(&mut self, index: u32, phase: Phase) {
        let id = self.task_id(index);
        let state = &mut self.tasks[index as usize];
        let before = state.phase;
        assert!(before.may_become(phase), "task {id} cannot go from {before:?} to {phase:?}: {state:?}");
        state.phase = phase;
        if phase != Phase::Waiting {
            self.waiting_inputs -= u64::from(core::mem::take(&mut state.waiting_inputs));
        }
        *count(&mut self.counts, before) -= 1;
        *count(&mut self.counts, phase) += 1;
        if (before == Phase::Succeeded) != (phase == Phase::Succeeded) {
            self.note_read(index, phase == Phase::Succeeded);
        }
        if phase != Phase::Blocked {
            self.lacking.remove(&index);
        }
    }

    /// Whether its tasks wait until what they read is with every executor that may run them.
    pub fn is_pushed_first(&self) -> bool {
        self.spec.distribution == Distribution::SpanningTree && !self.was_pushed && !self.spec.pushed().is_empty()
    }

    /// Whether its inputs may still be pushed: along a spanning tree, only before its tasks begin.
    pub(crate) fn may_be_pushed(&self) -> bool {
        self.spec.distribution != Distribution::SpanningTree || !self.was_pushed
    }

    /// How many of these tasks have not ended.
    pub fn unfinished(&self, tasks: Range<u32>) -> u64 {
        let tasks = &self.tasks[tasks.start as usize..tasks.end as usize];
        tasks.iter().filter(|state| !state.phase.has_ended()).count() as u64
    }

    /// How many tasks a retry would run again.
    pub fn retryable(&self) -> u64 {
        self.failed_tasks().len() as u64
    }

    /// How many objects its tasks keep in the cluster.
    pub fn kept_count(&self) -> u64 {
        self.kept.len() as u64
    }

    /// The task is in the queue now.
    pub(crate) fn queued(&mut self, now_us: u64, index: u32, inputs: &[(ObjectId, u64)]) {
        let ready_us = self.time_us(now_us);
        let state = &mut self.tasks[index as usize];
        state.ready_us = ready_us;
        self.waiting_inputs -= u64::from(state.waiting_inputs);
        state.waiting_inputs = if inputs.len() > FEW_INPUTS { inputs.len() as u32 } else { 0 };
        self.waiting_inputs += u64::from(state.waiting_inputs);
        self.course.arrived(inputs.iter().map(|(_, size_bytes)| size_bytes).sum());
    }

    /// Sum of the inputs of its tasks that wait in the queue and have many.
    pub(crate) fn waiting_inputs(&self) -> u64 {
        self.waiting_inputs
    }

    pub(crate) fn assigned(&mut self, now_us: u64, index: u32, executor: ExecutorId) {
        let assigned_us = self.time_us(now_us);
        let state = &mut self.tasks[index as usize];
        state.assigned_us = assigned_us;
        state.executor = Some(executor);
        self.enter(index, Phase::Assigned);
    }

    /// The task is in the queue again.
    pub(crate) fn unassigned(&mut self, index: u32) {
        self.enter(index, Phase::Waiting);
    }

    /// The task has ended for good. Books the end, adds the result to the pending ones, and returns the tasks that may
    /// run now, and those that never can.
    pub(crate) fn ended(
        &mut self,
        now_us: u64,
        index: u32,
        attempt: u32,
        executor: String,
        outcome: Outcome,
    ) -> FreedTasks {
        let at_us = self.time_us(now_us);
        let state = self.tasks[index as usize];
        let was_assigned = state.phase == Phase::Assigned;
        let queued_us = if was_assigned { state.assigned_us.saturating_sub(state.ready_us) } else { 0 };
        let ready_us = if state.ready_us == 0 { at_us } else { state.ready_us };
        let away_us = if was_assigned { at_us.saturating_sub(state.assigned_us) } else { 0 };
        let delivery_us = away_us.saturating_sub(outcome.waited_us + outcome.ran_us + outcome.suspended_us);
        let result = TaskResult { index, attempt, executor, queued_us, delivery_us, outcome };
        let end = JobEnd { at_us, ready_us, output_bytes: output_bytes(&result.outcome), result };
        let freed = self.book(&end);
        self.tasks[index as usize].entry += self.pending.push(end);
        freed
    }

    /// Books an end: live, or again when it is read from the journal.
    pub(crate) fn book(&mut self, end: &JobEnd) -> FreedTasks {
        let JobEnd { at_us, ready_us, output_bytes, ref result } = *end;
        let index = result.index;
        self.tasks[index as usize].ready_us = ready_us;
        let phase = match &result.outcome.status {
            Status::Succeeded => Phase::Succeeded,
            Status::Cancelled => Phase::Cancelled,
            _ => Phase::Failed,
        };
        if phase == Phase::Failed && self.failures.len() < MAX_FAILURES {
            self.failures.push((self.task_id(index), result.outcome.status.to_string()));
        }
        self.retried += u64::from(result.attempt);
        self.reused += u64::from(result.outcome.reused.is_some());
        let outcome = &result.outcome;
        self.results += 1;
        self.output_bytes += output_bytes;
        self.peak_memory_bytes = self.peak_memory_bytes.max(outcome.peak_memory_bytes);
        if phase == Phase::Cancelled {
            // A cancelled run counts neither as throughput nor in the estimates of time.
            self.course.cancelled(outcome.reads);
        } else {
            self.course.ended(&EndedTask {
                at_us,
                ready_us,
                queued_us: result.queued_us,
                waited_us: outcome.waited_us,
                ran_us: outcome.ran_us,
                delivery_us: result.delivery_us,
                cpu_us: outcome.cpu_us,
                reads: outcome.reads,
            });
        }
        self.cancelling.remove(&index);
        self.enter(index, phase);
        self.tasks[index as usize].entry = self.entries;
        // It may have been given up while it waited for others.
        self.unmet.remove(&index);
        let has_succeeded_before = self.tasks[index as usize].recomputed > 0;
        if !self.spec.is_attached {
            self.places.ended(index, &result.outcome, has_succeeded_before);
        }
        self.note_kept(index, &result.outcome);
        let freed = self.free_dependents(index, phase, &result.outcome);
        for ready in &freed.ready {
            self.enter(*ready, Phase::Waiting);
        }
        if self.counts.ended() == self.counts.total() && !self.is_open {
            self.ended_us = Some(at_us);
        }
        freed
    }

    /// Gives the outputs of an ended task to the tasks that read them. Returns the tasks that wait for no other one,
    /// and those that never can run.
    fn free_dependents(&mut self, index: u32, phase: Phase, outcome: &Outcome) -> FreedTasks {
        let mut freed = FreedTasks::default();
        let dependents = self.dependents.get(&index).cloned();
        // Tasks that read its outputs may still be added.
        if dependents.is_some() || self.is_open {
            // The files of a glob share one output index. They are inserted in reverse, so the first file is kept.
            for delivered in outcome.outputs.iter().rev() {
                let object = delivered.object.clone();
                self.produced.insert((index, delivered.output), (object.id(), object));
            }
        }
        for dependent in dependents.into_iter().flatten() {
            let Some(unmet) = self.unmet.get_mut(&dependent) else { continue };
            if phase != Phase::Succeeded {
                freed.hopeless.push(dependent);
                continue;
            }
            unmet.remove(&index);
            if unmet.is_empty() {
                self.unmet.remove(&dependent);
                // A task may succeed without an optional output.
                let item = self.spec.items.get(dependent);
                let is_complete = self.inputs(&item).all(|(_, object)| object.is_some());
                if is_complete { &mut freed.ready } else { &mut freed.hopeless }.push(dependent);
            }
        }
        freed
    }

    /// The number of an entry that is going to be written.
    pub(crate) fn next_entry(&mut self) -> u64 {
        self.entries += 1;
        self.entries - 1
    }

    /// The latest result of a task that has not been given to the journal.
    pub fn pending_result(&self, index: u32) -> Option<&TaskResult> {
        self.pending.last(index)
    }

    /// Its course so far, in order.
    pub fn samples(&self) -> &[Sample] {
        self.course.samples()
    }

    /// Its sums and averages.
    pub fn metrics(&self, now_us: u64) -> Metrics {
        self.course.metrics(self.time_us(now_us))
    }

    /// Where inputs came from so far.
    pub fn reads(&self) -> Reads {
        self.course.reads()
    }

    // ---- how it stands

    /// Whether all its tasks have, and no more can be added.
    pub fn has_ended(&self) -> bool {
        self.ended_us.is_some()
    }

    /// Whether all tasks that have not ended were told to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.counts.waiting + self.counts.blocked == 0 && self.cancelling.len() as u64 == self.counts.assigned
    }

    /// Its state.
    pub fn state(&self) -> JobState {
        match (self.has_ended(), self.counts.failed, self.counts.cancelled) {
            (false, _, _) => JobState::Running,
            (true, 0, 0) => JobState::Succeeded,
            (true, 0, _) => JobState::Cancelled,
            (true, _, _) => JobState::Failed,
        }
    }

    /// The journal entry with an ended task's result; it may not be written yet.
    pub fn entry_of(&self, index: u32) -> Option<u64> {
        let state = &self.tasks[index as usize];
        state.phase.has_ended().then_some(state.entry)
    }

    /// Tasks whose outputs a blocked task waits for.
    pub fn waits_for(&self, index: u32) -> Vec<u32> {
        self.unmet.get(&index).map(|unmet| unmet.iter().copied().collect()).unwrap_or_default()
    }

    /// Whether a blocked task waits for an output of `producer`.
    pub(crate) fn waits_on(&self, index: u32, producer: u32) -> bool {
        self.unmet.get(&index).is_some_and(|unmet| unmet.contains(&producer))
    }

    /// When the task was assigned, microseconds since 1970, for comparison with tasks of other jobs.
    pub(crate) fn assigned_at(&self, index: u32) -> u64 {
        self.began_us + self.paused_us + self.tasks[index as usize].assigned_us
    }
}

fn producer(input: &Input) -> Option<u32> {
    input.from.output().map(|(task, _)| task)
}

fn count(counts: &mut TaskCounts, phase: Phase) -> &mut u64 {
    match phase {
        Phase::Blocked => &mut counts.blocked,
        Phase::Waiting => &mut counts.waiting,
        Phase::Assigned => &mut counts.assigned,
        Phase::Succeeded => &mut counts.succeeded,
        Phase::Failed => &mut counts.failed,
        Phase::Cancelled => &mut counts.cancelled,
    }
}
