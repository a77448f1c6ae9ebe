//! The journal's format 3, which is read once and written again in the present one. Results had no peak memory, and
//! neither had snapshots and summaries of jobs.

use eyas_jobs::{Entry, JobEnd};
use eyas_types::course::Sample;
use eyas_types::outcome::Delivered;
use eyas_types::{Estimate, Outcome, Reads, Status, TaskId, TaskResult};
use redb::{ReadableTable, WriteTransaction};
use serde::{Deserialize, Serialize};

use super::format4::append_to_snapshots;
use super::output::OutputPlace;
use super::{JournalProblem, RESULTS, SUMMARIES, encode};

/// What postcard writes for a peak of 0, which is unknown. The peak is the last field of snapshots and summaries.
const NO_PEAK: u8 = 0;

/// The entry with results, in format 3. Other entries are as they were.
#[derive(Serialize, Deserialize)]
pub(super) enum Entry3 {
    Results { ends: Vec<JobEnd3>, samples: Vec<Sample> },
}

/// A task's end, in format 3.
#[derive(Serialize, Deserialize)]
pub(super) struct JobEnd3 {
    pub at_us: u64,
    pub ready_us: u64,
    pub output_bytes: u64,
    pub result: Result3,
}

/// A task's result, in formats 1 to 3, with outputs of type `D`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Result3<D = Delivered> {
    pub index: u32,
    pub attempt: u32,
    pub executor: String,
    pub queued_us: u64,
    pub delivery_us: u64,
    pub outcome: Outcome3<D>,
}

/// An executor's report on a task, in formats 1 to 3.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome3<D = Delivered> {
    pub status: Status,
    pub waited_us: u64,
    pub ran_us: u64,
    pub suspended_us: u64,
    pub cpu_us: u64,
    pub reads: Reads,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub cut_bytes: u64,
    pub outputs: Vec<D>,
    pub reused: Option<TaskId>,
    pub estimate: Option<Estimate>,
}

impl<D> Result3<D> {
    /// The result in the present format, its outputs converted.
    pub fn map(self, delivered: impl FnMut(D) -> Delivered) -> TaskResult {
        let Result3 { index, attempt, executor, queued_us, delivery_us, outcome } = self;
        let outcome = Outcome {
            status: outcome.status,
            waited_us: outcome.waited_us,
            ran_us: outcome.ran_us,
            suspended_us: outcome.suspended_us,
            cpu_us: outcome.cpu_us,
            peak_memory_bytes: 0,
            reads: outcome.reads,
            stdout: outcome.stdout,
            stderr: outcome.stderr,
            cut_bytes: outcome.cut_bytes,
            outputs: outcome.outputs.into_iter().map(delivered).collect(),
            reused: outcome.reused,
            estimate: outcome.estimate,
        };
        TaskResult { index, attempt, executor, queued_us, delivery_us, outcome }
    }
}

impl From<Result3> for TaskResult {
    fn from(result: Result3) -> Self {
        result.map(|delivered| delivered)
    }
}

impl From<JobEnd3> for JobEnd {
    fn from(end: JobEnd3) -> Self {
        let JobEnd3 { at_us, ready_us, output_bytes, result } = end;
        JobEnd { at_us, ready_us, output_bytes, result: result.into() }
    }
}

impl From<Entry3> for Entry {
    fn from(Entry3::Results { ends, samples }: Entry3) -> Self {
        Entry::Results { ends: ends.into_iter().map(JobEnd::from).collect(), samples }
    }
}

/// Writes results, snapshots and summaries again in the present format.
pub(super) fn migrate(write: &WriteTransaction) -> Result<(), JournalProblem> {
    let mut results = write.open_table(RESULTS)?;
    let mut next = (0, 0);
    loop {
        let row = results.range(next..)?.next().transpose()?;
        let Some(((job, number), row)) = row.map(|(key, row)| (key.value(), row.value().to_vec())) else { break };
        let read = postcard::from_bytes::<(Entry3, Vec<OutputPlace>)>(&row);
        let what = || format!("entry {number} of job {job}");
        let (entry, places) = read.map_err(|source| JournalProblem::Undecodable { what: what(), source })?;
        results.insert((job, number), &encode(&(Entry::from(entry), places))[..])?;
        next = (job, number + 1);
    }
    append_to_snapshots(write, NO_PEAK)?;
    let mut summaries = write.open_table(SUMMARIES)?;
    let mut next = 0;
    loop {
        let row = summaries.range(next..)?.next().transpose()?;
        let Some((job, mut summary)) = row.map(|(key, row)| (key.value(), row.value().to_vec())) else { break };
        summary.push(NO_PEAK);
        summaries.insert(job, &summary[..])?;
        let Some(after) = job.checked_add(1) else { break };
        next = after;
    }
    Ok(())
}
