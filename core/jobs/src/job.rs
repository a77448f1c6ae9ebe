//! One job: the phases of its tasks, the dependencies between them, and its counts.
//!
//! A task's moves: `Blocked → Waiting → Assigned → Ended`, back from `Assigned` to `Waiting`, and
//! from `Ended` to `Waiting` or `Blocked` when it is retried, or when what it left in the cluster
//! is lost and still needed; then those that need it go from `Waiting` back to `Blocked`.

mod borrowed;
mod clock;
mod course;
mod kept;
mod moves;
mod new_job;
mod objects;
mod output;
mod pending;
mod places;
mod recorded;
mod snapshot;
mod task_table;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use eyas_types::course::{JobState, Metrics, Sample, TaskCounts};
use eyas_types::{
    Distribution, Input, JobId, Need, ObjectId, ObjectSpec, Reads, TaskId, TaskItem, TaskResult,
    TaskTemplate,
};

use self::borrowed::BorrowedObjects;
use self::clock::JobClock;
use self::course::JobCourse;
pub(crate) use self::course::SAMPLE_EVERY_US;
pub use self::kept::RetainedOutput;
use self::kept::RetainedOutputs;
pub use self::new_job::NewJob;
use self::objects::ReadObjects;
pub(crate) use self::output::cut_output;
pub use self::output::output_bytes;
use self::places::Places;
use self::recorded::RecordedJob;
pub use self::snapshot::{JobSnapshot, JobSummary};
pub use self::task_table::{Phase, TaskState, TaskTable};
use crate::dependencies::Dependencies;
use crate::spec::JobSpec;

/// A job: its tasks, what they wait for and what they have left in the cluster, its counts and its
/// course.
#[derive(Debug)]
pub struct Job {
    /// The id that clients name.
    pub id: JobId,
    /// The job as it was submitted.
    pub spec: Arc<JobSpec>,
    /// Its tasks.
    pub tasks: TaskTable,
    objects: ReadObjects,
    dependencies: Dependencies,
    /// What tasks have left in the cluster.
    pub(crate) kept: RetainedOutputs,
    borrowed: BorrowedObjects,
    /// Where its tasks' outputs are in persistent storage.
    pub(crate) places: Places,
    pub(crate) recorded: RecordedJob,
    clock: JobClock,
    pub(crate) course: JobCourse,
    /// Attempts beyond the first of each task.
    pub retried: u64,
    /// Tasks that ended with the result of another.
    pub reused: u64,
    /// Tasks that ran again because their kept output was lost.
    pub recomputed: u64,
    /// The first failures: the task, and what happened.
    pub failures: Vec<(TaskId, String)>,
    /// Most memory that one of its tasks used; 0 if unknown.
    pub peak_memory_bytes: u64,
    /// The first task that was not yet put into the queue; jobs are put there in parts.
    pub(crate) next_to_queue: u32,
    /// Whether the job as it was submitted is on disk.
    pub(crate) was_accepted: bool,
    /// Whether tasks may still be added.
    pub(crate) is_open: bool,
    /// Bytes of items that are no longer needed, of an attached job.
    done_bytes: usize,
    /// Assigned tasks that were told to end.
    pub(crate) cancelling: BTreeSet<u32>,
    /// Assigned tasks of whose inputs some were replaced or left out since, by tasks that ran
    /// again.
    outdated: BTreeSet<u32>,
    /// Its inputs are pushed: [`JobsAction::Broadcast`](crate::JobsAction::Broadcast) has not been
    /// followed by [`JobsAction::EndBroadcast`](crate::JobsAction::EndBroadcast) yet.
    pub(crate) has_broadcast: bool,
    /// What is pushed ahead of its tasks is where it is to be, or was given up.
    pub(crate) was_pushed: bool,
    /// Whether tasks may succeed without an output.
    has_optional_outputs: bool,
}

