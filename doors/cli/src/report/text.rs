//! The metrics as text for a terminal. Text from users is shown without its control characters, so
//! that the name of a job cannot move the cursor or colour the screen.

use super::amount::{count, duration, moment, share};
use super::figure::{breakdowns, figures};
use super::{is_simulated, node_hours, nodes_of};
use eyas_types::units::format_bytes;
use eyas_wire::view::{JobReport, JobState};

/// The table. See [`super::table`].
pub fn table(report: &JobReport) -> String {
    let job = &report.job;
    let state = match job.state {
        JobState::Running => "running",
        JobState::Succeeded => "succeeded",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
    };
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut row =
        |name: &str, value: String, beside: String| rows.push([name.into(), value, beside]);
    let policy = format!("under {}", plain(&report.policy));
    let which = if is_simulated(job) { "simulated job".into() } else { format!("job {}", job.job) };
    row(&which, state.into(), format!("{}, {policy}", plain(&job.name)));
    let tasks = &job.tasks;
    let counts = format!(
        "{} succeeded, {} failed, {} cancelled, {} retried, {} recomputed, {} reused",
        count(tasks.succeeded),
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
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, values) = (width(0), width(1));
    rows.iter()
        .map(|[name, value, beside]| {
            format!("{name:<names$}  {value:>values$}  {beside}").trim_end().to_string() + "\n"
        })
        .collect()
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
        let table = table(&example::diffusion());
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
    fn a_name_cannot_control_the_terminal() {
        let table = table(&example::hostile());
        assert!(table.chars().all(|c| c == '\n' || !c.is_control()), "{table:?}");
        assert!(!super::table(&example::empty()).contains("NaN"));
    }
}
