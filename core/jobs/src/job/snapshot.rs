//! A job's durable state as one value. A snapshot replaces the entries that it covers: a job that
//! is made from a snapshot and the entries after it is the job that all of its entries give.
//!
//! What the journal does not know is not in it: which tasks are at executors, how often they failed
//! there, and whether a task waits because an object is missing just now. So the snapshot of a live
//! job and that of the same job read again are equal, which the dispatcher checks while it is
//! tested.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::course::{JobOwner, JobState, TaskCounts};
use eyas_types::{JobId, ObjectId, ObjectSpec, PlaceId, Reads, TaskId};
use serde::{Deserialize, Serialize};

use super::course::JobCourse;
use super::recorded::RecordedJob;
use super::{Job, Phase, RetainedOutput};
use crate::spec::JobSpec;

/// The durable state of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSnapshot {
    /// Entries that it covers: those with numbers before this one.
    entries: u64,
    tasks: Vec<TaskSnapshot>,
    retried: u64,
    reused: u64,
    recomputed: u64,
    results: u64,
    dropped_results: u64,
    output_bytes: u64,
    lacked_output_room: bool,
    cancelling: BTreeSet<u32>,
    paused_us: u64,
    ended_us: Option<u64>,
    is_released: bool,
    failures: Vec<(TaskId, String)>,
    places: Vec<(PlaceId, u32)>,
    kept: Vec<((u32, ObjectId), RetainedOutput)>,
    produced: Vec<((u32, u16), ObjectSpec)>,
    course: JobCourse,
    peak_memory_bytes: u64,
    /// Tasks that started again because executors were lost, and because they were ended in good
    /// order: the number of times.
    restarts: Vec<(u32, u16, u8)>,
}

/// The durable state of a task. Of a task that has not ended, only `recomputed` is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct TaskSnapshot {
    phase: Phase,
    recomputed: u16,
    ready_us: u64,
    /// The journal entry with its result.
    entry: u64,
}

/// What is known of an ended job that is not in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSummary {
    /// The job.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// The owner: who submitted it.
    pub owner: JobOwner,
    /// How it ended.
    pub state: JobState,
    /// Its tasks, by how they ended.
    pub counts: TaskCounts,
    /// Tries beyond each task's first.
    pub retried: u64,
    /// Tasks that ended with the result of another task.
    pub reused: u64,
    /// Tasks that ran again because their kept output was lost.
    pub recomputed: u64,
    /// Where inputs came from.
    pub reads: Reads,
    /// Milliseconds since 1970 when it was accepted.
    pub submitted_unix_ms: u64,
    /// The job's time at its end, microseconds.
    pub elapsed_us: u64,
    /// Bytes of captured output in its results.
    pub output_bytes: u64,
    /// Output was cut because there was no room for it.
    pub lacked_output_room: bool,
    /// Its journal entries.
    pub entries: u64,
    /// Results that were removed because the task has a later one.
    pub dropped_results: u64,
    /// A dispatcher that starts must read the whole job: it keeps objects in the cluster, or its
    /// results can be reused.
    pub must_be_loaded: bool,
    /// Most memory that one of its tasks used; 0 if unknown.
    pub peak_memory_bytes: u64,
}

impl JobSnapshot {
    /// The number of the first entry that it does not cover.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The entry with the last result of a task, if the task has ended.
    pub fn entry_of(&self, index: u32) -> Option<u64> {
        self.tasks.get(index as usize).filter(|task| task.phase.has_ended()).map(|task| task.entry)
    }

    /// Whether both are the same state of a job. The course of a job that has not ended is left
    /// out, because its last interval is still open. Whether output was cut and which results were
    /// removed is left out too: entries do not say it.
    pub fn agrees_with(&self, other: &JobSnapshot) -> bool {
        let comparable = |snapshot: &JobSnapshot| {
            let mut snapshot =
                JobSnapshot { lacked_output_room: false, dropped_results: 0, ..snapshot.clone() };
            if snapshot.ended_us.is_none() {
                snapshot.course = JobCourse::default();
            }
            snapshot
        };
        comparable(self) == comparable(other)
    }
}

