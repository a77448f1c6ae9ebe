//! `eyas sim`: what a simulated cluster does, as a table.

use std::process::ExitCode;
use std::time::Instant;

use eyas_sim::outcome::Outcome;
use eyas_sim::paper::{Experiment, Measured};

use crate::Failure;
use crate::command::SimCommand;
use crate::show::Table;

pub(crate) fn sim(command: SimCommand) -> Result<ExitCode, Failure> {
    match command {
        SimCommand::Paper { only } => paper(&only),
    }
}

/// Runs the paper's experiments, with its policies and with ours.
fn paper(only: &[String]) -> Result<ExitCode, Failure> {
    let mut experiments = Experiment::all();
    if let Some(unknown) = only.iter().find(|only| experiments.iter().all(|experiment| experiment.name != **only)) {
        let names: Vec<_> = experiments.iter().map(|experiment| experiment.name).collect();
        return Err(format!("there is no experiment `{unknown}`; there are {}", names.join(", ")).into());
    }
    experiments.retain(|experiment| only.is_empty() || only.iter().any(|only| only == experiment.name));
    let mut table = Table::new(&[
        "EXPERIMENT",
        "IN",
        "POLICY",
        "PAPER",
        "AS THERE",
        "EYAS",
        "LOCAL",
        "PEER",
        "STORAGE",
        "PEER GB",
        "STORAGE GB",
        "TOOK",
    ]);
    let mut is_complete = true;
    for experiment in &experiments {
        eprintln!("eyas: simulating {}", experiment.name);
        let began = Instant::now();
        let (there, eyas) = (experiment.with_the_papers_policies(), experiment.with_ours(experiment.placement));
        is_complete &= there.is_complete() && eyas.is_complete();
        let measure = |outcome: &Outcome| written(experiment.measured, experiment.measure(outcome));
        let (Measured::Makespan(paper) | Measured::Efficiency(paper)) = experiment.measured;
        let [local, peer, storage] = there.hit_rates().map(|rate| format!("{:.1}%", rate * 100.0));
        table.row(vec![
            experiment.name.into(),
            experiment.place.into(),
            experiment.placement.to_string(),
            written(experiment.measured, paper),
            measure(&there),
            measure(&eyas),
            local,
            peer,
            storage,
            format!("{:.0}", there.peer_bytes as f64 / 1e9),
            format!("{:.0}", there.storage_bytes as f64 / 1e9),
            format!("{:.1} s", began.elapsed().as_secs_f64()),
        ]);
    }
    table.print()?;
    println!("AS THERE: the paper's policies on its cluster, of which are the columns to its right but one.");
    println!("EYAS: the same placement with relays, and staging while others compute.");
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn written(measured: Measured, value: f64) -> String {
    match measured {
        Measured::Makespan(_) => format!("{value:.0} s"),
        Measured::Efficiency(_) => format!("{:.1}%", value * 100.0),
    }
}
