//! `eyas report --trace`: writes a recorded job as a file that `eyas simulate run` can simulate
//! again.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use eyas_client::messages::{FromClient, RecordedOutput, RecordedTask, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::view::JobView;
use eyas_client::{Client, ClientError};
use eyas_sim::trace::{Heading, TracedOutput, TracedTask, VERSION};

use crate::error::CliError;
use crate::print::say;

/// Writes the trace of the succeeded tasks of a job.
pub(crate) async fn write(client: &mut Client, job: &JobView, path: &Path) -> Result<(), CliError> {
    let wrong = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
    let mut out = BufWriter::new(File::create(path).map_err(wrong)?);
    let heading = Heading { eyas_trace: VERSION, name: job.name.clone() };
    writeln!(out, "{}", serde_json::to_string(&heading)?).map_err(wrong)?;
    let (mut from, mut tasks) = (Some(0), 0);
    while let Some(first) = from {
        let ToClient::Trace(part) =
            client.ask(FromClient::Trace { job: job.job, from: first }).await?
        else {
            return Err(ClientError::Unexpected.into());
        };
        tasks += part.tasks.len() as u64;
        for task in part.tasks {
            writeln!(out, "{}", serde_json::to_string(&traced(task))?).map_err(wrong)?;
        }
        from = part.next;
    }
    out.flush().map_err(wrong)?;
    say!("the trace is in {}", path.display());
    let without = job.tasks.total() - tasks.min(job.tasks.total());
    if without > 0 {
        let left_out = format_count(without, "task");
        say!(
            "not in the trace: {left_out} that did not succeed, or reused the result of another \
             task"
        );
    }
    Ok(())
}

fn traced(task: RecordedTask) -> TracedTask {
    let RecordedTask {
        ready_us,
        queued_us,
        waited_us,
        ran_us,
        suspended_us,
        delivery_us,
        cpu_us,
        inputs,
        outputs,
    } = task;
    let started_us = ready_us + queued_us + waited_us;
    let ended_us = started_us + ran_us + suspended_us + delivery_us;
    let outputs =
        outputs.into_iter().map(|RecordedOutput { object, size_bytes, kept, until_read }| {
            TracedOutput { object, size_bytes, kept, until_read }
        });
    let outputs = outputs.collect();
    TracedTask { at_us: ready_us, started_us, ended_us, ran_us, cpu_us, inputs, outputs }
}
