//! What came of the tasks of a job: frames that could not be read, nodes, and what was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::Deserialize;
use tokio::task::block_in_place;

use crate::cluster_api::{ClusterError, JobProgress, TaskOutcome};
use crate::outcome_files::{
    BadFrame, FAILED_FRAMES, NotStackedRow, PARTIALS_FILE, bad_frames, kept_missing, kept_tasks,
    missing_object, object_of_row, write_left_out, write_missing,
};
use crate::portal::Portal;
use crate::position_files::kept_positions;
use crate::record::{Measured, StackJob};
use crate::runner_error::RunError;
use crate::whole_file::write_shared;

/// Frames that failed of which the reason is asked for; that of others is the status of their task.
const MAX_REASONS: usize = 1000;
/// Longest reason, characters.
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

/// Asks for the tasks of a job that has ended, and keeps which have succeeded and which failed.
pub async fn collect_outcomes(
    portal: &Portal,
    job: &StackJob,
    ended: &JobProgress,
) -> Result<io::Result<Outcomes>, ClusterError> {
    let (mut nodes, mut succeeded, mut failed) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let visit = |task: TaskOutcome| {
        nodes.extend(task.executor.clone());
        match (&*task.state, task.index()) {
            ("succeeded", Some(index)) => drop(succeeded.insert(index)),
            _ => failed.push(task),
        }
    };
    portal.cluster.tasks(ended.job, visit).await?;
    let mut reasons = BTreeMap::new();
    for (number, task) in failed.iter().enumerate() {
        let Some(index) = task.index() else { continue };
        let printed = match number < MAX_REASONS {
            true => portal.cluster.printed(ended.job, index, "stderr").await?,
            false => String::new(),
        };
        reasons.insert(index, reason_of(task, &printed));
    }
    let (folder, nodes) = (portal.folder_of(&job.id), nodes.len() as u64);
    let kept = block_in_place(|| keep_outcomes(&folder, &succeeded, &reasons));
    Ok(kept.map(|not_readable| Outcomes { not_readable, nodes }))
}

/// The last line that `stack` has printed, without its name.
fn reason_of(task: &TaskOutcome, printed: &str) -> String {
    let last = printed.lines().rev().find_map(|line| line.strip_prefix("stack: "));
    let other = printed.lines().rev().find(|line| !line.trim().is_empty());
    let status = task.status.as_deref().unwrap_or(&task.state);
    last.or(other).unwrap_or(status).chars().take(MAX_REASON_CHARS).collect()
}

/// Keeps the partial sums of the tasks that have succeeded, in the order of the tasks, and the
/// frames of all others: each frame is in the image, or is listed.
fn keep_outcomes(
    folder: &Path,
    succeeded: &BTreeSet<usize>,
    reasons: &BTreeMap<usize, String>,
) -> io::Result<u64> {
    let (mut partials, mut bad) = (String::new(), Vec::new());
    for (index, task) in kept_tasks(folder)?.into_iter().enumerate() {
        if succeeded.contains(&index) {
            partials += &format!("{}\n", task.partial);
            continue;
        }
        let unknown = || "the cluster has no outcome of its task".to_owned();
        let reason = reasons.get(&index).cloned().unwrap_or_else(unknown);
        bad.push(BadFrame { frame: task.frame, objects: task.objects, reason });
    }
    write_shared(&folder.join(FAILED_FRAMES), &serde_json::to_vec(&bad)?)?;
    write_shared(&folder.join(PARTIALS_FILE), partials.as_bytes())?;
    Ok(bad.len() as u64)
}

/// The partial sums of the tasks that have succeeded.
fn kept_partials(folder: &Path) -> io::Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(folder.join(PARTIALS_FILE))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// A file that a task has written, and that the portal has to see.
fn must_be_seen(path: &str, read: io::Result<Vec<u8>>) -> Result<Vec<u8>, RunError> {
    read.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => RunError::Job(format!(
            "the portal does not see {path}, which a task has written: --work has to be a folder \
             that the portal and all nodes share, at the same path"
        )),
        _ => why.into(),
    })
}

