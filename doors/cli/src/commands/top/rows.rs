//! The columns of jobs and executors in `eyas top`, and the cells of each row.

use eyas_client::types::units::{format_bytes, format_duration_us, format_rate};
use eyas_client::view::JobState;

use super::canvas::DrawStyle;
use super::cells::{Colour, Style};
use super::overview::{ExecutorRow, JobRow, ReadRates};
use super::table::{Cell, Column};
use crate::show;

/// An executor is marked as silent when its last report is older than this.
const SILENT_US: u64 = 10_000_000;
/// The bar of a store that is fuller than this share is yellow.
const NEARLY_FULL: f64 = 0.95;
/// Shown in place of a rate that is not known.
pub(crate) const UNKNOWN: &str = "-";

const fn column(heading: &'static str, min: u16, max: u16, rank: u8, is_right: bool) -> Column {
    Column { heading, min, max, rank, is_right }
}

/// Columns of the table of jobs.
pub(crate) const JOBS: [Column; 9] = [
    column("JOB", 3, 3, 0, true),
    column("NAME", 8, 32, 0, false),
    column("STATE", 9, 9, 4, false),
    column("PROGRESS", 12, 48, 1, false),
    column("TASKS", 11, 11, 2, true),
    column("FAILED", 6, 6, 5, true),
    column("RATE", 6, 6, 1, true),
    column("ETA", 10, 10, 3, true),
    column("TIME", 10, 10, 6, true),
];

/// Columns of the table of executors.
pub(crate) const EXECUTORS: [Column; 11] = [
    column("NAME", 8, 32, 0, false),
    column("CPUS", 5, 5, 2, true),
    column("BUSY", 5, 5, 1, true),
    column("TASKS", 5, 5, 1, true),
    column("STATE", 9, 9, 5, false),
    column("STORE", 10, 48, 3, false),
    column("HELD", 8, 8, 6, true),
    column("LOCAL", 10, 10, 4, true),
    column("PEER", 10, 10, 5, true),
    column("STORAGE", 10, 10, 4, true),
    column("FILES", 10, 10, 7, true),
];

/// The cells of a job, in the order of [`JOBS`].
pub(crate) fn job(row: &JobRow, draw_style: DrawStyle) -> Vec<Cell> {
    let job = &row.view;
    let tasks = &job.tasks;
    let style = match job.state {
        JobState::Failed => draw_style.colour(Colour::Red),
        JobState::Cancelled => draw_style.colour(Colour::Yellow),
        JobState::Running if tasks.failed > 0 || !job.warnings.is_empty() => {
            draw_style.colour(Colour::Yellow)
        }
        JobState::Running | JobState::Succeeded => draw_style.colour(Colour::Green),
    };
    // A job that has ended has no rate and no remaining time.
    let running_only = |words: Option<String>| match job.state {
        JobState::Running => Cell::text(words.unwrap_or_else(|| UNKNOWN.into())),
        _ => Cell::text(""),
    };
    vec![
        Cell::text(job.job.to_string()),
        Cell::text(&*job.name),
        Cell::Text(show::state(job.state).into(), style),
        Cell::Bar(tasks.ended() as f64 / tasks.total().max(1) as f64, style),
        Cell::text(format!("{}/{}", tasks.ended(), tasks.total())),
        Cell::Text(
            tasks.failed.to_string(),
            if tasks.failed > 0 { draw_style.colour(Colour::Red) } else { Style::PLAIN },
        ),
        running_only(row.tasks_per_s.map(|rate| format!("{}/s", number(rate)))),
        running_only(row.remaining_us.map(format_duration_us)),
        Cell::text(format_duration_us(job.elapsed_us)),
    ]
}

/// The cells of an executor, in the order of [`EXECUTORS`].
pub(crate) fn executor(row: &ExecutorRow, draw_style: DrawStyle) -> Vec<Cell> {
    let executor = &row.view;
    let fill = executor.held_bytes as f64 / executor.store_bytes.max(1) as f64;
    let name = match executor.silent_us {
        0..SILENT_US => Cell::text(&*executor.name),
        silent => {
            let words = format!("{} (silent {} s)", executor.name, silent / 1_000_000);
            Cell::Text(words, draw_style.colour(Colour::Yellow))
        }
    };
    let [local, peer, persistent, files] = read_rates(row.read_rates).map(Cell::text);
    vec![
        name,
        Cell::text(cpus(u64::from(executor.capacity.cpus_milli))),
        Cell::text(cpus(row.busy_milli)),
        Cell::text(executor.assigned.to_string()),
        Cell::text(&*executor.state),
        Cell::Bar(
            fill,
            draw_style.colour(if fill < NEARLY_FULL { Colour::Blue } else { Colour::Yellow }),
        ),
        Cell::text(format_bytes(executor.held_bytes)),
        local,
        peer,
        persistent,
        files,
    ]
}

/// A number of processors, from thousandths.
pub(crate) fn cpus(milli: u64) -> String {
    format!("{:.1}", milli as f64 / 1000.0)
}

/// A number of tasks a second: with one decimal below 10.
pub(crate) fn number(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// The rates of reads from local stores, peers, persistent storage and files of the cluster.
pub(crate) fn read_rates(rates: Option<ReadRates>) -> [String; 4] {
    match rates {
        None => [UNKNOWN; 4].map(String::from),
        Some(rates) => [
            rates.local_bytes_per_s,
            rates.peer_bytes_per_s,
            rates.persistent_bytes_per_s,
            rates.files_bytes_per_s,
        ]
        .map(format_rate),
    }
}
