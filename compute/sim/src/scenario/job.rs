//! `[job]`: what is made of compressed inputs, outputs of tasks, stages that read them, and
//! requests of the client.

use eyas_types::task::MAX_REPLICAS;
use serde::Deserialize;

use super::amount::{Count, Share, Size, Time};
use super::mistake::ScenarioMistake;
use super::workload::MistakeAt;
use crate::workload::{
    AdaptedWorkload, ClientRequests, Derivation, KeepRule, SharedWorkload, StagedWorkload,
};

/// Most outputs of a task.
const MAX_OUTPUTS: u32 = 100;
/// Most retries of a task or job.
const MAX_RETRIES: u32 = 1_000;

/// `[job]` of a scenario.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JobFields {
    content_size: Option<Size>,
    decompress: Option<Time>,
    keep_content: Option<toml::Spanned<bool>>,
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
    /// The workload with these outputs, stages and requests.
    pub fn job(self, workload: SharedWorkload) -> Result<SharedWorkload, MistakeAt> {
        const OUTPUTS: &str = "the number of outputs of a task";
        let workload = self.with_contents(workload)?;
        let tasks = workload.tasks();
        let (outputs, output_bytes) = match (self.outputs, self.output_size) {
            (Some(outputs), Some(size)) => (outputs.0, size.0),
            (None, None) => (0, 0),
            (Some(_), None) => {
                return Err((None, needs("outputs", "output_size", "the size of an output")));
            }
            (None, Some(_)) => return Err((None, needs("output_size", "outputs", OUTPUTS))),
        };
        // The contents of objects have numbers, too.
        if 2 * u64::from(workload.objects()) + tasks * u64::from(outputs) > u32::MAX.into() {
            return Err((None, ScenarioMistake::TooManyOutputs { tasks, outputs }));
        }
        if let Some(kept) = self.kept.as_ref().filter(|_| outputs == 0) {
            return Err((Some(kept.span().start), needs("kept", "outputs", OUTPUTS)));
        }
        if let Some(until_read) = self.until_read.as_ref().filter(|_| self.kept.is_none()) {
            let mistake = needs("until_read", "kept", "the number of nodes that keep an output");
            return Err((Some(until_read.span().start), mistake));
        }
        if let Some(stages) = &self.stages {
            let at = Some(stages.span().start);
            if outputs == 0 {
                return Err((at, needs("stages", "outputs", OUTPUTS)));
            }
            if u64::from(stages.get_ref().0) > tasks {
                return Err((at, ScenarioMistake::TooManyStages { tasks }));
            }
        }
        if let Some(reads) = self.reads.as_ref().filter(|_| self.stages.is_none()) {
            return Err((
                Some(reads.span().start),
                needs("reads", "stages", "the number of stages"),
            ));
        }
        let cancels = match (self.cancel_at, self.cancel_share) {
            (None, None) => Vec::new(),
            (None, Some(share)) => {
                return Err((
                    Some(share.span().start),
                    needs("cancel_share", "cancel_at", "the time of the cancel"),
                ));
            }
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
        let requests = ClientRequests {
            retries: count(self.retries),
            cancels,
            job_retries: count(self.job_retries),
        };
        let stages = self.stages.map_or(1, |stages| stages.get_ref().0);
        let reads = self.reads.map_or(1, |reads| reads.get_ref().0);
        let staged =
            StagedWorkload { workload, outputs, output_bytes, keep, stages, reads, requests };
        Ok(Box::new(staged))
    }

    /// The workload, whose objects are compressed if that is said.
    fn with_contents(&self, workload: SharedWorkload) -> Result<SharedWorkload, MistakeAt> {
        const SIZE: &str = "the size of the content of an object";
        let (content, takes) = match (&self.content_size, &self.decompress) {
            (Some(content), Some(takes)) => (content, takes),
            (Some(_), None) => {
                let missing = "the time that decompressing an object takes";
                return Err((None, needs("content_size", "decompress", missing)));
            }
            (None, Some(_)) => return Err((None, needs("decompress", "content_size", SIZE))),
            (None, None) => {
                return match &self.keep_content {
                    Some(keeps) => {
                        let why = needs("keep_content", "content_size", SIZE);
                        Err((Some(keeps.span().start), why))
                    }
                    None => Ok(workload),
                };
            }
        };
        let is_kept = self.keep_content.as_ref().is_none_or(|keeps| *keeps.get_ref());
        let derivation = Derivation { size_bytes: content.0, takes_us: takes.0, is_kept };
        Ok(Box::new(AdaptedWorkload::derived(workload, derivation)))
    }
}

fn needs(key: &'static str, needed: &'static str, missing: &'static str) -> ScenarioMistake {
    ScenarioMistake::Needs { key, needed, missing }
}
