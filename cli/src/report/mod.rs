//! A job's report: the paper's summary views (data-diffusion §5.1, figures 17 to 23) and its metrics, as a page for a
//! browser, as tables for programs and as text for a terminal.
//!
//! It shows and converts and decides nothing: what a figure means and how it was measured is `eyas_wire::view`'s. The
//! page is one file that never asks a network for anything, so that it can be mailed, archived and opened years later.
//! Names, failures and warnings were written by others: no form lets them act, neither as markup, as script nor as
//! terminal control.

mod amount;
mod course;
#[cfg(test)]
mod example;
mod figure;
mod page;
mod plots;
mod text;

use eyas_wire::view::{JobReport, JobView, SCHEMA_VERSION, Sample};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::CliError;

pub use plots::{Axis, Line, Plot, plots};

/// The report as one self-contained HTML page. With a `baseline`, the job is compared with it: speedup and performance
/// index as the paper has them, and its throughput as a faint line.
pub fn html(report: &JobReport, baseline: Option<&JobReport>) -> String {
    page::html(report, baseline)
}

/// What a report is written as; the ending of its file's name says which.
#[derive(Clone, Copy)]
pub enum Form {
    /// A page for a browser.
    Page,
    /// The job's course.
    Csv,
    /// All of it.
    Json,
}

impl Form {
    /// That of a file; none if its name has another ending.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "html" | "htm" => Some(Form::Page),
            "csv" => Some(Form::Csv),
            "json" => Some(Form::Json),
            _ => None,
        }
    }

    /// The report in this form.
    pub fn text(self, report: &JobReport, baseline: Option<&JobReport>) -> String {
        match self {
            Form::Page => html(report, baseline),
            Form::Csv => csv(report),
            Form::Json => json(report),
        }
    }
}

/// A path whose ending names the form of a report.
pub(crate) fn parse_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match Form::of(&path) {
        Some(_) => Ok(path),
        None => Err(format!("`{text}` does not name the form of a report: end the name in .html, .csv or .json")),
    }
}

/// Writes a report in the form that the ending of its path names.
pub(crate) fn write(path: &Path, report: &JobReport, baseline: Option<&JobReport>) -> Result<(), CliError> {
    let form = Form::of(path)
        .ok_or_else(|| format!("{}: the name of a report ends in .html, .csv or .json", path.display()))?;
    let text = form.text(report, baseline);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| format!("cannot create the folder {}: {e}", folder.display()))?;
    }
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

/// Whether a report is of a simulated job: nobody has submitted that.
fn is_simulated(job: &JobView) -> bool {
    job.submitted_unix_ms == 0
}

/// The course of the job, one row a sample, every column with its unit in its name.
pub fn csv(report: &JobReport) -> String {
    let names: Vec<&str> = CSV_COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut csv = names.join(",");
    csv.push('\n');
    for sample in &report.samples {
        for (place, (_, value)) in CSV_COLUMNS.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(csv, "{comma}{}", value(sample));
        }
        csv.push('\n');
    }
    csv
}

/// The whole report with the version of its form: `{"schema_version":1,"report":{...}}`. A figure that is not a number
/// is `null`.
pub fn json(report: &JobReport) -> String {
    #[derive(Serialize)]
    struct Versioned<'a> {
        schema_version: u32,
        report: &'a JobReport,
    }
    // Only maps with keys that are not strings, and types that refuse, can fail to become JSON: here are neither.
    serde_json::to_string(&Versioned { schema_version: SCHEMA_VERSION, report }).expect("a report becomes JSON")
}

/// The metrics as lines of text for a terminal, aligned, with units.
pub fn table(report: &JobReport) -> String {
    text::table(report)
}

/// A column of the CSV: its name, and its value as a number that loses nothing.
type Column = (&'static str, fn(&Sample) -> f64);

/// Columns of the CSV. Counts stay exact: an `f64` holds whole numbers up to 2^53, nine petabytes an interval.
const CSV_COLUMNS: [Column; 16] = [
    ("at_us", |s| s.at_us as f64),
    ("interval_us", |s| s.interval_us as f64),
    ("arrived_tasks", |s| s.arrived as f64),
    ("arrived_bytes", |s| s.arrived_bytes as f64),
    ("ended_tasks", |s| s.ended as f64),
    ("local_inputs", |s| s.reads.local.count as f64),
    ("local_bytes", |s| s.reads.local.bytes as f64),
    ("peer_inputs", |s| s.reads.peer.count as f64),
    ("peer_bytes", |s| s.reads.peer.bytes as f64),
    ("persistent_inputs", |s| s.reads.persistent.count as f64),
    ("persistent_bytes", |s| s.reads.persistent.bytes as f64),
    ("waiting_tasks", |s| s.waiting as f64),
    ("assigned_tasks", |s| s.assigned as f64),
    ("executors", |s| s.executors as f64),
    ("capacity_processors", |s| s.capacity_milli as f64 / 1e3),
    ("busy_processors", |s| s.busy_milli as f64 / 1e3),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_a_row_a_sample_and_a_name_a_column() {
        let report = example::diffusion();
        let csv = csv(&report);
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), report.samples.len() + 1);
        assert!(rows.iter().all(|row| row.len() == CSV_COLUMNS.len()));
        let at = |name| rows[0].iter().position(|column| *column == name).expect(name);
        let (row, sample) = (&rows[100], &report.samples[99]);
        assert_eq!(row[at("at_us")], sample.at_us.to_string());
        assert_eq!(row[at("peer_bytes")], sample.reads.peer.bytes.to_string());
        assert_eq!(row[at("persistent_inputs")], sample.reads.persistent.count.to_string());
        assert_eq!(row[at("waiting_tasks")], sample.waiting.to_string());
        assert_eq!(row[at("busy_processors")].parse(), Ok(sample.busy_milli as f64 / 1000.0));
    }

    #[test]
    fn json_is_versioned_and_reads_back() {
        let mut report = example::hostile();
        report.metrics.slowdown = f64::NAN;
        let read: serde_json::Value = serde_json::from_str(&json(&report)).expect("JSON");
        assert_eq!(read["schema_version"], SCHEMA_VERSION);
        assert_eq!(read["report"]["job"]["name"], report.job.name);
        assert!(read["report"]["metrics"]["slowdown"].is_null());
        let back: Vec<Sample> = serde_json::from_value(read["report"]["samples"].clone()).expect("samples");
        assert_eq!(back, report.samples);
    }
}
