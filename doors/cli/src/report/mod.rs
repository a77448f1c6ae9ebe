//! The report of a job: the summary views (data-diffusion §5.1, figures 17 to 23) and metrics of
//! the paper, as a page for a browser, as tables for programs, and as text for a terminal.
//!
//! This module shows and converts, and decides nothing: `eyas_wire::view` defines the figures and
//! how they are measured. The page is one file that loads nothing from a network, so that it can be
//! mailed, archived and opened years later. Names, failures and warnings come from users: no format
//! lets them act as markup, script or terminal control.

mod amount;
mod course;
mod details;
mod escaped;
#[cfg(test)]
pub(crate) mod example;
mod facts;
mod failures;
mod figure;
mod page;
mod plots;
mod provenance;
mod run_times;
mod tasks;
mod text;

use eyas_wire::view::{JobReport, SCHEMA_VERSION, Sample};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{CliError, ValueError};

pub(crate) use amount::{count, counted};
pub(crate) use details::{JobDetails, fetch, fetch_details};
pub(crate) use escaped::EscapedText;
pub(crate) use provenance::command_of;

pub use amount::{moment, utc};
pub use plots::{Axis, Plot, PlotLine, plots};

/// The report as one self-contained HTML page. With a `baseline`, the page compares the two jobs:
/// by the speedup and the performance index of the paper, and with the throughput of the baseline
/// as a thin line. With `details`, the page has commands, tasks and inputs, too.
pub fn html(
    report: &JobReport,
    details: Option<&JobDetails>,
    baseline: Option<&JobReport>,
) -> String {
    page::html(report, details, baseline)
}

/// The format of a report; the extension of the file name selects it.
#[derive(Clone, Copy)]
pub enum ReportFormat {
    /// A page for a browser.
    Page,
    /// The samples of the job.
    Csv,
    /// Everything: job, samples, metrics and failures.
    Json,
}

impl ReportFormat {
    /// The format of a file; `None` if its name has another extension.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "html" | "htm" => Some(ReportFormat::Page),
            "csv" => Some(ReportFormat::Csv),
            "json" => Some(ReportFormat::Json),
            _ => None,
        }
    }

    /// The report in this format.
    pub fn text(
        self,
        report: &JobReport,
        details: Option<&JobDetails>,
        baseline: Option<&JobReport>,
    ) -> String {
        match self {
            ReportFormat::Page => html(report, details, baseline),
            ReportFormat::Csv => csv(report),
            ReportFormat::Json => json(report),
        }
    }
}

/// A path whose extension selects the format of a report.
pub(crate) fn parse_path(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    match ReportFormat::of(&path) {
        Some(_) => Ok(path),
        None => Err(ValueError::ReportPath(text.into())),
    }
}

/// Writes a report in the format that the extension of its path selects.
pub(crate) fn write(
    path: &Path,
    report: &JobReport,
    details: Option<&JobDetails>,
    baseline: Option<&JobReport>,
) -> Result<(), CliError> {
    let format = ReportFormat::of(path).ok_or_else(|| {
        format!("{}: the name of a report ends in .html, .csv or .json", path.display())
    })?;
    let text = format.text(report, details, baseline);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .map_err(|e| format!("cannot create the folder {}: {e}", folder.display()))?;
    }
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}

/// The samples of the job, one in each row. The names of the columns end in their units.
pub fn csv(report: &JobReport) -> String {
    let names: Vec<&str> = CSV_COLUMNS.iter().map(|(name, _)| *name).collect();
    let mut csv = names.join(",");
    csv.push('\n');
    for sample in &report.samples {
        for (index, (_, value)) in CSV_COLUMNS.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(csv, "{comma}{}", value(sample));
        }
        csv.push('\n');
    }
    csv
}

/// The whole report with its schema version: `{"schema_version":1,"report":{...}}`. A figure that
/// is not a number is `null`.
pub fn json(report: &JobReport) -> String {
    #[derive(Serialize)]
    struct VersionedReport<'a> {
        schema_version: u32,
        report: &'a JobReport,
    }
    // Serialization fails only for maps whose keys are not strings, and for types that refuse; a
    // report has neither.
    serde_json::to_string(&VersionedReport { schema_version: SCHEMA_VERSION, report })
        .expect("a report becomes JSON")
}

/// The metrics as lines of text for a terminal, aligned, with units.
pub fn table(report: &JobReport, details: Option<&JobDetails>) -> String {
    text::table(report, details)
}

/// A column of the CSV: its name, and its value for a sample.
type Column = (&'static str, fn(&Sample) -> f64);

/// Columns of the CSV. Counts stay exact: an `f64` holds whole numbers up to 2^53, which is nine
/// petabytes in one interval.
const CSV_COLUMNS: [Column; 19] = [
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
    ("files_inputs", |s| s.reads.files.count as f64),
    ("files_own_bytes", |s| s.reads.files.own_bytes as f64),
    ("files_other_bytes", |s| s.reads.files.other_bytes as f64),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_one_row_for_each_sample_and_one_name_for_each_column() {
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
        let back: Vec<Sample> =
            serde_json::from_value(read["report"]["samples"].clone()).expect("samples");
        assert_eq!(back, report.samples);
    }
}
