//! `eyas sim paper`: the paper's experiments, beside what it says of them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use eyas_client::types::PlacementPolicy;
use eyas_sim::bound::Needs;
use eyas_sim::outcome::Outcome;
use eyas_sim::paper::{Experiment, Measured};
use serde_json::json;

use super::{Columns, Stop, csv, object, progress, write};
use crate::Failure;
use crate::print::{out, say};
use crate::show::{self, Table};

#[derive(Args)]
pub(crate) struct PaperArgs {
    /// Only the experiment of that name (again for more)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Also those that differ from the paper, with one thing or two changed that this might be due to
    #[arg(long)]
    sensitivities: bool,
    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// What came of an experiment.
struct Repeated {
    experiment: Experiment,
    /// With the paper's policies.
    there: Outcome,
    /// With eyas's, and cost placement, unless something is changed.
    eyas: Option<Outcome>,
    /// The best that any placement could do.
    bound: f64,
}

/// How often is looked whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn paper(args: &PaperArgs, json: bool, stop: &Stop) -> Result<ExitCode, Failure> {
    let mut experiments = Experiment::all();
    if args.sensitivities {
        experiments.extend(Experiment::sensitivities());
    }
    let only = &args.only;
    if let Some(unknown) = only.iter().find(|only| experiments.iter().all(|experiment| experiment.name != **only)) {
        let names: Vec<_> = experiments.iter().map(|experiment| experiment.name).collect();
        return Err(format!("there is no experiment `{unknown}`; there are {}", names.join(", ")).into());
    }
    experiments.retain(|experiment| only.is_empty() || only.iter().any(|only| only == experiment.name));
    let names: Vec<_> = experiments.iter().map(|experiment| experiment.name).collect();
    let bar = progress(names.len() as u64);
    bar.enable_steady_tick(LOOK_EVERY);
    // By a thread of their own, which is left alone with what it has begun when it should stop.
    let (ended, ends) = mpsc::channel();
    thread::spawn(move || experiments.into_iter().all(|experiment| ended.send(Repeated::of(experiment)).is_ok()));
    let mut repeated = Vec::new();
    while let Some(name) = names.get(repeated.len())
        && !stop.is_wished()
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
    let columns: Vec<_> = repeated.iter().map(Repeated::columns).collect();
    if let Some(path) = &args.csv {
        write(path, &csv(&columns))?;
    }
    match json {
        true => show::json("paper", &columns.into_iter().map(object).collect::<Vec<_>>())?,
        false => print_table(&repeated)?,
    }
    if repeated.len() < names.len() {
        say!("interrupted; these are {} of {} experiments", repeated.len(), names.len());
    }
    Ok(stop.code(repeated.iter().all(Repeated::is_complete)))
}

impl Repeated {
    /// Simulates all that is to be said of an experiment.
    fn of(experiment: Experiment) -> Self {
        let there = experiment.with_the_papers_policies();
        let eyas = (!experiment.is_changed).then(|| experiment.with_ours(PlacementPolicy::Cost));
        let makespan_ns = Needs::of(&*experiment.workload).bound_ns(&experiment.cluster);
        let bound = experiment.measure(&Outcome { makespan_ns, ..Outcome::default() });
        Repeated { experiment, there, eyas, bound }
    }

    fn is_complete(&self) -> bool {
        self.there.is_complete() && self.eyas.as_ref().is_none_or(Outcome::is_complete)
    }

    /// What the paper says.
    fn paper(&self) -> f64 {
        let (Measured::Makespan(paper) | Measured::Efficiency(paper)) = self.experiment.measured;
        paper
    }

    /// What was measured, of an outcome.
    fn measure(&self, outcome: &Outcome) -> f64 {
        self.experiment.measure(outcome)
    }

    fn columns(&self) -> Columns {
        let Repeated { experiment, there, eyas, .. } = self;
        let (measured, unit) = match experiment.measured {
            Measured::Makespan(_) => ("time", "s"),
            Measured::Efficiency(_) => ("efficiency", "share"),
        };
        let [local, peer, storage] = there.hit_rates();
        vec![
            ("experiment", experiment.name.into()),
            ("place", experiment.place.into()),
            ("policy", experiment.policy().into()),
            ("measured", measured.into()),
            ("unit", unit.into()),
            ("paper", json!(self.paper())),
            ("as_there", json!(self.measure(there))),
            ("eyas", json!(eyas.as_ref().map(|eyas| self.measure(eyas)))),
            ("bound", json!(self.bound)),
            ("paper_cpu_hours", json!(experiment.cpu_hours)),
            ("as_there_cpu_hours", json!(there.cpu_hours())),
            ("eyas_cpu_hours", json!(eyas.as_ref().map(Outcome::cpu_hours))),
            ("local_share", json!(local)),
            ("peer_share", json!(peer)),
            ("storage_share", json!(storage)),
            ("eyas_storage_bytes", json!(eyas.as_ref().map(|eyas| eyas.storage_bytes))),
            ("cause", experiment.cause.into()),
        ]
    }
}

fn print_table(repeated: &[Repeated]) -> Result<(), Failure> {
    let mut table = Table::new(&[
        "EXPERIMENT",
        "IN",
        "POLICY",
        "PAPER",
        "AS THERE",
        "DIFFERENCE",
        "EYAS",
        "BOUND",
        "PAPER H",
        "THERE H",
        "EYAS H",
        "LOCAL",
        "PEER",
        "STORAGE",
        "STORAGE GB",
        "EYAS GB",
    ]);
    for of in repeated {
        let Repeated { experiment, there, eyas, .. } = of;
        let written = |value: f64| match experiment.measured {
            Measured::Makespan(_) => format!("{value:.0} s"),
            Measured::Efficiency(_) => format!("{:.1}%", value * 100.0),
        };
        let hours = |hours: f64| format!("{hours:.0}");
        let [local, peer, storage] = there.hit_rates().map(|rate| format!("{:.1}%", rate * 100.0));
        table.row(vec![
            experiment.name.into(),
            experiment.place.into(),
            experiment.policy().into(),
            written(of.paper()),
            written(of.measure(there)),
            format!("{:+.1}%", 100.0 * (of.measure(there) / of.paper() - 1.0)),
            eyas.as_ref().map_or(String::new(), |eyas| written(of.measure(eyas))),
            written(of.bound),
            experiment.cpu_hours.map_or("-".into(), hours),
            hours(there.cpu_hours()),
            eyas.as_ref().map_or(String::new(), |eyas| hours(eyas.cpu_hours())),
            local,
            peer,
            storage,
            format!("{:.0}", there.storage_bytes as f64 / 1e9),
            eyas.as_ref().map_or(String::new(), |eyas| format!("{:.0}", eyas.storage_bytes as f64 / 1e9)),
        ]);
    }
    table.print()?;
    out!(
        "AS THERE: the paper's policies on its cluster; so are LOCAL to STORAGE GB. DIFFERENCE: of it from the paper."
    )?;
    out!("EYAS: what eyas does, with cost placement; so is EYAS GB. BOUND: no placement could do better.")?;
    out!("H: processor hours of nodes while they were there, in the paper, as there, and with eyas.")?;
    for Experiment { name, cause, .. } in repeated.iter().map(|of| &of.experiment).filter(|of| !of.cause.is_empty()) {
        out!("{name}: {cause}.")?;
    }
    Ok(())
}