/// Counts an object without a stacked region as not found, and lists the regions that tasks have
/// left out of the other objects. Returns the number of objects that were not found.
pub fn add_left_out(folder: &Path) -> Result<u64, RunError> {
    let (list, partials) = (kept_positions(folder)?, kept_partials(folder)?);
    // The regions of each object that were stacked, by its row in the list.
    let mut stacked: BTreeMap<usize, u64> = BTreeMap::new();
    let mut rows: Vec<NotStackedRow> = Vec::new();
    for task in kept_tasks(folder)? {
        let mut shown: BTreeMap<usize, u64> =
            rows_of_list(&task.list)?.into_iter().map(|row| (row, 0)).collect();
        if partials.contains(&task.partial) {
            let bytes = must_be_seen(&task.report, std::fs::read(&task.report))?;
            let report: TaskReport = serde_json::from_slice(&bytes)
                .map_err(|why| RunError::Job(format!("a report of `stack` is damaged: {why}")))?;
            shown.values_mut().for_each(|regions| *regions = 1);
            for row in report.not_stacked.into_iter().filter(|row| !row.name.is_empty()) {
                shown.insert(row.number(), 0);
                rows.push(row);
            }
        }
        shown.into_iter().for_each(|(row, regions)| *stacked.entry(row).or_default() += regions);
    }
    let mut left_out: Vec<_> = rows.iter().map(|row| missing_object(&list, row)).collect();
    left_out.sort_by(|a, b| (a.row, &a.reason).cmp(&(b.row, &b.reason)));
    // A restart may come here twice: what was added before goes.
    let mut missing = kept_missing(folder)?;
    missing.retain(|object| !stacked.contains_key(&object.row));
    for row in stacked.iter().filter(|(_, regions)| **regions == 0).map(|(row, _)| *row) {
        let at = left_out.partition_point(|object| object.row < row);
        let known = left_out.get(at).filter(|object| object.row == row).cloned();
        missing.push(known.unwrap_or_else(|| {
            object_of_row(&list, row, "none of the frames that show it could be read".into())
        }));
    }
    missing.sort_by_key(|object| object.row);
    left_out.retain(|object| stacked.get(&object.row).is_some_and(|regions| *regions > 0));
    write_missing(folder, &missing)?;
    write_left_out(folder, &left_out)?;
    Ok(missing.len() as u64)
}

/// The rows of the objects that a frame shows, from the list of its task.
fn rows_of_list(path: &str) -> Result<Vec<usize>, RunError> {
    let wrong = |why: csv::Error| RunError::Job(format!("{path} cannot be read: {why}"));
    let mut reader = csv::Reader::from_path(path).map_err(wrong)?;
    let names = reader.headers().map_err(wrong)?;
    let at = names.iter().position(|name| name == "name").unwrap_or_default();
    let row = |line: csv::Result<csv::StringRecord>| {
        let line = line.map_err(wrong)?;
        Ok(line.get(at).and_then(|row| row.parse().ok()).unwrap_or_default())
    };
    reader.into_records().map(row).collect()
}

