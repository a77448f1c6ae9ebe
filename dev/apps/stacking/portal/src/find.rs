//! Which frames of a survey show the positions of a job: `stack find` says, with the survey's
//! position index. The portal runs it beside itself, because it takes a moment and decides what the
//! job costs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::outcome_files::{
    BadFrame, FrameTask, MissingObject, NotStackedRow, missing_object, write_found, write_missing,
};
use crate::params::Weights;
use crate::portal::Portal;
use crate::position_files::kept_positions;
use crate::position_list::{OffSky, PositionList};
use crate::record::StackJob;
use crate::runner_error::RunError;
use crate::surveys::Survey;

/// `stack find` ends within this time: it finds 100,000 positions in seconds.
const FIND_DEADLINE: Duration = Duration::from_secs(600);
/// Folder with the lists of the frames.
const LISTS: &str = "lists";

/// What was found, in numbers.
pub struct FoundFrames {
    pub object_frames: u64,
    pub frames: u64,
    pub not_found: u64,
    pub not_readable: u64,
    pub tasks: u64,
}

/// The report of `stack find`.
#[derive(Deserialize)]
struct FindReport {
    not_stacked: Vec<NotStackedRow>,
}

/// Finds the frames of a job, and keeps the tasks and the objects that were not found.
pub async fn find_frames(
    portal: &Portal,
    job: &StackJob,
    survey: &Survey,
) -> Result<FoundFrames, RunError> {
    let folder = portal.folder_of(&job.id);
    let list = kept_positions(&folder)?;
    // What an interrupted look-up has left would become tasks.
    match fs::remove_dir_all(folder.join(LISTS)) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why.into()),
        _ => {}
    }
    fs::create_dir_all(folder.join("partials"))?;
    let missing: Vec<MissingObject> = list.off_sky.iter().map(off_sky).collect();
    if list.positions.is_empty() {
        write_missing(&folder, &missing)?;
        return Ok(found_frames(&[], &missing, 0));
    }
    fs::write(folder.join("find.csv"), list_for_find(&list, job.params.weights))?;
    run_find(portal, job, survey, &folder).await?;
    block_in_place(|| keep_found(&folder, survey, &list, missing))
}

/// Writes two files: the tasks, and the objects without a frame, among them those off the sky.
fn keep_found(
    folder: &Path,
    survey: &Survey,
    list: &PositionList,
    mut missing: Vec<MissingObject>,
) -> Result<FoundFrames, RunError> {
    let report: FindReport = serde_json::from_slice(&fs::read(folder.join("find.json"))?)
        .map_err(|why| RunError::Job(format!("the report of `stack find` is damaged: {why}")))?;
    missing.extend(report.not_stacked.iter().map(|row| missing_object(list, row)));
    missing.sort_by_key(|object| object.row);
    let (tasks, lost) = frame_tasks(folder, survey)?;
    write_found(folder, &tasks, &missing, &lost)?;
    Ok(found_frames(&tasks, &missing, lost.len()))
}

fn off_sky(off: &OffSky) -> MissingObject {
    MissingObject {
        row: off.row,
        name: off.name.clone().unwrap_or_default(),
        ra: off.ra.clone(),
        dec: off.dec.clone(),
        reason: off.reason.clone(),
    }
}

fn found_frames(tasks: &[FrameTask], missing: &[MissingObject], lost: usize) -> FoundFrames {
    let frames: BTreeSet<&str> = tasks.iter().map(|task| &*task.frame).collect();
    FoundFrames {
        object_frames: tasks.iter().map(|task| task.objects as u64).sum(),
        frames: frames.len() as u64,
        not_found: missing.len() as u64,
        not_readable: lost as u64,
        tasks: tasks.len() as u64,
    }
}

/// The list as `stack find` reads it. The name of an object is its row, by which reports name it.
fn list_for_find(list: &PositionList, weights: Weights) -> String {
    let has_weights = weights != Weights::None;
    let mut text = String::from("name,ra,dec,band,weight\n");
    for position in &list.positions {
        // A name of a band has no separators and quotes.
        let band = position.band.as_deref().unwrap_or_default();
        let weight = position.weight.filter(|_| has_weights).unwrap_or(1.0);
        let (row, ra, dec) = (position.row, position.ra, position.dec);
        text += &format!("{row},{ra},{dec},{band},{weight}\n");
    }
    text
}

