//! The journal's format 2, which is read once and written again in the present one. All entries were in one table, with
//! all captured output, and there were no snapshots.

use eyas_jobs::{Entry, Items, JobEnd, JobSpec, output_bytes};
use eyas_types::access::FilesScope;
use eyas_types::course::Sample;
use eyas_types::{
    Distribution, Input, JobId, Name, ObjectSpec, OutputSpec, Program, Resources, TaskResult, TaskTemplate, Template,
    WorkingFolder,
};
use redb::{ReadableTable, WriteTransaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::format3::Result3;
use super::read::read_parts;
use super::write::{put_entry, put_parts};
use super::{ENTRIES, JOBS, JournalProblem, encode};

/// A job as it was submitted, in format 2: of its tasks, the ids in job files were not known. Format 1 had other
/// templates.
#[derive(Serialize, Deserialize)]
pub(super) struct Spec2<T = Template2> {
    pub name: String,
    pub templates: Vec<T>,
    pub objects: Vec<ObjectSpec>,
    pub items: Items,
    pub submitted_unix_ms: u64,
    pub reuse: bool,
    pub broadcast: Vec<u32>,
    pub distribution: Distribution,
}

/// A template, in format 2.
#[derive(Serialize, Deserialize)]
pub(super) struct Template2 {
    pub program: Program,
    pub env: Vec<(String, Template)>,
    pub folder: WorkingFolder,
    pub base: Name,
    pub inputs: Vec<Input>,
    pub outputs: Vec<OutputSpec>,
    pub resources: Resources,
    pub priority: i32,
    pub requirements: Option<String>,
    pub rank: Option<String>,
    pub timeout_us: Option<u64>,
    pub retries: u32,
    pub capture_bytes: u64,
    pub files: FilesScope,
}

impl<T: Into<TaskTemplate>> From<Spec2<T>> for JobSpec {
    fn from(spec: Spec2<T>) -> Self {
        let Spec2 { name, templates, objects, items, submitted_unix_ms, reuse, broadcast, distribution } = spec;
        let templates = templates.into_iter().map(T::into).collect();
        JobSpec {
            name,
            templates,
            objects,
            items,
            submitted_unix_ms,
            reuse,
            broadcast,
            distribution,
            ..JobSpec::default()
        }
    }
}

impl From<Template2> for TaskTemplate {
    fn from(template: Template2) -> Self {
        TaskTemplate {
            id: None,
            program: template.program,
            env: template.env,
            folder: template.folder,
            base: template.base,
            inputs: template.inputs,
            outputs: template.outputs,
            resources: template.resources,
            priority: template.priority,
            requirements: template.requirements,
            rank: template.rank,
            timeout_us: template.timeout_us,
            retries: template.retries,
            capture_bytes: template.capture_bytes,
            files: template.files,
        }
    }
}

/// An entry of a job, in format 2.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Entry2 {
    Results { ends: Vec<JobEnd2>, samples: Vec<Sample> },
    Samples(Vec<Sample>),
    Retried { tasks: Vec<u32>, paused_us: u64 },
    Recomputed { tasks: Vec<u32>, paused_us: u64 },
    Released,
    Cancelled(Vec<u32>),
}

/// A task's end, in format 2.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobEnd2 {
    pub at_us: u64,
    pub ready_us: u64,
    pub result: Result3,
}

impl From<JobEnd2> for JobEnd {
    fn from(end: JobEnd2) -> Self {
        let JobEnd2 { at_us, ready_us, result } = end;
        let result = TaskResult::from(result);
        JobEnd { at_us, ready_us, output_bytes: output_bytes(&result.outcome), result }
    }
}

impl From<Entry2> for Entry {
    fn from(entry: Entry2) -> Self {
        match entry {
            Entry2::Results { ends, samples } => {
                Entry::Results { ends: ends.into_iter().map(JobEnd::from).collect(), samples }
            }
            Entry2::Samples(samples) => Entry::Samples(samples),
            Entry2::Retried { tasks, paused_us } => Entry::Retried { tasks, paused_us },
            Entry2::Recomputed { tasks, paused_us } => Entry::Recomputed { tasks, paused_us },
            Entry2::Released => Entry::Released,
            Entry2::Cancelled(tasks) => Entry::Cancelled(tasks),
        }
    }
}

/// Writes everything again in the present format. Output stays in the database.
pub(super) fn migrate(write: &WriteTransaction) -> Result<(), JournalProblem> {
    migrate_jobs::<Spec2>(write)?;
    migrate_entries::<Entry2>(write)
}

/// Writes all jobs again, from the earlier format's.
pub(super) fn migrate_jobs<S: DeserializeOwned + Into<JobSpec>>(
    write: &WriteTransaction,
) -> Result<(), JournalProblem> {
    let mut jobs = write.open_table(JOBS)?;
    let mut next = 0;
    loop {
        let row = jobs.range((next, 0)..)?.next().transpose()?;
        let Some(job) = row.map(|(key, _)| key.value().0) else { return Ok(()) };
        let encoded = read_parts(&jobs, job)?.unwrap_or_default();
        let spec = postcard::from_bytes::<S>(&encoded);
        let spec = spec.map_err(|source| JournalProblem::Undecodable { what: format!("job {job}"), source })?;
        put_parts(&mut jobs, job, &encode(&spec.into()))?;
        let Some(after) = job.checked_add(1) else { return Ok(()) };
        next = after;
    }
}

/// Writes all entries again, from the earlier format's.
pub(super) fn migrate_entries<E: DeserializeOwned + Into<Entry>>(
    write: &WriteTransaction,
) -> Result<(), JournalProblem> {
    let mut next = (0, 0);
    loop {
        let mut entries = write.open_table(ENTRIES)?;
        let row = entries.range(next..)?.next().transpose()?;
        let row = row.map(|(key, entry)| (key.value(), entry.value().to_vec()));
        let Some(((job, number), entry)) = row else { return Ok(()) };
        let what = || format!("entry {number} of job {job}");
        let entry = postcard::from_bytes::<E>(&entry);
        let entry = entry.map_err(|source| JournalProblem::Undecodable { what: what(), source })?;
        entries.remove((job, number))?;
        drop(entries);
        put_entry(write, JobId(job), number, &entry.into(), &[])?;
        next = (job, number + 1);
    }
}
