//! What came of the tasks of a job: frames that could not be read, nodes, and what was measured.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::cluster_api::{ClusterError, JobProgress, TaskOutcome};
use crate::outcome_files::{
    BadFrame, FAILED_FRAMES, NotStackedRow, bad_frames, kept_missing, kept_tasks, missing_object,
    write_missing,
};
use crate::portal::Portal;
use crate::position_files::kept_positions;
use crate::record::{Measured, StackJob};
use crate::runner_error::RunError;
use crate::whole_file::write_shared;

/// Frames that failed of which the reason is asked for; that of others is the status of their task.
const MAX_REASONS: usize = 1000;
/// Longest reason, bytes.
const MAX_REASON_CHARS: usize = 500;

#[derive(Deserialize)]
struct TaskReport {
    not_stacked: Vec<NotStackedRow>,
}

/// What came of the tasks.
pub struct Outcomes {
    pub not_readable: u64,
    pub nodes: u64,
}

/// Asks for the tasks of a job that has ended, and keeps which frames failed.
pub async fn collect_outcomes(
    portal: &Portal,
    job: &StackJob,
    ended: &JobProgress,
) -> Result<io::Result<Outcomes>, ClusterError> {
    let (mut nodes, mut failed) = (BTreeSet::new(), Vec::new());
    let visit = |task: TaskOutcome| {
        nodes.extend(task.executor.clone());
        if task.state != "succeeded" {
            failed.push(task);
        }
    };
    portal.cluster.tasks(ended.job, None, visit).await?;
    let mut reasons = Vec::new();
    for (number, task) in failed.iter().enumerate() {
        let Some(index) = task.index() else { continue };
        let printed = match number < MAX_REASONS {
            true => portal.cluster.printed(ended.job, index, "stderr").await?,
            false => String::new(),
        };
        reasons.push((index, reason_of(task, &printed)));
    }
    let (folder, nodes) = (portal.folder_of(&job.id), nodes.len() as u64);
    Ok(keep_failed(&folder, &reasons).map(|not_readable| Outcomes { not_readable, nodes }))
}

/// The last line that `stack` has printed, without its name.
fn reason_of(task: &TaskOutcome, printed: &str) -> String {
    let last = printed.lines().rev().find_map(|line| line.strip_prefix("stack: "));
    let other = printed.lines().rev().find(|line| !line.trim().is_empty());
    let status = task.status.as_deref().unwrap_or(&task.state);
    last.or(other).unwrap_or(status).chars().take(MAX_REASON_CHARS).collect()
}

fn keep_failed(folder: &Path, reasons: &[(usize, String)]) -> io::Result<u64> {
    let tasks = kept_tasks(folder)?;
    let bad = reasons.iter().filter_map(|(index, reason)| {
        let task = tasks.get(*index)?;
        let (frame, objects) = (task.frame.clone(), task.objects);
        Some(BadFrame { frame, objects, reason: reason.clone() })
    });
    let bad: Vec<_> = bad.collect();
    write_shared(&folder.join(FAILED_FRAMES), &serde_json::to_vec(&bad)?)?;
    Ok(bad.len() as u64)
}

/// Adds the objects that tasks have left out, by their reports.
pub fn add_left_out(folder: &Path) -> Result<u64, RunError> {
    let list = kept_positions(folder)?;
    let mut missing = kept_missing(folder)?;
    for task in kept_tasks(folder)? {
        let bytes = match std::fs::read(&task.report) {
            Ok(bytes) => bytes,
            // A task that has failed has written none.
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            Err(why) => return Err(why.into()),
        };
        let report: TaskReport = serde_json::from_slice(&bytes)
            .map_err(|why| RunError::Job(format!("a report of `stack` is damaged: {why}")))?;
        // `find` knows frames whose border cuts a region; here are those with undefined pixels.
        let rows = report.not_stacked.iter().filter(|row| !row.name.is_empty());
        missing.extend(rows.map(|row| missing_object(&list, row)));
    }
    // A restart may come here twice.
    missing.sort_by(|a, b| (a.row, &a.reason).cmp(&(b.row, &b.reason)));
    missing.dedup();
    write_missing(folder, &missing)?;
    Ok(missing.len() as u64)
}

