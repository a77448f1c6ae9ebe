//! Details of a job for its report: commands, inputs, tasks, and failures by their reason. The
//! client asks the dispatcher for them in parts. Of a job with very many tasks, it asks for some
//! only: a report must not take longer than its job.

use std::collections::BTreeMap;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::shown::with_short_quotes;
use eyas_client::types::{JobId, TaskId};
use eyas_client::view::graph::JobGraph;
use eyas_client::view::{FailureView, JobReport, TaskView};
use eyas_client::{Client, ClientError};

use crate::connect::unexpected;
use crate::error::CliError;

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

/// The indices of tasks by the reason for which they failed; the most frequent reason first.
fn by_reason<'a>(failed: impl Iterator<Item = (TaskId, &'a str)>) -> Vec<(String, Vec<u32>)> {
    let mut groups = BTreeMap::<String, (String, Vec<u32>)>::new();
    for (task, status) in failed {
        let (_, indices) =
            groups.entry(common_part(status)).or_insert_with(|| (status.into(), Vec::new()));
        indices.push(task.index);
    }
    // The reason of one task is its own status.
    let named = groups.into_iter().map(|(common, (status, indices))| {
        let reason = if indices.len() == 1 { status } else { common };
        (with_short_quotes(&reason).into_owned(), indices)
    });
    let mut named: Vec<_> = named.collect();
    named.sort_by_key(|(_, indices)| (usize::MAX - indices.len(), indices[0]));
    named
}

/// A status without what differs from task to task: quoted names, ids of tasks and times.
fn common_part(status: &str) -> String {
    if status.starts_with("timed out") {
        return "timed out".into();
    }
    let mut parts: Vec<_> = status.split('`').collect();
    // Text after the last backquote of an odd number is not quoted.
    let is_closed = parts.len() % 2 == 1;
    let last = parts.len() - 1;
    for (number, part) in parts.iter_mut().enumerate() {
        if number % 2 == 1 && (is_closed || number != last) {
            *part = "…";
        }
    }
    let is_digit = |c: char| c.is_ascii_digit();
    let is_id = |word: &str| {
        word.split_once('.').is_some_and(|(job, task)| {
            [job, task].iter().all(|part| !part.is_empty() && part.chars().all(is_digit))
        })
    };
    let without_ids = parts.join("`");
    let words = without_ids.split(' ').map(|word| {
        let bare = word.trim_end_matches([',', '.', ':', ';']);
        if is_id(bare) { word.replacen(bare, "…", 1) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(statuses: &[&'static str]) -> Vec<(TaskId, &'static str)> {
        let id = |index| TaskId { job: JobId(3), index };
        statuses.iter().enumerate().map(|(index, status)| (id(index as u32), *status)).collect()
    }

    #[test]
    fn failures_are_grouped_by_their_reason() {
        let tasks = failed(&[
            "exit code 2",
            "failed: cannot read `/data/a`: no such file",
            "exit code 1",
            "failed: cannot read `/data/b`: no such file",
            "timed out: it ran 1.01 s, and its --timeout is 1.00 s; give it more time",
            "failed: cannot read `/data/c`: no such file",
            "timed out: it ran 1.07 s, and its --timeout is 1.00 s; give it more time",
            "failed: it needs an output of task 3.1, which failed",
            "failed: it needs an output of task 3.5, which failed",
        ]);
        let groups = by_reason(tasks.into_iter());
        let expected = [
            ("failed: cannot read `…`: no such file", vec![1, 3, 5]),
            ("timed out", vec![4, 6]),
            ("failed: it needs an output of task …, which failed", vec![7, 8]),
            ("exit code 2", vec![0]),
            ("exit code 1", vec![2]),
        ];
        assert_eq!(groups, expected.map(|(reason, tasks)| (reason.to_owned(), tasks)));
        let one = by_reason(failed(&["failed: cannot read `/data/a`"]).into_iter());
        assert_eq!(one[0].0, "failed: cannot read `/data/a`", "one task has its own reason");
        assert_eq!(common_part("it's `open"), "it's `open");
    }

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
