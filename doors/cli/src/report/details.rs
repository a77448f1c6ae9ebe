//! Details of a job for its report: commands, inputs, tasks, and failures by their reason. The
//! client asks the dispatcher for them in parts. Of a job with very many tasks, it asks for some
//! only: a report must not take longer than its job.

use std::collections::BTreeMap;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::task::DONE_EARLIER;
use eyas_client::types::{JobId, TaskId};
use eyas_client::view::graph::JobGraph;
use eyas_client::view::{FailureView, JobReport, TaskView};
use eyas_client::{Client, ClientError};

use crate::connect::unexpected;
use crate::error::CliError;
use crate::reasons::by_reason;

/// Tasks that a report looks at: twice as many as its table has. Of a larger job, it looks at parts
/// that are spread evenly. Each run with a report waits for this.
const MAX_TASKS_READ: u32 = 10_000;
/// Number of these parts.
const PARTS_READ: u32 = 100;
/// Failed tasks that a report looks at in addition.
const MAX_FAILED_READ: u32 = 5000;
/// Reasons of failures that a report shows; the most frequent first.
const MAX_REASONS: usize = 20;
/// Examples of one reason.
const MAX_EXAMPLES: usize = 3;

/// Details of a job, which the dispatcher's report does not have.
#[derive(Default)]
pub(crate) struct JobDetails {
    /// Commands and inputs; `None` if the dispatcher is of an earlier version.
    pub graph: Option<JobGraph>,
    /// The tasks that were looked at, in the order of the job.
    pub tasks: Vec<TaskView>,
    /// Examples of failed tasks for each reason.
    pub failures: Vec<FailureGroup>,
}

/// Tasks that failed for the same reason.
pub(crate) struct FailureGroup {
    /// The reason, in words.
    pub reason: String,
    /// Number of tasks that were looked at and failed for this reason.
    pub count: u64,
    /// The first of these tasks.
    pub examples: Vec<FailureView>,
}

impl JobDetails {
    /// Number of tasks that an earlier run had done, so that they did not run.
    pub fn done_earlier(&self) -> u64 {
        let templates = self.graph.iter().flat_map(|graph| &graph.templates);
        let done = templates.filter(|template| {
            template.id.as_deref() == Some(DONE_EARLIER) && template.command.is_empty()
        });
        done.map(|template| template.tasks.total()).sum()
    }
}

/// Whether an earlier run had done the task, so that it did not run.
pub(super) fn is_done_earlier(task: &TaskView) -> bool {
    task.id.as_deref() == Some(DONE_EARLIER) && task.command.is_empty()
}

/// The figures of the dispatcher.
pub(crate) async fn fetch(client: &mut Client, job: JobId) -> Result<JobReport, CliError> {
    match client.ask(FromClient::Report { job }).await? {
        ToClient::Report(report) => Ok(*report),
        _ => unexpected(),
    }
}

/// The details of a job that has this report.
pub(crate) async fn fetch_details(
    client: &mut Client,
    report: &JobReport,
) -> Result<JobDetails, CliError> {
    let job = report.job.job;
    let graph = match client.graph(job).await {
        Err(ClientError::Earlier { .. }) => None,
        graph => Some(graph?),
    };
    let mut tasks = BTreeMap::new();
    for (from, count) in parts(report.job.tasks.total()) {
        let part = client.tasks(job, from, count, false).await?;
        tasks.extend(part.into_iter().map(|task| (task.task.index, task)));
    }
    let mut failures = Vec::new();
    if report.job.tasks.failed > 0 {
        let failed = client.tasks(job, 0, MAX_FAILED_READ, true).await?;
        for (reason, indices) in by_reason(failed.iter().map(of_task)).into_iter().take(MAX_REASONS)
        {
            let first = indices.iter().copied().take(MAX_EXAMPLES).collect();
            let answer = client.ask(FromClient::Failures { job, tasks: first }).await?;
            let ToClient::Failures(examples) = answer else { return unexpected() };
            failures.push(FailureGroup { reason, count: indices.len() as u64, examples });
        }
        tasks.extend(failed.into_iter().map(|task| (task.task.index, task)));
    }
    let tasks = tasks.into_values().collect();
    Ok(JobDetails { graph, tasks, failures })
}

/// The failures that are a part of the report, by their reason.
pub(crate) fn groups_of(failures: &[FailureView]) -> Vec<FailureGroup> {
    let statuses = failures.iter().map(|failure| (failure.task, failure.status.as_str()));
    let groups = by_reason(statuses).into_iter().take(MAX_REASONS).map(|(reason, indices)| {
        let examples = failures.iter().filter(|failure| indices.contains(&failure.task.index));
        FailureGroup {
            reason,
            count: indices.len() as u64,
            examples: examples.take(MAX_EXAMPLES).cloned().collect(),
        }
    });
    groups.collect()
}

/// First index and number of the tasks in each part that is asked for. For example, of 1,000,000
/// tasks, 100 from each multiple of 10,000 on.
fn parts(tasks: u64) -> Vec<(u32, u32)> {
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    if tasks <= MAX_TASKS_READ {
        return vec![(0, tasks)];
    }
    let first = |part: u32| (u64::from(part) * u64::from(tasks) / u64::from(PARTS_READ)) as u32;
    (0..PARTS_READ).map(|part| (first(part), MAX_TASKS_READ / PARTS_READ)).collect()
}

fn of_task(task: &TaskView) -> (TaskId, &str) {
    (task.task, task.status.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_tasks_of_a_large_job_are_looked_at() {
        assert_eq!(parts(0), [(0, 0)]);
        assert_eq!(parts(10_000), [(0, 10_000)]);
        let large = parts(10_000_000);
        assert_eq!(large.iter().map(|(_, count)| count).sum::<u32>(), MAX_TASKS_READ);
        assert_eq!((large[1], large[99]), ((100_000, 100), (9_900_000, 100)));
        // Neighbouring parts do not overlap.
        let small = parts(10_001);
        assert!(small.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        assert!(small[99].0 + small[99].1 <= 10_001);
    }
}
