//! Traces of jobs, a part at a time. A simulated cluster can run them again.

use eyas_jobs::{Job, Phase};
use eyas_types::{Outcome, TaskTemplate};
use eyas_wire::client::{RecordedOutput, RecordedTask, TracePart};

use super::{ResultReader, Views};
use crate::journal::JournalError;

/// Tasks that are looked at for one part.
const MAX_TRACED: u32 = 10_000;
/// A part ends once its tasks have this many inputs, so that its message is not too long.
const MAX_TRACED_INPUTS: usize = 100_000;

impl Views<'_> {
    /// Tasks from an index on that succeeded and ran themselves.
    pub(crate) fn trace(&self, job: &Job, from: u32) -> Result<TracePart, JournalError> {
        let (mut results, mut inputs) = (ResultReader::default(), 0);
        let mut part = TracePart::default();
        for index in from..job.tasks.len() as u32 {
            if index - from >= MAX_TRACED || inputs >= MAX_TRACED_INPUTS {
                part.next = Some(index);
                break;
            }
            let state = &job.tasks[index as usize];
            if state.phase != Phase::Succeeded {
                continue;
            }
            let Some(result) = results
                .last(self.records, job, index)?
                .filter(|result| result.outcome.reused.is_none())
            else {
                continue;
            };
            let read = job.input_ids(&job.spec.items.get(index));
            inputs += read.len();
            part.tasks.push(RecordedTask {
                ready_us: state.ready_us,
                queued_us: result.queued_us,
                waited_us: result.outcome.waited_us,
                ran_us: result.outcome.ran_us,
                suspended_us: result.outcome.suspended_us,
                delivery_us: result.delivery_us,
                cpu_us: result.outcome.cpu_us,
                inputs: read,
                outputs: written(job.template_at(index), &result.outcome),
            });
        }
        Ok(part)
    }
}

/// Outputs of a task. Those that exist only in the cluster also have the time for which they are
/// kept.
fn written(template: &TaskTemplate, outcome: &Outcome) -> Vec<RecordedOutput> {
    let delivered = outcome.outputs.iter().map(|delivered| {
        let spec = template
            .outputs
            .get(usize::from(delivered.output))
            .filter(|_| delivered.object.is_kept());
        RecordedOutput {
            object: delivered.object.id(),
            size_bytes: delivered.object.size_bytes(),
            kept: spec.map_or(0, |spec| spec.replicas),
            until_read: spec.is_some_and(|spec| spec.until_read),
        }
    });
    delivered.collect()
}