/// Tasks that an end has set free, or made pointless.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FreedTasks {
    pub ready: Vec<u32>,
    pub hopeless: Vec<u32>,
    /// What the task had written before and has now written otherwise or left out, if assigned
    /// tasks read it: each output and its object.
    pub replaced: Vec<(u16, ObjectSpec)>,
}

impl Job {
    /// A job none of whose tasks has run.
    pub fn new(id: JobId, mut spec: JobSpec) -> Self {
        let (count, is_open, dependencies) =
            (spec.items.len(), spec.is_attached, spec.dependencies.take());
        let clock = JobClock { began_us: spec.submitted_unix_ms * 1000, ..JobClock::default() };
        let objects = ReadObjects::of(&mut spec);
        let mut job = Job {
            id,
            spec: Arc::new(spec),
            tasks: TaskTable::of(count),
            objects,
            dependencies: Dependencies::default(),
            kept: RetainedOutputs::default(),
            borrowed: BorrowedObjects::default(),
            places: Places::default(),
            recorded: RecordedJob::default(),
            clock,
            course: JobCourse::default(),
            retried: 0,
            reused: 0,
            recomputed: 0,
            failures: Vec::new(),
            peak_memory_bytes: 0,
            next_to_queue: 0,
            was_accepted: false,
            is_open,
            done_bytes: 0,
            cancelling: BTreeSet::new(),
            outdated: BTreeSet::new(),
            has_broadcast: false,
            was_pushed: false,
            has_optional_outputs: false,
        };
        job.note_optional_outputs();
        job.depend(dependencies);
        job.kept.count_unread(&job.spec, 0);
        job.borrowed.find(&job.spec, job.objects.ids(), 0, 0);
        if count == 0 && !is_open {
            job.clock.ended_us = Some(0);
        }
        job
    }

    /// The job's own time, microseconds: it begins with the submission and stands still while the
    /// job has ended.
    pub fn time_us(&self, now_us: u64) -> u64 {
        self.clock.time_us(now_us)
    }

    /// How long its time has stood still in all, if it goes on now.
    pub(crate) fn paused_until(&self, now_us: u64) -> u64 {
        self.clock.paused_until(now_us)
    }

    /// When the task was assigned, microseconds since 1970, for comparison with tasks of other
    /// jobs.
    pub(crate) fn assigned_at(&self, index: u32) -> u64 {
        self.clock.at(self.tasks[index as usize].assigned_us)
    }

    /// The id of its task at this index.
    pub fn task_id(&self, index: u32) -> TaskId {
        TaskId { job: self.id, index }
    }

    /// The template of an item.
    pub fn template_of(&self, item: &TaskItem) -> &TaskTemplate {
        self.spec.template_of(item)
    }

    /// The template of the task at this index.
    pub fn template_at(&self, index: u32) -> &TaskTemplate {
        &self.spec.templates[usize::from(self.spec.items.template(index))]
    }

    // ---- what its tasks read