impl Job {
    /// Its durable state.
    pub fn snapshot(&self) -> JobSnapshot {
        let task = |state: &super::TaskState| {
            let recomputed = state.recomputed;
            if state.phase.has_ended() {
                TaskSnapshot {
                    phase: state.phase,
                    recomputed,
                    ready_us: state.ready_us,
                    entry: state.entry,
                }
            } else {
                TaskSnapshot { phase: Phase::Waiting, recomputed, ready_us: 0, entry: 0 }
            }
        };
        let restarts = |(index, state): (u32, &super::TaskState)| {
            let has_any = state.losses > 0 || state.interrupted > 0;
            has_any.then_some((index, state.losses, state.interrupted))
        };
        let has_succeeded = |index: u32| self.tasks[index as usize].phase == Phase::Succeeded;
        JobSnapshot {
            entries: self.recorded.entries,
            tasks: self.tasks.iter().map(task).collect(),
            retried: self.retried,
            reused: self.reused,
            recomputed: self.recomputed,
            results: self.recorded.results,
            dropped_results: self.recorded.dropped_results,
            output_bytes: self.recorded.output_bytes,
            lacked_output_room: self.recorded.lacked_output_room,
            cancelling: self.cancelling.clone(),
            paused_us: self.clock.paused_us,
            ended_us: self.clock.ended_us,
            is_released: self.kept.is_released(),
            failures: self.failures.clone(),
            places: self.places.owners().filter(|(_, task)| has_succeeded(*task)).collect(),
            kept: self.kept.all().map(|(key, output)| (*key, output.clone())).collect(),
            produced: self.objects.produced().map(|(key, object)| (key, object.clone())).collect(),
            course: self.course.closed(self.clock.ended_us),
            peak_memory_bytes: self.peak_memory_bytes,
            restarts: (0..).zip(&*self.tasks).filter_map(restarts).collect(),
        }
    }

    /// The job that a snapshot was taken of; `None` if the snapshot is not one of this job.
    pub(crate) fn from_snapshot(id: JobId, spec: JobSpec, snapshot: JobSnapshot) -> Option<Job> {
        let mut job = Job::new(id, spec);
        if snapshot.tasks.len() != job.tasks.len() {
            return None;
        }
        for (index, task) in snapshot.tasks.iter().enumerate() {
            let index = index as u32;
            let state = job.tasks.get_mut(index);
            (state.recomputed, state.ready_us, state.entry) =
                (task.recomputed, task.ready_us, task.entry);
            if task.phase.has_ended() {
                job.dependencies.stop_waiting(index);
                job.enter(index, task.phase);
            }
        }
        for (index, losses, interrupted) in snapshot.restarts {
            if index as usize >= job.tasks.len() {
                return None;
            }
            let state = job.tasks.get_mut(index);
            (state.losses, state.interrupted) = (losses, interrupted);
        }
        let tasks = &job.tasks;
        let free = job.dependencies.meet_all(|producer| tasks.phase(producer) == Phase::Succeeded);
        free.into_iter().for_each(|index| job.enter(index, Phase::Waiting));
        (job.retried, job.reused, job.recomputed) =
            (snapshot.retried, snapshot.reused, snapshot.recomputed);
        job.recorded = RecordedJob {
            entries: snapshot.entries,
            snapshot_entries: Some(snapshot.entries),
            results: snapshot.results,
            dropped_results: snapshot.dropped_results,
            output_bytes: snapshot.output_bytes,
            lacked_output_room: snapshot.lacked_output_room,
            ..RecordedJob::default()
        };
        job.cancelling = snapshot.cancelling;
        (job.clock.paused_us, job.clock.ended_us) = (snapshot.paused_us, snapshot.ended_us);
        job.failures = snapshot.failures;
        job.places.give(snapshot.places);
        job.kept.give(snapshot.kept, snapshot.is_released);
        job.objects.give(snapshot.produced);
        job.course = snapshot.course;
        job.peak_memory_bytes = snapshot.peak_memory_bytes;
        Some(job)
    }

    /// What is remembered of the job, which has ended, when it leaves memory.
    pub fn summary(&self) -> JobSummary {
        JobSummary {
            job: self.id,
            name: self.spec.name.clone(),
            owner: self.spec.owner.clone(),
            state: self.state(),
            counts: self.counts(),
            retried: self.retried,
            reused: self.reused,
            recomputed: self.recomputed,
            reads: self.reads(),
            submitted_unix_ms: self.spec.submitted_unix_ms,
            elapsed_us: self.time_us(0),
            output_bytes: self.recorded.output_bytes,
            lacked_output_room: self.recorded.lacked_output_room,
            entries: self.recorded.entries,
            dropped_results: self.recorded.dropped_results,
            must_be_loaded: self.spec.reuse || self.keeps_objects(),
            peak_memory_bytes: self.peak_memory_bytes,
        }
    }

    /// Whether executors hold objects for it.
    pub(crate) fn keeps_objects(&self) -> bool {
        self.kept.keys().any(|(index, object)| self.is_wanted(index, object))
    }

    /// Roughly the bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        /// An object's spec with a source of usual length, its id, and its places in maps.
        const OBJECT_BYTES: usize = 300;
        let tasks =
            self.tasks.len() * size_of::<super::TaskState>() + self.spec.items.memory_bytes();
        (tasks + (self.spec.objects.len() + self.objects.produced().len()) * OBJECT_BYTES) as u64
    }
}
