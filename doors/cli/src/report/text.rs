//! The metrics as text for a terminal. Text from users is shown without its control characters, so
//! that the name of a job cannot move the cursor or colour the screen.

use super::amount::{count, counted, duration, moment, share};
use super::details::{JobDetails, groups_of};
use super::facts::{is_simulated, node_hours, nodes_of};
use super::figure::{breakdowns, figures};
use super::provenance;
use super::run_times::TimesOfTasks;
use super::tasks::item_text;
use eyas_types::task::DONE_EARLIER;
use eyas_types::units::format_bytes;
use eyas_wire::view::{JobReport, JobState};

/// Tasks that the terminal shows as the slowest.
const SLOWEST: usize = 3;
/// Commands that the terminal shows.
const COMMANDS: usize = 5;

/// The table. See [`super::table`].
pub fn table(report: &JobReport, details: Option<&JobDetails>) -> String {
    let done_earlier = details.map_or(0, JobDetails::done_earlier);
    let mut rows = rows_of_figures(report, done_earlier);
    if let Some(details) = details {
        add_details(&mut rows, report, details);
    }
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, values) = (width(0), width(1));
    rows.iter()
        .map(|[name, value, beside]| {
            format!("{name:<names$}  {value:>values$}  {beside}").trim_end().to_string() + "\n"
        })
        .collect()
}

/// Name, value and what stands beside it.
type TextRow = [String; 3];

/// Adds commands, run times, the slowest tasks, reasons of failures, and inputs.
fn add_details(rows: &mut Vec<TextRow>, report: &JobReport, details: &JobDetails) {
    let mut row =
        |name: &str, value: String, beside: String| rows.push([name.into(), value, plain(&beside)]);
    let times = TimesOfTasks::of(&details.tasks);
    if let Some(summary) = times.summary() {
        row("run times", String::new(), summary);
    }
    for task in times.tasks.iter().take(SLOWEST) {
        let executor = task.executor.as_deref().unwrap_or("an executor");
        let beside = format!("task {} on {executor}: {}", task.task, item_text(task));
        row("  slowest", duration(task.ran_us as f64), beside);
    }
    let of_report;
    let failures = match details.failures.is_empty() {
        true => {
            of_report = groups_of(&report.failures);
            &of_report
        }
        false => &details.failures,
    };
    for group in failures {
        let first = group.examples.first();
        let first = first.map(|failure| format!(", such as task {}", failure.task));
        let beside = format!("{}{}", group.reason, first.unwrap_or_default());
        row("failed", count(group.count), beside);
    }
    let Some(graph) = &details.graph else { return };
    let with_command = graph.templates.iter().filter(|template| !template.command.is_empty());
    for template in with_command.take(COMMANDS) {
        let command = provenance::command_of(template);
        row("command", count(template.tasks.total()), format!("of {command}"));
    }
    if graph.inputs > 0 {
        let beside = format!("{}, digest {}", counted(graph.inputs, "file"), graph.input_digest);
        row("named inputs", format_bytes(graph.input_bytes), beside);
    }
}

/// The figures of the dispatcher.
fn rows_of_figures(report: &JobReport, done_earlier: u64) -> Vec<TextRow> {
    let job = &report.job;
    let state = match job.state {
        JobState::Running => "running",
        JobState::Succeeded => "succeeded",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
    };
    let mut rows: Vec<TextRow> = Vec::new();
    let mut row =
        |name: &str, value: String, beside: String| rows.push([name.into(), value, beside]);
    let policy = format!("under {}", plain(&report.policy));
    let which = if is_simulated(job) { "simulated job".into() } else { format!("job {}", job.job) };
    row(&which, state.into(), format!("{}, {policy}", plain(&job.name)));
    let tasks = &job.tasks;
    let before = match done_earlier {
        0 => String::new(),
        done => format!("{} {DONE_EARLIER}, ", count(done)),
    };
    let counts = format!(
        "{before}{} succeeded, {} failed, {} cancelled, {} retried, {} recomputed, {} reused",
        count(tasks.succeeded.saturating_sub(done_earlier)),
        count(tasks.failed),
        count(tasks.cancelled),
        count(job.retried),
        count(job.recomputed),
        count(job.reused)
    );
    row("tasks", count(tasks.total()), counts);
    let submitted = match is_simulated(job) {
        true => String::new(),
        false => format!("submitted {} UTC", moment(job.submitted_unix_ms)),
    };
    row("elapsed", duration(report.metrics.elapsed_us as f64), submitted);
    for figure in figures(report) {
        row(&figure.name.to_lowercase(), figure.value, figure.beside);
    }
    if job.peak_memory_bytes > 0 {
        row(
            "peak memory",
            format_bytes(job.peak_memory_bytes),
            "the most that one task used".into(),
        );
    }
    for pool in &report.pools {
        row(&format!("pool {}", plain(&pool.pool)), node_hours(pool), nodes_of(pool));
    }
    for breakdown in breakdowns(report) {
        let beside = if breakdown.is_something() { "" } else { breakdown.nothing };
        row(
            &lower_first(breakdown.name),
            breakdown.value.clone(),
            lower_first(beside.trim_end_matches('.')),
        );
        for part in &breakdown.parts {
            let share =
                if breakdown.is_something() { share(breakdown.share(part)) } else { String::new() };
            row(&format!("  {}", part.name.to_lowercase()), share, part.value.clone());
        }
    }
    rows
}

/// The text with its control characters replaced.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Makes the first letter lower case if the second is: `Response time` becomes `response time`, and
/// `CPU time` stays.
fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_table_is_aligned_and_has_units() {
        let table = table(&example::diffusion(), None);
        assert!((18..=24).contains(&table.lines().count()), "{table}");
        let speedup = table.lines().find(|line| line.starts_with("speedup")).expect("speedup");
        let efficiency =
            table.lines().find(|line| line.starts_with("efficiency")).expect("efficiency");
        let end = |line: &str, unit: char| line.chars().position(|c| c == unit);
        assert_eq!(end(speedup, '×'), end(efficiency, '%'), "values end in one column:\n{table}");
        for unit in ["Gb/s", "CPU h", " %", "per CPU hour", "min"] {
            assert!(table.contains(unit), "{unit}:\n{table}");
        }
    }

    #[test]
    fn details_stand_below_the_figures() {
        let table = table(&example::diffusion(), Some(&example::details()));
        let line = |begin: &str| table.lines().find(|line| line.starts_with(begin)).expect(begin);
        assert!(line("run times").contains("median"), "{table}");
        assert!(
            line("  slowest").contains("9.00 s  task 7.89 on node-2: /data/89.fits"),
            "{table}"
        );
        assert!(line("failed").contains("41  exit code 2, such as task 7.1"), "{table}");
        assert!(line("command").contains("89  of stack {} 'a b'"), "{table}");
        assert!(line("named inputs").contains("12 files, digest 0123abcd"), "{table}");
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        let table = table(&example::hostile(), Some(&example::details()));
        assert!(table.chars().all(|c| c == '\n' || !c.is_control()), "{table:?}");
        assert!(!super::table(&example::empty(), Some(&JobDetails::default())).contains("NaN"));
    }
}
