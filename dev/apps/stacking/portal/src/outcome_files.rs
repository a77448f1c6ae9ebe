//! Files in the folder of a job: its tasks, the objects that are not in the image, and the frames
//! that could not be read.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::position_list::PositionList;
use crate::whole_file::{write_all_shared, write_shared};

/// Frames that `find` missed, and those of failed tasks.
const MISSING_FRAMES: &str = "missing-frames.json";
pub const FAILED_FRAMES: &str = "failed-frames.json";
/// The partial sums that are summed.
pub const PARTIALS_FILE: &str = "partials.txt";

/// A row of a report of `stack`.
#[derive(Clone, Debug, Deserialize)]
pub struct NotStackedRow {
    /// The row of the object in the list.
    pub name: String,
    reason: String,
    #[serde(default)]
    frame: String,
    #[serde(default)]
    detail: String,
}

impl NotStackedRow {
    /// The row of the object in the list, from 1.
    pub fn number(&self) -> usize {
        self.name.parse().unwrap_or_default()
    }
}

/// An object of the list, with the reason for which it is not in the image.
pub fn object_of_row(list: &PositionList, row: usize, reason: String) -> MissingObject {
    let at = list.positions.binary_search_by_key(&row, |position| position.row);
    let position = at.ok().map(|at| &list.positions[at]);
    MissingObject {
        row,
        name: position.and_then(|position| position.name.clone()).unwrap_or_default(),
        ra: position.map(|position| position.ra.to_string()).unwrap_or_default(),
        dec: position.map(|position| position.dec.to_string()).unwrap_or_default(),
        reason,
    }
}

/// An object that a report of `stack` names, with the name of the user's list.
pub fn missing_object(list: &PositionList, row: &NotStackedRow) -> MissingObject {
    let words = match &*row.reason {
        "not_covered" => "no frame of the survey shows it",
        "border" => "the border of the frame cuts its region",
        "undefined" => "its region has undefined pixels",
        "no_such_band" => "the survey has no such band",
        "other_band" => "no frame of this band shows it",
        "outside" => "it is outside the frame",
        other => other,
    };
    let more = [&*row.frame, &*row.detail].into_iter().filter(|text| !text.is_empty());
    let more: Vec<&str> = more.collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
    object_of_row(list, row.number(), format!("{words}{more}"))
}

/// A frame that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BadFrame {
    pub frame: String,
    /// Objects of the list that it shows.
    pub objects: usize,
    pub reason: String,
}

/// A line of `tasks.tsv`.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameTask {
    pub frame: String,
    pub list: String,
    pub partial: String,
    /// The number of the image in the file.
    pub hdu: String,
    /// The report of what was not stacked.
    pub report: String,
    pub objects: usize,
}

/// The tasks of a job, as they were submitted.
pub fn kept_tasks(folder: &Path) -> io::Result<Vec<FrameTask>> {
    let text = std::fs::read_to_string(folder.join(TASKS_FILE))?;
    let task = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        let (frame, list, partial) = (fields.next()?, fields.next()?, fields.next()?);
        let (hdu, report) = (fields.next()?, fields.next()?);
        let objects = fields.next()?.parse().ok()?;
        Some(FrameTask { frame, list, partial, hdu, report, objects })
    };
    Ok(text.lines().filter_map(task).collect())
}

/// Keeps what was found: tasks, objects that no frame shows, and frames that are lost.
pub fn write_found(
    folder: &Path,
    tasks: &[FrameTask],
    missing: &[MissingObject],
    lost: &[BadFrame],
) -> io::Result<()> {
    let line = |task: &FrameTask| {
        let FrameTask { frame, list, partial, hdu, report, objects } = task;
        format!("{frame}\t{list}\t{partial}\t{hdu}\t{report}\t{objects}\n")
    };
    let files = [
        (TASKS_FILE, tasks.iter().map(line).collect()),
        (MISSING_FILE, serde_json::to_string(missing)?),
        (MISSING_FRAMES, serde_json::to_string(lost)?),
    ];
    write_all_shared(folder, &files)
}

/// Frames of a job that could not be read: those that `find` missed, and those of failed tasks.
pub fn bad_frames(folder: &Path) -> io::Result<Vec<BadFrame>> {
    let mut all = Vec::new();
    for name in [MISSING_FRAMES, FAILED_FRAMES] {
        match std::fs::read(folder.join(name)) {
            Ok(bytes) => all.extend(serde_json::from_slice::<Vec<BadFrame>>(&bytes)?),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => return Err(why),
        }
    }
    Ok(all)
}

/// An object that is not in the image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissingObject {
    /// Its row in the list, from 1.
    pub row: usize,
    pub name: String,
    pub ra: String,
    pub dec: String,
    pub reason: String,
}

const MISSING_FILE: &str = "not-found.json";
const LEFT_OUT_FILE: &str = "left-out.json";
const TASKS_FILE: &str = "tasks.tsv";

/// Keeps which objects are not in the image.
pub fn write_missing(folder: &Path, missing: &[MissingObject]) -> io::Result<()> {
    write_shared(&folder.join(MISSING_FILE), &serde_json::to_vec(missing)?)
}

/// Keeps the regions that were left out of objects that have others in the image.
pub fn write_left_out(folder: &Path, left_out: &[MissingObject]) -> io::Result<()> {
    write_shared(&folder.join(LEFT_OUT_FILE), &serde_json::to_vec(left_out)?)
}

/// Objects that are not in the image.
pub fn kept_missing(folder: &Path) -> io::Result<Vec<MissingObject>> {
    kept_objects(&folder.join(MISSING_FILE))
}

/// Regions that were left out of objects that have others in the image.
pub fn kept_left_out(folder: &Path) -> io::Result<Vec<MissingObject>> {
    kept_objects(&folder.join(LEFT_OUT_FILE))
}

fn kept_objects(path: &Path) -> io::Result<Vec<MissingObject>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(why),
    }
}