async fn run_find(
    portal: &Portal,
    job: &StackJob,
    survey: &Survey,
    folder: &Path,
) -> Result<(), RunError> {
    let mut command = Command::new(&portal.stack);
    command.arg("find").arg("--index").arg(&survey.index);
    command.arg("--list").arg(folder.join("find.csv"));
    command.arg("--size").arg(job.params.edge().to_string());
    if let Some(band) = &job.params.band {
        command.arg(format!("--band={band}"));
    }
    command.arg("--out-tasks").arg(folder.join("find-tasks.csv"));
    command.arg("--out-lists").arg(folder.join(LISTS));
    command.arg("--report").arg(folder.join("find.json"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = timeout(FIND_DEADLINE, command.output()).await.map_err(|_| {
        RunError::Job("the frames were not found in time: stack fewer positions".into())
    })??;
    match ended.status.success() {
        true => Ok(()),
        false => {
            let printed = String::from_utf8_lossy(&ended.stderr);
            Err(RunError::Job(format!("the frames cannot be found: {}", printed.trim())))
        }
    }
}

/// The tasks of the frames that are there, and the frames that are not.
fn frame_tasks(
    folder: &Path,
    survey: &Survey,
) -> Result<(Vec<FrameTask>, Vec<BadFrame>), RunError> {
    let wrong =
        |why: csv::Error| RunError::Job(format!("the tasks of `stack find` cannot be read: {why}"));
    // Frames have the names that they were given in the folder of the index.
    let base = survey.index.parent().unwrap_or(Path::new("/"));
    let (mut tasks, mut lost) = (Vec::new(), Vec::new());
    let path = folder.join("find-tasks.csv");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(path).map_err(wrong)?;
    for (number, line) in reader.records().enumerate() {
        let line = line.map_err(wrong)?;
        let field = |at: usize| line.get(at).unwrap_or_default().to_owned();
        let frame = base.join(field(0));
        let objects = field(3).parse().unwrap_or_default();
        let name = frame.to_string_lossy().into_owned();
        let bad = |reason: &str| BadFrame { frame: name.clone(), objects, reason: reason.into() };
        if name.contains(['\t', '\n', '\r']) {
            lost.push(bad("its path has a tab or a line end: rename it, and make the index again"));
        } else if let Err(why) = fs::metadata(&frame) {
            lost.push(bad(&match why.kind() {
                io::ErrorKind::NotFound => "the file does not exist".to_owned(),
                _ => format!("the file cannot be read: {why}"),
            }));
        } else {
            let partial = folder.join(format!("partials/{number:07}.fits"));
            let report = folder.join(format!("partials/{number:07}.json"));
            tasks.push(FrameTask {
                frame: name,
                list: field(1),
                partial: partial.to_string_lossy().into_owned(),
                hdu: field(2),
                report: report.to_string_lossy().into_owned(),
                objects,
            });
        }
    }
    Ok((tasks, lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::positions::read_positions;

    #[test]
    fn objects_are_named_by_their_rows_and_have_weights_when_asked() {
        let list = b"name,ra,dec,band,weight\na,NaN,0,,\nb,1.5,-2,r,0.25\nc,3,4,,\n";
        let list = read_positions(list).unwrap();
        let text = list_for_find(&list, Weights::List);
        assert_eq!(text, "name,ra,dec,band,weight\n2,1.5,-2,r,0.25\n3,3,4,,1\n");
        assert!(list_for_find(&list, Weights::None).contains("2,1.5,-2,r,1\n"));
        let list = read_positions(b"ra,dec,band\n1.5,-2,+r\n").unwrap();
        assert!(list_for_find(&list, Weights::None).contains("1,1.5,-2,+r,1\n"));
    }

    #[test]
    fn a_frame_that_is_lost_is_no_task() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.fits"), "").unwrap();
        let lines = "a.fits,/l/1.csv,0,3\ngone.fits,/l/2.csv,1,2\n";
        fs::write(folder.path().join("find-tasks.csv"), lines).unwrap();
        let text = format!(
            "name = \"s\"\nindex = \"{}/index\"\npixel_scale = 1.0\nquota = 1",
            folder.path().display()
        );
        let survey: Survey = toml::from_str(&text).unwrap();
        let (tasks, lost) = frame_tasks(folder.path(), &survey).unwrap();
        assert_eq!((tasks.len(), tasks[0].objects, &*tasks[0].hdu), (1, 3, "0"));
        assert_eq!((lost.len(), lost[0].objects), (1, 2));
        assert!(lost[0].frame.ends_with("gone.fits"));
    }
}