/// Writes the list of partial sums that there are, in the order of the tasks.
pub fn write_partials(portal: &Portal, job: &StackJob) -> Result<(), RunError> {
    let folder = portal.folder_of(&job.id);
    let tasks = kept_tasks(&folder)?;
    let there = tasks.iter().filter(|task| Path::new(&task.partial).exists());
    let text: String = there.map(|task| format!("{}\n", task.partial)).collect();
    if text.is_empty() {
        let first = bad_frames(&folder)?.pop().map(|bad| bad.reason).unwrap_or_default();
        return Err(RunError::Job(format!("none of the frames could be stacked: {first}")));
    }
    // A restart writes it again.
    Ok(std::fs::write(folder.join("partials.txt"), text)?)
}

/// What `stack --sum` has printed.
pub struct SumMeasures {
    pub stacked: u64,
    pub skipped: u64,
    pub measured: Measured,
}

/// Asks for what the task of a sum has printed. The inner error says why it has failed.
pub async fn printed_measures(
    portal: &Portal,
    ended: &JobProgress,
) -> Result<Result<SumMeasures, String>, ClusterError> {
    if ended.tasks.succeeded == 0 {
        let printed = portal.cluster.printed(ended.job, 0, "stderr").await?;
        let last = printed.lines().rev().find(|line| !line.trim().is_empty());
        let why = last.unwrap_or("its task was cancelled").to_owned();
        return Ok(Err(format!("the partial sums cannot be summed: {why}")));
    }
    let printed = portal.cluster.printed(ended.job, 0, "stdout").await?;
    Ok(Ok(measures_in(&printed)))
}

/// Reads `key=value` between tabs.
fn measures_in(printed: &str) -> SumMeasures {
    let pairs = printed.trim().split('\t').filter_map(|pair| pair.split_once('='));
    let mut read = SumMeasures { stacked: 0, skipped: 0, measured: Vec::new() };
    for (key, value) in pairs {
        match key {
            "stacked" => read.stacked = value.parse().unwrap_or_default(),
            "skipped" => read.skipped = value.parse().unwrap_or_default(),
            // The portal has counts of its own for these.
            "partials" | "unreadable" => {}
            _ => read.measured.push((key.to_owned(), value.to_owned())),
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome_files::{FrameTask, write_found};

    #[test]
    fn failed_frames_are_kept_with_their_reasons() {
        let folder = tempfile::tempdir().unwrap();
        let task = |frame: &str| FrameTask {
            frame: frame.into(),
            list: "l".into(),
            partial: "p".into(),
            hdu: "0".into(),
            report: "r".into(),
            objects: 3,
        };
        write_found(folder.path(), &[task("/a b"), task("/c")], &[], &[]).unwrap();
        assert_eq!(kept_tasks(folder.path()).unwrap()[0], task("/a b"));
        let outcome = TaskOutcome {
            task: "1.1".into(),
            state: "failed".into(),
            executor: None,
            status: Some("exit code 65".into()),
        };
        let reason = reason_of(&outcome, "x\nstack: c: not a FITS file\n\n");
        assert_eq!(reason, "c: not a FITS file");
        assert_eq!(reason_of(&outcome, "\n"), "exit code 65");
        assert_eq!(keep_failed(folder.path(), &[(1, reason)]).unwrap(), 1);
        let bad = bad_frames(folder.path()).unwrap();
        assert_eq!((&*bad[0].frame, bad[0].objects, bad.len()), ("/c", 3, 1));
    }

    #[test]
    fn measures_are_read_from_what_the_sum_prints() {
        let read = measures_in("partials=2\tstacked=9\tskipped=1\tflux=1.5e0\tflux_sigma=2\n");
        assert_eq!((read.stacked, read.skipped), (9, 1));
        assert_eq!(read.measured[0], ("flux".into(), "1.5e0".into()));
    }
}
