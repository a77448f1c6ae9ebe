//! `[job]`: what tasks write and read of each other, and what their client asks for.

use eyas_types::task::MAX_REPLICAS;
use serde::Deserialize;

use super::amount::{Count, Share, Size, Time};
use super::workload::Wrong;
use crate::workload::{KeepRule, Requests, SharedWorkload, Staged};

/// Outputs of a task at most.
const MAX_OUTPUTS: u32 = 100;
/// Retries at most, of a task and of the job.
const MAX_RETRIES: u32 = 1_000;

/// A job, where a key says more than the workload.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JobFields {
    outputs: Option<Count<MAX_OUTPUTS>>,
    output_size: Option<Size>,
    kept: Option<toml::Spanned<Count<{ MAX_REPLICAS as u32 }>>>,
    until_read: Option<toml::Spanned<bool>>,
    stages: Option<toml::Spanned<Count<{ u32::MAX }>>>,
    reads: Option<toml::Spanned<Count<MAX_OUTPUTS>>>,
    retries: Option<Count<MAX_RETRIES>>,
    cancel_at: Option<toml::Spanned<Time>>,
    cancel_share: Option<toml::Spanned<Share>>,
    job_retries: Option<Count<MAX_RETRIES>>,
}

impl JobFields {
    /// The workload as such a job.
    pub fn job(self, workload: SharedWorkload) -> Result<SharedWorkload, Wrong> {
        let at = |what: &str, span: std::ops::Range<usize>| (Some(span.start), what.to_owned());
        let tasks = workload.tasks();
        let (outputs, output_bytes) = match (self.outputs, self.output_size) {
            (Some(outputs), Some(size)) => (outputs.0, size.0),
            (None, None) => (0, 0),
            (Some(_), None) => return Err((None, "`outputs` have no size: give `output_size`, too".into())),
            (None, Some(_)) => return Err((None, "`output_size` is of `outputs`: say how many a task has".into())),
        };
        if u64::from(workload.objects()) + tasks * u64::from(outputs) > u32::MAX.into() {
            return Err((None, format!("{tasks} tasks with {outputs} outputs each are too many objects")));
        }
        let lacks_outputs = |key: &str| format!("`{key}` is of `outputs`: say how many a task has");
        if let Some(kept) = self.kept.as_ref().filter(|_| outputs == 0) {
            return Err(at(&lacks_outputs("kept"), kept.span()));
        }
        if let Some(until_read) = self.until_read.as_ref().filter(|_| self.kept.is_none()) {
            return Err(at(
                "`until_read` is of kept outputs: say with `kept` how many nodes keep one",
                until_read.span(),
            ));
        }
        if let Some(stages) = &self.stages {
            if outputs == 0 {
                return Err(at(&lacks_outputs("stages"), stages.span()));
            }
            if u64::from(stages.get_ref().0) > tasks {
                return Err(at(&format!("there are only {tasks} tasks for these stages"), stages.span()));
            }
        }
        if let Some(reads) = self.reads.as_ref().filter(|_| self.stages.is_none()) {
            return Err(at("`reads` is of the stage before: say with `stages` how many there are", reads.span()));
        }
        let cancels = match (self.cancel_at, self.cancel_share) {
            (None, None) => Vec::new(),
            (None, Some(share)) => return Err(at("`cancel_share` needs `cancel_at`: say when", share.span())),
            (Some(cancel_at), share) => {
                let share = share.map_or(1.0, |share| share.get_ref().0);
                let first = (tasks as f64 * (1.0 - share)) as u32;
                vec![(cancel_at.get_ref().0, first..tasks as u32)]
            }
        };
        let keep = self.kept.map(|kept| KeepRule {
            replicas: kept.get_ref().0 as u8,
            until_read: self.until_read.is_some_and(|until_read| *until_read.get_ref()),
        });
        let count = |count: Option<Count<MAX_RETRIES>>| count.map_or(0, |count| count.0);
        let requests = Requests { retries: count(self.retries), cancels, job_retries: count(self.job_retries) };
        let stages = self.stages.map_or(1, |stages| stages.get_ref().0);
        let reads = self.reads.map_or(1, |reads| reads.get_ref().0);
        Ok(Box::new(Staged { workload, outputs, output_bytes, keep, stages, reads, requests }))
    }
}