/// Checks that the portal sees the partial sums that are summed: a frame must not be absent from
/// the image without a word.
pub fn check_partials(portal: &Portal, job: &StackJob) -> Result<(), RunError> {
    let folder = portal.folder_of(&job.id);
    let partials = kept_partials(&folder)?;
    if partials.is_empty() {
        let first = bad_frames(&folder)?.pop().map(|bad| bad.reason).unwrap_or_default();
        return Err(RunError::Job(format!("none of the frames could be stacked: {first}")));
    }
    for path in &partials {
        must_be_seen(path, std::fs::metadata(path).map(|_| Vec::new()))?;
    }
    Ok(())
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
    use crate::outcome_files::{FrameTask, MissingObject, kept_left_out, write_found};
    use crate::position_files::write_positions;
    use crate::positions::read_positions;

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
        let (succeeded, reasons) = (BTreeSet::from([0]), BTreeMap::from([(1, reason)]));
        assert_eq!(keep_outcomes(folder.path(), &succeeded, &reasons).unwrap(), 1);
        let bad = bad_frames(folder.path()).unwrap();
        assert_eq!((&*bad[0].frame, bad[0].objects, bad.len()), ("/c", 3, 1));
    }

    #[test]
    fn measures_are_read_from_what_the_sum_prints() {
        let read = measures_in("partials=2\tstacked=9\tskipped=1\tflux=1.5e0\tflux_sigma=2\n");
        assert_eq!((read.stacked, read.skipped), (9, 1));
        assert_eq!(read.measured[0], ("flux".into(), "1.5e0".into()));
    }

    /// A folder of a job with three objects on two frames: `b` is on both.
    fn folder_of_two_frames() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let list = read_positions(b"name,ra,dec\na,1,2\nb,3,4\nc,5,6\n").unwrap();
        write_positions(folder.path(), &list).unwrap();
        let task = |number: usize, rows: &str| {
            let list = path(&format!("{number}.csv"));
            std::fs::write(&list, format!("ra,dec,band,weight,name\n{rows}")).unwrap();
            let [partial, report] = ["fits", "json"].map(|end| path(&format!("{number}.{end}")));
            let (frame, hdu) = (format!("/f{number}"), "0".into());
            FrameTask { frame, list, partial, hdu, report, objects: 2 }
        };
        let tasks = [task(0, "1,2,,1,1\n3,4,,1,2\n"), task(1, "3,4,,1,2\n5,6,,1,3\n")];
        write_found(folder.path(), &tasks, &[], &[]).unwrap();
        folder
    }

    fn undefined(rows: &[usize]) -> String {
        let row = |row| format!("{{\"name\": \"{row}\", \"reason\": \"undefined\"}}");
        let rows: Vec<_> = rows.iter().map(row).collect();
        format!("{{\"not_stacked\": [{}]}}", rows.join(", "))
    }

    #[test]
    fn an_object_with_a_stacked_region_was_found() {
        let folder = folder_of_two_frames();
        let folder = folder.path();
        std::fs::write(folder.join("0.json"), undefined(&[1, 2])).unwrap();
        std::fs::write(folder.join("1.json"), undefined(&[])).unwrap();
        keep_outcomes(folder, &BTreeSet::from([0, 1]), &BTreeMap::new()).unwrap();
        for _ in 0..2 {
            // A restart may do it again.
            assert_eq!(add_left_out(folder).unwrap(), 1);
        }
        let names =
            |all: Vec<MissingObject>| all.into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(kept_missing(folder).unwrap()), ["a"]);
        assert_eq!(names(kept_left_out(folder).unwrap()), ["b"], "its other region is stacked");
    }

    #[test]
    fn each_frame_is_summed_or_listed() {
        let folder = folder_of_two_frames();
        let folder = folder.path();
        std::fs::write(folder.join("0.json"), undefined(&[])).unwrap();
        // A submission that was lost has left the partial sum of a task that failed later.
        std::fs::write(folder.join("1.fits"), "").unwrap();
        assert_eq!(keep_outcomes(folder, &BTreeSet::from([0]), &BTreeMap::new()).unwrap(), 1);
        let bad = bad_frames(folder).unwrap();
        assert!(bad[0].frame == "/f1" && bad[0].reason.contains("no outcome"), "{bad:?}");
        assert!(kept_partials(folder).unwrap().iter().all(|path| path.ends_with("/0.fits")));
        assert_eq!(add_left_out(folder).unwrap(), 1);
        assert!(kept_missing(folder).unwrap()[0].reason.contains("could be read"));
        // A task that has succeeded where the portal does not see its files.
        std::fs::remove_file(folder.join("0.json")).unwrap();
        let why = add_left_out(folder).unwrap_err().to_string();
        assert!(why.contains("/0.json") && why.contains("--work"), "{why}");
    }
}