    /// All inputs of a task, its template's first, with the objects they stand for. Every producer
    /// has delivered.
    pub fn inputs<'a>(
        &'a self,
        item: &'a TaskItem,
    ) -> impl Iterator<Item = (&'a Input, Option<&'a ObjectSpec>)> {
        self.inputs_with_ids(item).map(|(input, object)| (input, object.map(|(_, object)| object)))
    }

    /// The same, with the ids of the objects.
    pub fn inputs_with_ids<'a>(
        &'a self,
        item: &'a TaskItem,
    ) -> impl Iterator<Item = (&'a Input, Option<(ObjectId, &'a ObjectSpec)>)> {
        self.objects.inputs(&self.spec, item, 0)
    }

    /// The same, without the `first` inputs.
    pub fn inputs_from<'a>(
        &'a self,
        item: &'a TaskItem,
        first: usize,
    ) -> impl Iterator<Item = (&'a Input, Option<(ObjectId, &'a ObjectSpec)>)> {
        self.objects.inputs(&self.spec, item, first)
    }

    /// All objects that its tasks read: those it was submitted with, then those its tasks wrote for
    /// others.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &ObjectSpec)> {
        self.objects.all(&self.spec)
    }

    /// The ids and sizes of a task's inputs, each once.
    pub fn input_ids(&self, item: &TaskItem) -> Vec<(ObjectId, u64)> {
        self.objects.input_ids(&self.spec, item)
    }

    /// What the scheduler is told of a task: its inputs, and what it needs of an executor.
    pub(crate) fn needs_of(&mut self, index: u32) -> (Arc<[(ObjectId, u64)]>, Need) {
        self.objects.needs_of(&self.spec, &self.spec.items.get(index))
    }

    /// Inputs of a task that are kept until they are read: the index of the task that wrote each,
    /// and the object.
    pub fn inputs_until_read(&self, index: u32) -> Vec<(u32, ObjectId)> {
        if !self.kept.has_unread() {
            return Vec::new();
        }
        let item = self.spec.items.get(index);
        let inputs = self.inputs_with_ids(&item).filter_map(|(input, object)| {
            let (task, _) = input.from.output().filter(|output| self.kept.is_until_read(output))?;
            Some((task, object?.0))
        });
        inputs.collect()
    }

    /// Inputs of a task that only executors' stores have: the index of the task that wrote each,
    /// and the object.
    pub fn kept_inputs(&self, index: u32) -> Vec<(u32, ObjectId)> {
        if self.kept.is_empty() {
            return Vec::new();
        }
        let item = self.spec.items.get(index);
        let inputs = self.inputs_with_ids(&item).filter_map(|(input, object)| {
            let (task, _) = input.from.output()?;
            Some((task, object.filter(|(_, object)| object.is_kept())?.0))
        });
        let mut kept: Vec<_> = inputs.collect();
        kept.sort_unstable();
        kept.dedup();
        kept
    }

    /// The kept outputs of other jobs that its tasks read.
    pub(crate) fn borrowed(&self) -> impl Iterator<Item = ObjectId> {
        self.borrowed.ids()
    }

    /// The spec of a kept output of another job that its tasks read.
    pub(crate) fn borrowed_spec(&self, object: ObjectId) -> Option<&ObjectSpec> {
        self.borrowed.index_of(object).map(|index| &self.spec.objects[index as usize])
    }

    /// The kept outputs of other jobs that this task reads, each once.
    pub(crate) fn borrowed_inputs(&self, index: u32) -> Vec<ObjectId> {
        if self.borrowed.is_empty() {
            return Vec::new();
        }
        let item = self.spec.items.get(index);
        let inputs = self.input_ids(&item).into_iter().map(|(object, _)| object);
        inputs.filter(|object| self.borrowed.contains(*object)).collect()
    }

    /// The kept outputs of other jobs that no executor has, and that a blocked task therefore waits
    /// for.
    pub fn lacks(&self, index: u32) -> impl Iterator<Item = ObjectId> {
        self.borrowed.lacks(index)
    }

    // ---- who reads what its tasks write, and what it borrows

    /// The tasks that read a kept output of another job, and that wait for an executor or are
    /// blocked.
    pub(crate) fn waiting_borrowers(&self, object: ObjectId) -> Vec<u32> {
        let waits =
            |index: &u32| matches!(self.tasks.phase(*index), Phase::Waiting | Phase::Blocked);
        self.borrowed.readers(object).iter().copied().filter(waits).collect()
    }

    /// The tasks that are blocked because no executor has the object.
    pub(crate) fn lacking(&self, object: ObjectId) -> Vec<u32> {
        let mut readers = self.waiting_borrowers(object);
        readers.retain(|index| self.borrowed.is_lacking(*index, object));
        readers
    }

    /// Whether a task, which reads outputs of `producer`, reads this one.
    fn is_reader(&self, index: u32, producer: u32, object: ObjectId) -> bool {
        let outputs = self.objects.outputs_with(producer, object);
        // Of a task with one output, nothing else is read; the reader may have a million inputs.
        if self.template_at(producer).outputs.len() == 1 {
            return !outputs.is_empty();
        }
        let item = self.spec.items.get(index);
        let mut read = self.spec.inputs_of(&item).filter_map(|input| input.from.output());
        read.any(|(task, output)| task == producer && outputs.contains(&output))
    }

    /// Tasks that have not ended and read this object, which `producer` wrote.
    pub fn readers(&self, producer: u32, object: ObjectId) -> Vec<u32> {
        let reads = |index: &u32| {
            !self.tasks.phase(*index).has_ended() && self.is_reader(*index, producer, object)
        };
        self.dependencies.dependents(producer).iter().copied().filter(reads).collect()
    }

    /// Tasks that wait for an executor and read what one of these writes.
    pub fn waiting_readers(&self, producers: &[u32]) -> Vec<u32> {
        let readers =
            producers.iter().flat_map(|producer| self.dependencies.dependents(*producer)).copied();
        readers.filter(|index| self.tasks.phase(*index) == Phase::Waiting).collect()
    }

    /// How many inputs of tasks that have not succeeded are this output.
    fn unread_inputs(&self, producer: u32, output: u16) -> u32 {
        let dependents = self.dependencies.dependents(producer).iter();
        let unread = dependents.filter(|index| self.tasks.phase(**index) != Phase::Succeeded);
        let inputs_of = |index: &u32| {
            let item = self.spec.items.get(*index);
            self.spec
                .inputs_of(&item)
                .filter(|input| input.from.output() == Some((producer, output)))
                .count() as u32
        };
        unread.map(inputs_of).sum()
    }

    /// Tasks whose outputs a blocked task waits for.
    pub fn waits_for(&self, index: u32) -> Vec<u32> {
        self.dependencies.waits_for(index).collect()
    }

    /// Whether a blocked task waits for an output of `producer`.
    pub(crate) fn waits_on(&self, index: u32, producer: u32) -> bool {
        self.dependencies.waits_on(index, producer)
    }

    // ---- what its tasks have left in the cluster

    /// How many objects its tasks keep in the cluster.
    pub fn kept_count(&self) -> u64 {
        self.kept.all().len() as u64
    }

    /// What a task has left in the cluster.
    pub fn kept_by(&self, index: u32) -> impl Iterator<Item = (ObjectId, &RetainedOutput)> {
        self.kept.of(index)
    }

    /// Whether what a task has left shall be held.
    pub fn is_wanted(&self, index: u32, object: ObjectId) -> bool {
        self.kept.is_wanted(index, object)
    }

    /// Whether its outputs need not be kept any longer.
    pub fn is_released(&self) -> bool {
        self.kept.is_released()
    }

    /// Whether a task has ended, and keeps outputs that nothing can need any more: all tasks that
    /// read them have ended, and leave nothing for which they would have to run again.
    pub fn is_forgettable(&self, index: u32) -> bool {
        let is_settled = |reader: &u32| {
            self.tasks.phase(*reader).has_ended() && self.kept_by(*reader).next().is_none()
        };
        self.tasks.phase(index).has_ended()
            && self.kept.are_only_until_read(index)
            // The last reader is most likely to be the one that still needs it.
            && self.dependencies.dependents(index).iter().rev().all(is_settled)
    }

    // ---- what is to be done before its tasks run, and again

    /// Whether its tasks wait until what they read is with every executor that may run them.
    pub fn is_pushed_first(&self) -> bool {
        self.spec.distribution == Distribution::SpanningTree
            && !self.was_pushed
            && !self.spec.pushed().is_empty()
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

    /// Tasks that have ended without success and may run again. A task can never run if a producer
    /// succeeded without writing what the task reads, and neither can tasks that read its outputs.
    pub(crate) fn failed_tasks(&self) -> Vec<u32> {
        let has_failed = |index: &u32| self.tasks.phase(*index).has_ended_unsuccessfully();
        let mut failed: Vec<u32> = self.tasks.indices().filter(has_failed).collect();
        let lacks_for_good = |index: &u32| self.left_out_by(*index).is_some();
        let mut to_follow: Vec<u32> = failed.iter().copied().filter(lacks_for_good).collect();
        let mut never: BTreeSet<u32> = to_follow.iter().copied().collect();
        while let Some(index) = to_follow.pop() {
            let dependents = self.dependencies.dependents(index).iter();
            to_follow.extend(
                dependents.copied().filter(has_failed).filter(|dependent| never.insert(*dependent)),
            );
        }
        failed.retain(|index| !never.contains(index));
        failed
    }

    fn note_optional_outputs(&mut self) {
        let mut outputs = self.spec.templates.iter().flat_map(|template| &template.outputs);
        self.has_optional_outputs = outputs.any(|output| output.optional);
    }

    /// A task that has succeeded without an optional output that this task reads.
    pub(crate) fn optional_left_out_by(&self, index: u32) -> Option<u32> {
        self.has_optional_outputs.then(|| self.left_out_by(index)).flatten()
    }

    /// A task that has succeeded without an output that this task reads.
    fn left_out_by(&self, index: u32) -> Option<u32> {
        // A task may have a million inputs.
        if self.dependencies.are_none() {
            return None;
        }
        let item = self.spec.items.get(index);
        let mut read = self.spec.inputs_of(&item).filter_map(|input| input.from.output());
        let is_left_out = |output: &(u32, u16)| {
            self.tasks.phase(output.0) == Phase::Succeeded && !self.objects.is_produced(*output)
        };
        read.find(is_left_out).map(|(task, _)| task)
    }

    /// Indices of the submitted objects that tasks read which may run again: of up to `most` such
    /// tasks, from the task `from` on. Also the first task of the next part.
    pub fn objects_to_retry(&self, from: u32, most: usize) -> (BTreeSet<u32>, Option<u32>) {
        let mut tasks = self.failed_tasks().into_iter().filter(|index| *index >= from);
        let (mut indices, mut templates) = (BTreeSet::new(), BTreeSet::new());
        for index in tasks.by_ref().take(most) {
            let item = self.spec.items.get(index);
            indices.extend(item.inputs.iter().filter_map(|input| input.from.object()));
            if templates.insert(item.template) {
                indices.extend(
                    self.template_of(&item).inputs.iter().filter_map(|input| input.from.object()),
                );
            }
        }
        (indices, tasks.next())
    }

    // ---- how it stands

    /// How many of its tasks are in each phase.
    pub fn counts(&self) -> TaskCounts {
        self.tasks.counts()
    }

    /// Whether all its tasks have, and no more can be added.
    pub fn has_ended(&self) -> bool {
        self.clock.ended_us.is_some()
    }

    /// Whether all tasks that have not ended were told to end.
    pub(crate) fn is_ending(&self) -> bool {
        let counts = self.counts();
        counts.waiting + counts.blocked == 0 && self.cancelling.len() as u64 == counts.assigned
    }

    /// Its state.
    pub fn state(&self) -> JobState {
        match (self.has_ended(), self.counts().failed, self.counts().cancelled) {
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

    /// Journal entries written or on their way.
    pub fn entries(&self) -> u64 {
        self.recorded.entries
    }

    /// Results that were removed from its entries because the task has a later one.
    pub fn dropped_results(&self) -> u64 {
        self.recorded.dropped_results
    }

    /// Bytes of captured output in its results.
    pub fn output_bytes(&self) -> u64 {
        self.recorded.output_bytes
    }

    /// Whether output was cut because there was no room for it.
    pub fn lacked_output_room(&self) -> bool {
        self.recorded.lacked_output_room
    }

    /// The latest result of a task that has not been given to the journal.
    pub fn pending_result(&self, index: u32) -> Option<&TaskResult> {
        self.recorded.pending.last(index)
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
}

fn producer(input: &Input) -> Option<u32> {
    input.from.output().map(|(task, _)| task)
}
