//! The columns of jobs and executors in `eyas top`, and what stands in them.

use eyas_client::types::units::{format_bytes, format_duration_us, format_rate};
use eyas_client::view::JobState;
use ratatui::style::{Color, Style};

use super::canvas::Look;
use super::overview::{ExecutorLine, JobLine, ReadRates};
use super::table::{Cell, Column};
use crate::show;

/// An executor that was not heard of for longer is marked.
const SILENT_US: u64 = 10_000_000;
/// A store that is fuller is marked.
const NEARLY_FULL: f64 = 0.95;
/// What stands where a rate is not known.
pub(crate) const UNKNOWN: &str = "-";

const fn column(heading: &'static str, min: u16, max: u16, rank: u8, is_right: bool) -> Column {
    Column { heading, min, max, rank, is_right }
}

/// Columns of jobs.
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

/// Columns of executors.
pub(crate) const EXECUTORS: [Column; 10] = [
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
];

/// A job, in the order of [`JOBS`].
pub(crate) fn job(line: &JobLine, look: Look) -> Vec<Cell> {
    let job = &line.view;
    let tasks = &job.tasks;
    let style = match job.state {
        JobState::Failed => look.colour(Color::Red),
        JobState::Cancelled => look.colour(Color::Yellow),
        JobState::Running if tasks.failed > 0 || !job.warnings.is_empty() => look.colour(Color::Yellow),
        JobState::Running | JobState::Succeeded => look.colour(Color::Green),
    };
    // What has ended goes nowhere.
    let going = |words: Option<String>| match job.state {
        JobState::Running => Cell::text(words.unwrap_or_else(|| UNKNOWN.into())),
        _ => Cell::text(""),
    };
    vec![
        Cell::text(job.job.to_string()),
        Cell::text(&*job.name),
        Cell::Text(show::state(job.state).into(), style),
        Cell::Bar(tasks.ended() as f64 / tasks.total().max(1) as f64, style),
        Cell::text(format!("{}/{}", tasks.ended(), tasks.total())),
        Cell::Text(tasks.failed.to_string(), if tasks.failed > 0 { look.colour(Color::Red) } else { Style::new() }),
        going(line.tasks_per_s.map(|rate| format!("{}/s", number(rate)))),
        going(line.remaining_us.map(format_duration_us)),
        Cell::text(format_duration_us(job.elapsed_us)),
    ]
}

/// An executor, in the order of [`EXECUTORS`].
pub(crate) fn executor(line: &ExecutorLine, look: Look) -> Vec<Cell> {
    let executor = &line.view;
    let fill = executor.held_bytes as f64 / executor.store_bytes.max(1) as f64;
    let name = match executor.silent_us {
        0..SILENT_US => Cell::text(&*executor.name),
        silent => {
            let words = format!("{} (silent {} s)", executor.name, silent / 1_000_000);
            Cell::Text(words, look.colour(Color::Yellow))
        }
    };
    let [local, peer, persistent] = read_rates(line.read_rates).map(Cell::text);
    vec![
        name,
        Cell::text(cpus(u64::from(executor.capacity.cpus_milli))),
        Cell::text(cpus(line.busy_milli)),
        Cell::text(executor.assigned.to_string()),
        Cell::text(&*executor.state),
        Cell::Bar(fill, look.colour(if fill < NEARLY_FULL { Color::Blue } else { Color::Yellow })),
        Cell::text(format_bytes(executor.held_bytes)),
        local,
        peer,
        persistent,
    ]
}

/// Processors.
pub(crate) fn cpus(milli: u64) -> String {
    format!("{:.1}", milli as f64 / 1000.0)
}

/// A rate of tasks: a digit after the point where that says something.
pub(crate) fn number(rate: f64) -> String {
    if rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// From local stores, from peers, from persistent storage.
pub(crate) fn read_rates(rates: Option<ReadRates>) -> [String; 3] {
    match rates {
        None => [UNKNOWN; 3].map(String::from),
        Some(rates) => [rates.local_bytes_per_s, rates.peer_bytes_per_s, rates.persistent_bytes_per_s].map(format_rate),
    }
}
