//! `eyas simulate sweep`: simulates a scenario with all combinations of policies, stores, nodes and
//! dispatchers, on all processors of this machine.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Args;
use clap::builder::TypedValueParser;
use eyas_client::types::{EvictionPolicy, PlacementPolicy, units};
use eyas_sim::cluster::{Policies, SimCluster};
use eyas_sim::outcome::RunOutcome;
use eyas_sim::scenario::Scenario;

use super::row::{Row, table};
use super::run::why_incomplete;
use super::{Stop, csv, object, plots, progress, write};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::print::say;
use crate::show;

/// Maximum number of combinations of a sweep: the results are kept in memory until the last one.
const MAX_COMBINATIONS: usize = 10_000;

/// The values of the varied parameters in one run.
type Combination = (SimCluster, Policies);

#[derive(Args)]
pub(crate) struct SweepArgs {
    /// Scenario file, in TOML; it has the values of all parameters that no option varies
    #[arg(value_name = "SCENARIO")]
    file: PathBuf,
    /// Placement policies, such as gcc,cost
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    policy: Vec<PlacementPolicy>,
    /// Eviction policies, such as lru,lfu
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',')]
    eviction: Vec<EvictionPolicy>,
    /// Numbers of nodes, such as 32,64
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = parse_count())]
    nodes: Vec<u32>,
    /// Numbers of dispatchers, such as 1,16
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = parse_count())]
    dispatchers: Vec<u32>,
    /// Sizes of each node's store, such as 1GB,2GB
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = units::parse_bytes)]
    cache: Vec<u64>,
    /// Write a web page with plots to FILE.html
    #[arg(long, value_name = "FILE.html")]
    plots: Option<PathBuf>,
    /// Write the table to FILE, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn parse_count() -> impl TypedValueParser<Value = u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

pub(super) fn sweep(args: &SweepArgs, json: bool, stop: &Stop) -> Result<ExitCode, CliError> {
    let scenario = Scenario::read(&args.file)?;
    let combinations = combinations(args, &scenario)?;
    let outcomes = simulate(&scenario, &combinations, stop);
    let done: Vec<_> = combinations
        .iter()
        .zip(&outcomes)
        .filter_map(|(of, outcome)| Some((of, outcome.as_ref()?)))
        .collect();
    let rows: Vec<_> = done
        .iter()
        .map(|((cluster, policies), outcome)| Row::of(&scenario, cluster, policies, outcome))
        .collect();
    for row in rows.iter().filter(|row| !row.is_complete()) {
        let (placement, nodes, cache) = (
            row.policies.placement,
            row.cluster.nodes,
            units::format_bytes(row.cluster.cache_bytes),
        );
        let why = why_incomplete(&scenario, row.outcome, stop);
        say!("{placement} on {nodes} nodes with stores of {cache}: {why}");
    }
    let records: Vec<_> = rows.iter().map(Row::record).collect();
    if let Some(path) = &args.csv {
        write(path, &csv(&records))?;
    }
    if let Some(path) = &args.plots {
        write(path, &plots::html(&scenario.name, &rows))?;
        say!("plots: {}", path.display());
    }
    match json {
        true => show::json("sweep", &records.into_iter().map(object).collect::<Vec<_>>())?,
        false => table(&rows).print()?,
    }
    if rows.len() < combinations.len() {
        say!("interrupted; the table has {} of {} combinations", rows.len(), combinations.len());
    }
    Ok(stop.code(rows.iter().all(Row::is_complete)))
}

/// All combinations in the order of the command line. Combinations that could never end are an
/// error.
fn combinations(args: &SweepArgs, scenario: &Scenario) -> Result<Vec<Combination>, CliError> {
    let SweepArgs { policy, eviction, nodes, cache, dispatchers, .. } = args;
    let lengths = [policy.len(), eviction.len(), nodes.len(), cache.len(), dispatchers.len()];
    let count =
        lengths.into_iter().fold(1, |count: usize, length| count.saturating_mul(length.max(1)));
    if count > MAX_COMBINATIONS {
        return Err(format!(
            "{count} combinations are too many: give values for at most {MAX_COMBINATIONS} \
             combinations"
        )
        .into());
    }
    let own = vec![(scenario.cluster.clone(), scenario.policies)];
    let combinations =
        with_each(own, policy, |(_, policies), placement| policies.placement = placement);
    let combinations =
        with_each(combinations, eviction, |(_, policies), eviction| policies.eviction = eviction);
    let combinations = with_each(combinations, nodes, |(cluster, _), nodes| cluster.nodes = nodes);
    let combinations =
        with_each(combinations, cache, |(cluster, _), bytes| cluster.cache_bytes = bytes);
    let combinations =
        with_each(combinations, dispatchers, |(cluster, _), count| cluster.dispatchers = count);
    for (cluster, policies) in &combinations {
        let placement = policies.placement;
        scenario
            .check(cluster, policies)
            .map_err(|e| format!("{placement} on {} nodes: {e}", cluster.nodes))?;
    }
    Ok(combinations)
}

/// Combines each combination with each of the values. Without values, the combinations stay
/// unchanged.
fn with_each<T: Copy>(
    of: Vec<Combination>,
    values: &[T],
    set: fn(&mut Combination, T),
) -> Vec<Combination> {
    if values.is_empty() {
        return of;
    }
    let with = |combination: &Combination, value: &T| {
        let mut combination = combination.clone();
        set(&mut combination, *value);
        combination
    };
    of.iter().flat_map(|combination| values.iter().map(|value| with(combination, value))).collect()
}

/// The outcome of each combination, in their order; `None` for combinations that an interrupt has
/// stopped.
fn simulate(
    scenario: &Scenario,
    combinations: &[Combination],
    stop: &Stop,
) -> Vec<Option<RunOutcome>> {
    let bar = progress(combinations.len() as u64);
    let outcomes: Vec<_> = combinations.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let simulate_next = || {
        while !stop.is_requested() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((cluster, policies)) = combinations.get(index) else { return };
            let mut flow = ControlFlow::Continue(());
            let outcome = scenario.run(cluster, policies, &mut |_| {
                flow = stop.go_on();
                flow
            });
            if flow.is_continue() {
                // Each index is used once, so the cell is still empty.
                let _ = outcomes[index].set(outcome);
                bar.inc(1);
            }
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..processors.min(combinations.len()) {
            scope.spawn(simulate_next);
        }
    });
    bar.finish_and_clear();
    outcomes.into_iter().map(OnceLock::into_inner).collect()
}
