//! `eyas simulate …`: simulates clusters, or estimates how they fare with the abstract model, and
//! shows the results as tables, files and pages.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::error::{CliError, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::Signals;
use crate::words::field_of_csv;

mod index;
mod model;
mod paper;
mod plots;
mod row;
mod run;
mod sweep;
mod view;

#[derive(Subcommand)]
pub(crate) enum SimulateCommand {
    /// Simulate the cluster and the workload of a scenario file
    Run(run::SimRunArgs),
    /// Simulate a scenario with all combinations of policies, store sizes, and numbers of nodes and
    /// dispatchers
    Sweep(sweep::SweepArgs),
    /// Simulate the experiments of the data-diffusion paper, and print the results beside those of
    /// the paper
    Paper(paper::PaperArgs),
    /// Measure the dispatcher's index of replicas, and compare it with a distributed index as in
    /// the paper
    Index(index::IndexArgs),
    /// Estimate the run time of a workload on a cluster, with the papers' abstract model
    Model(Box<model::ModelArgs>),
}

/// Simulates on a separate thread, so that the runtime can handle an interrupt.
pub(crate) async fn simulate(
    command: SimulateCommand,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let stop = Stop::listen();
    let json = global.json;
    let simulating = tokio::task::spawn_blocking(move || match command {
        SimulateCommand::Run(args) => run::run(&args, json, &stop),
        SimulateCommand::Sweep(args) => sweep::sweep(&args, json, &stop),
        SimulateCommand::Paper(args) => paper::paper(&args, json, &stop),
        SimulateCommand::Index(args) => index::index(&args, json),
        SimulateCommand::Model(args) => model::model(&args, json),
    });
    simulating.await.unwrap_or_else(eyas_panics::resume)
}

/// A request to stop the simulation. After the first interrupt, the command prints its results so
/// far and ends. After the second one, it ends at once.
#[derive(Clone)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn listen() -> Self {
        let stop = Stop(Arc::default());
        let requested = stop.clone();
        let mut signals = Signals::listen();
        tokio::spawn(async move {
            signals.next().await;
            requested.0.store(true, Ordering::Relaxed);
            signals.next().await;
            std::process::exit(INTERRUPTED.into());
        });
        stop
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether the simulation continues, in the form that the simulator asks for.
    fn go_on(&self) -> ControlFlow<()> {
        if self.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The exit code of the command.
    fn code(&self, is_complete: bool) -> ExitCode {
        match (self.is_requested(), is_complete) {
            (true, _) => ExitCode::from(INTERRUPTED),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::FAILURE,
        }
    }
}

/// A progress bar on standard error.
fn progress(of: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(
        ProgressStyle::with_template("{wide_bar:.green} {pos}/{len} {msg}")
            .expect("the template is valid"),
    );
    bar
}

/// A row of CSV or an object of JSON: names, with their units, and values.
type Record = Vec<(&'static str, Value)>;

/// Rows as CSV under a heading.
fn csv(rows: &[Record]) -> String {
    let names = rows
        .first()
        .into_iter()
        .map(|row| row.iter().map(|(name, _)| (*name).to_owned()).collect());
    let cell = |value: &Value| match value {
        Value::String(text) => String::from_utf8_lossy(&field_of_csv(text.as_bytes())).into_owned(),
        Value::Null => String::new(),
        value => value.to_string(),
    };
    let rows = rows.iter().map(|row| row.iter().map(|(_, value)| cell(value)).collect());
    names.chain(rows).map(|cells: Vec<String>| cells.join(",") + "\n").collect()
}

/// A record as a JSON object.
fn object(row: Record) -> Value {
    Value::Object(row.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()).into())
}
