//! The journal's format 1, which is read once and written again in the present one. It had one time for all ends of an
//! entry, none for pauses before a retry, no samples, and no places of outputs.

use eyas_jobs::{Entry, JobEnd, output_bytes};
use eyas_types::access::FilesScope;
use eyas_types::outcome::Delivered;
use eyas_types::{Input, Name, ObjectSpec, OutputSpec, Program, Resources, TaskTemplate, Template, WorkingFolder};
use redb::WriteTransaction;
use serde::{Deserialize, Serialize};

use super::JournalProblem;
use super::format2::{Spec2, migrate_entries, migrate_jobs};
use super::format3::Result3;

/// A job as it was submitted, in format 1: of its tasks nothing was said of files of the cluster.
pub(super) type Spec1 = Spec2<Template1>;

/// A template, in format 1.
#[derive(Serialize, Deserialize)]
pub(super) struct Template1 {
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
}

impl From<Template1> for TaskTemplate {
    fn from(template: Template1) -> Self {
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
            files: FilesScope::default(),
        }
    }
}

/// An entry of a job, in format 1.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Entry1 {
    Results { at_us: u64, results: Vec<Result1> },
    Retried(Vec<u32>),
    Recomputed(Vec<u32>),
    Released,
    Cancelled(Vec<u32>),
}

/// A task's end, in format 1: its outputs had no places.
pub(super) type Result1 = Result3<(u16, ObjectSpec)>;

impl From<Entry1> for Entry {
    fn from(entry: Entry1) -> Self {
        match entry {
            Entry1::Results { at_us, results } => {
                let ends = results.into_iter().map(|result| end(at_us, result)).collect();
                Entry::Results { ends, samples: Vec::new() }
            }
            Entry1::Retried(tasks) => Entry::Retried { tasks, paused_us: 0 },
            Entry1::Recomputed(tasks) => Entry::Recomputed { tasks, paused_us: 0 },
            Entry1::Released => Entry::Released,
            Entry1::Cancelled(tasks) => Entry::Cancelled(tasks),
        }
    }
}

/// A task came to wait as long before its end as all that it did took.
fn end(at_us: u64, result: Result1) -> JobEnd {
    let result = result.map(|(output, object)| Delivered { output, object, place: None });
    let outcome = &result.outcome;
    let took_us = result.queued_us + outcome.waited_us + outcome.ran_us + outcome.suspended_us + result.delivery_us;
    let (ready_us, output_bytes) = (at_us.saturating_sub(took_us), output_bytes(&result.outcome));
    JobEnd { at_us, ready_us, output_bytes, result }
}

/// Writes everything again in the present format.
pub(super) fn migrate(write: &WriteTransaction) -> Result<(), JournalProblem> {
    migrate_jobs::<Spec1>(write)?;
    migrate_entries::<Entry1>(write)
}
