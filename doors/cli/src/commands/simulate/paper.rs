//! `eyas simulate paper`: simulates the experiments of the paper, and shows the results beside
//! those of the paper.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use eyas_sim::outcome::RunOutcome;
use eyas_sim::paper::{
    Experiment, HEADINGS, LEGEND, PaperResult, SimulatedExperiment, with_results,
};
use serde_json::json;

use super::{Record, Stop, csv, object, progress, write};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::print::{out, say};
use crate::show::{self, Table};

#[derive(Args)]
pub(crate) struct PaperArgs {
    /// Run only the experiment with this name (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Also repeat experiments whose results differ from the paper, with one or two changed
    /// conditions that may be the cause
    #[arg(long)]
    sensitivities: bool,
    /// Write the table to FILE, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Replace the table of results in this document
    #[arg(long, value_name = "FILE", requires = "sensitivities", conflicts_with = "only")]
    document: Option<PathBuf>,
}

/// Time between two checks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn paper(args: &PaperArgs, json: bool, stop: &Stop) -> Result<ExitCode, CliError> {
    let mut experiments = Experiment::all();
    if args.sensitivities {
        experiments.extend(Experiment::sensitivities());
    }
    let only = &args.only;
    if let Some(unknown) =
        only.iter().find(|only| experiments.iter().all(|experiment| experiment.name != **only))
    {
        let names: Vec<_> = experiments.iter().map(|experiment| experiment.name).collect();
        return Err(format!(
            "there is no experiment `{unknown}`; the experiments are {}",
            names.join(", ")
        )
        .into());
    }
    experiments
        .retain(|experiment| only.is_empty() || only.iter().any(|only| only == experiment.name));
    let names: Vec<_> = experiments.iter().map(|experiment| experiment.name).collect();
    let bar = progress(names.len() as u64);
    bar.enable_steady_tick(LOOK_EVERY);
    // A separate thread simulates; after an interrupt, it is abandoned in the middle of an
    // experiment.
    let (ended, ends) = mpsc::channel();
    thread::spawn(move || {
        experiments
            .into_iter()
            .all(|experiment| ended.send(SimulatedExperiment::of(experiment)).is_ok())
    });
    let mut repeated = Vec::new();
    while let Some(name) = names.get(repeated.len())
        && !stop.is_requested()
    {
        bar.set_message(*name);
        match ends.recv_timeout(LOOK_EVERY) {
            Ok(of) => repeated.push(of),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("the simulation has failed".into()),
        }
        bar.set_position(repeated.len() as u64);
    }
    bar.finish_and_clear();
    let records: Vec<_> = repeated.iter().map(record).collect();
    if let Some(path) = &args.csv {
        write(path, &csv(&records))?;
    }
    match json {
        true => show::json("paper", &records.into_iter().map(object).collect::<Vec<_>>())?,
        false => print_table(&repeated)?,
    }
    if let Some(path) = args.document.as_ref().filter(|_| repeated.len() == names.len()) {
        let document = std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        write(
            path,
            &with_results(&document, &repeated)
                .map_err(|why| format!("{}: {why}", path.display()))?,
        )?;
    }
    if repeated.len() < names.len() {
        say!("interrupted; the table has {} of {} experiments", repeated.len(), names.len());
    }
    Ok(stop.code(repeated.iter().all(SimulatedExperiment::is_complete)))
}

/// The results of an experiment, for CSV and JSON.
fn record(of: &SimulatedExperiment) -> Record {
    let SimulatedExperiment { experiment, there, eyas, .. } = of;
    let (measured, unit) = match experiment.measured {
        PaperResult::Makespan(_) => ("time", "s"),
        PaperResult::Efficiency(_) => ("efficiency", "share"),
    };
    let [local, peer, storage] = there.read_shares();
    vec![
        ("experiment", experiment.name.into()),
        ("place", experiment.place.into()),
        ("policy", experiment.policy().into()),
        ("measured", measured.into()),
        ("unit", unit.into()),
        ("paper", json!(of.paper())),
        ("as_there", json!(of.measure(there))),
        ("eyas", json!(eyas.as_ref().map(|eyas| of.measure(eyas)))),
        ("bound", json!(of.bound)),
        ("paper_cpu_hours", json!(experiment.cpu_hours)),
        ("as_there_cpu_hours", json!(there.cpu_hours())),
        ("eyas_cpu_hours", json!(eyas.as_ref().map(RunOutcome::cpu_hours))),
        ("local_share", json!(local)),
        ("peer_share", json!(peer)),
        ("storage_share", json!(storage)),
        ("eyas_storage_bytes", json!(eyas.as_ref().map(|eyas| eyas.storage_bytes))),
        ("cause", experiment.cause.into()),
    ]
}

fn print_table(all: &[SimulatedExperiment]) -> Result<(), CliError> {
    let mut table = Table::new(&HEADINGS);
    all.iter().for_each(|of| table.row(of.cells()));
    table.print()?;
    out!("{LEGEND}")?;
    for Experiment { name, cause, .. } in
        all.iter().map(|of| &of.experiment).filter(|of| !of.cause.is_empty())
    {
        out!("{name}: {cause}.")?;
    }
    Ok(())
}
