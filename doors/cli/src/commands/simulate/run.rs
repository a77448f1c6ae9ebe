//! `eyas simulate run`: simulates one scenario.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use eyas_client::types::units::format_duration_us;
use eyas_sim::outcome::RunOutcome;
use eyas_sim::scenario::Scenario;

use super::row::{Row, table};
use super::{Stop, csv, object, progress, view, write};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::print::{self, out, say};
use crate::{report as pages, show};

#[derive(Args)]
pub(crate) struct SimRunArgs {
    /// Scenario file, in TOML
    #[arg(value_name = "SCENARIO")]
    file: PathBuf,
    /// Write the report to FILE (.html, .csv or .json; may be repeated)
    #[arg(long, value_name = "FILE", value_parser = pages::parse_path)]
    report: Vec<PathBuf>,
    /// Write the figures of the run to FILE, as one row of CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

pub(super) fn run(args: &SimRunArgs, json: bool, stop: &Stop) -> Result<ExitCode, CliError> {
    let scenario = Scenario::read(&args.file)?;
    let Scenario { cluster, policies, .. } = &scenario;
    let bar = progress(scenario.workload.tasks());
    let began = Instant::now();
    let outcome = scenario.run(cluster, policies, &mut |outcome| {
        bar.set_position(outcome.done);
        stop.go_on()
    });
    bar.finish_and_clear();
    let row = Row::of(&scenario, cluster, policies, &outcome);
    let warning = (!row.is_complete()).then(|| why_incomplete(&scenario, &outcome, stop));
    if let Some(warning) = &warning {
        say!("{warning}");
    }
    let report = view::report(&scenario, cluster, policies, &outcome, warning);
    if let Some(path) = &args.csv {
        write(path, &csv(&[row.record()]))?;
    }
    for path in &args.report {
        pages::write(path, &report, None, None)?;
        say!("report: {}", path.display());
    }
    if json {
        show::json("run", &object(row.record()))?;
    } else {
        table(std::slice::from_ref(&row)).print()?;
        out!()?;
        print::text(&pages::table(&report, None))?;
        say!("simulated in {}", format_duration_us(began.elapsed().as_micros() as u64));
    }
    Ok(stop.code(row.is_complete()))
}

/// The reason why not all tasks have ended.
pub(super) fn why_incomplete(scenario: &Scenario, outcome: &RunOutcome, stop: &Stop) -> String {
    let ended = format!("{} of {} tasks succeeded", outcome.done, scenario.workload.tasks());
    match outcome {
        RunOutcome { failed: 1.., .. } | RunOutcome { cancelled: 1.., .. } => {
            format!("{ended}; {} failed, {} were cancelled", outcome.failed, outcome.cancelled)
        }
        _ if outcome.makespan_ns >= scenario.limit_ns() => {
            let limit = format_duration_us(scenario.limit_us);
            match outcome.out_of_time {
                0 => {
                    format!("{ended} within the limit of {limit}: increase `limit` in the scenario")
                }
                count => format!(
                    "{ended} within the limit of {limit}; the end of a node's walltime stopped a \
                     task {count} times: increase `walltime` or `limit` in the scenario"
                ),
            }
        }
        _ if stop.is_requested() => format!("{ended}: the simulation was interrupted"),
        _ => format!("{ended}, and no further event would happen"),
    }
}
