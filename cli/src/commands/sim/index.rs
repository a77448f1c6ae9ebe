//! `eyas sim index`: the dispatcher's central index of replicas, measured here, beside a distributed one.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use eyas_client::types::units::format_duration_us;
use eyas_client::types::{ExecutorId, ObjectId, Resources};
use eyas_sched::{Config, Event, Scheduler};
use eyas_sim::index::{self, PAPER_LOOKUPS_PER_S};
use eyas_sim::random::Random;
use serde_json::json;

use super::{Columns, csv, object, write};
use crate::error::CliError;
use crate::print::out;
use crate::show::{self, Table};

#[derive(Args)]
pub(crate) struct IndexArgs {
    /// Number of objects in the central index, each with one replica
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    entries: u32,
    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Executors that hold the replicas.
const EXECUTORS: u32 = 1_000;

/// Where the distributed index is shown: from one node to as many as the paper looks at.
const NODES: [u32; 8] = [1, 15, 100, 1_000, 10_000, 32_768, 100_000, index::MAX_NODES];

/// What the catalog of `core/sched` does in a second, on this machine, on one core.
struct Central {
    inserts_per_s: f64,
    lookups_per_s: f64,
}

pub(super) fn index(args: &IndexArgs, json: bool) -> Result<ExitCode, CliError> {
    let central = measure(args.entries);
    let rows: Vec<_> = NODES.iter().map(|nodes| columns(*nodes, &central)).collect();
    if let Some(path) = &args.csv {
        write(path, &csv(&rows))?;
    }
    let crossover = index::crossover(central.lookups_per_s);
    let paper_crossover = index::crossover(PAPER_LOOKUPS_PER_S);
    if json {
        let distributed: Vec<_> = rows.into_iter().map(object).collect();
        let answer = json!({
            "entries": args.entries,
            "central_inserts_per_s": central.inserts_per_s,
            "central_lookups_per_s": central.lookups_per_s,
            "crossover_nodes": crossover,
            "paper_central_lookups_per_s": PAPER_LOOKUPS_PER_S,
            "paper_crossover_nodes": paper_crossover,
            "distributed": distributed,
        });
        show::json("index", &answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["NODES", "LOOKUP", "LOOKUPS/S", "OF EYAS'S", "OF THE PAPER'S"]);
    for nodes in NODES {
        let per_s = index::lookups_per_s(nodes);
        table.row(vec![
            nodes.to_string(),
            format_duration_us((index::latency_s(nodes) * 1e6) as u64),
            format!("{per_s:.0}"),
            format!("{:.4}", per_s / central.lookups_per_s),
            format!("{:.4}", per_s / PAPER_LOOKUPS_PER_S),
        ]);
    }
    table.print()?;
    out!("A distributed index, P-RLS, by what the data diffusion paper says of it (figure 3).")?;
    let Central { inserts_per_s, lookups_per_s } = central;
    let entries = args.entries;
    out!(
        "EYAS'S: its catalog, here and now: {lookups_per_s:.0} lookups/s, {inserts_per_s:.0} inserts/s, {entries} entries."
    )?;
    out!("THE PAPER'S: a hash table, {PAPER_LOOKUPS_PER_S:.0} lookups/s.")?;
    let from = |crossover: Option<u32>| match crossover {
        Some(nodes) => format!("from {nodes} nodes on"),
        None => format!("not with {} nodes", index::MAX_NODES),
    };
    out!("The distributed one is as fast as eyas's {}; as the paper's {}.", from(crossover), from(paper_crossover))?;
    Ok(ExitCode::SUCCESS)
}

/// One line of the distributed index.
fn columns(nodes: u32, central: &Central) -> Columns {
    vec![
        ("nodes", nodes.into()),
        ("latency_s", json!(index::latency_s(nodes))),
        ("lookups_per_s", json!(index::lookups_per_s(nodes))),
        ("of_central", json!(index::lookups_per_s(nodes) / central.lookups_per_s)),
    ]
}

/// Tells a scheduler of so many replicas, and asks it in another order where each is. What making the events takes is
/// counted in.
fn measure(entries: u32) -> Central {
    let mut scheduler = Scheduler::new(Config::default());
    let mut effects = Vec::new();
    for executor in 0..EXECUTORS {
        let (capacity, profile, held) = (Resources::default(), Box::default(), Box::default());
        let executor = ExecutorId(executor);
        scheduler.handle(Event::ExecutorJoined { executor, capacity, profile, held }, &mut effects);
    }
    let mut dice = Random::new(1);
    let mut objects: Vec<_> = (0..entries).map(|_| id(&mut dice)).collect();
    let began = Instant::now();
    for (number, object) in objects.iter().enumerate() {
        let executor = ExecutorId(number as u32 % EXECUTORS);
        scheduler.handle(Event::Stored { executor, object: *object, size_bytes: 1_000_000 }, &mut effects);
    }
    let inserts_per_s = f64::from(entries) / began.elapsed().as_secs_f64();
    dice.shuffle(&mut objects);
    let began = Instant::now();
    for object in &objects {
        black_box(scheduler.holders(*object).next()).expect("it is held");
    }
    Central { inserts_per_s, lookups_per_s: f64::from(entries) / began.elapsed().as_secs_f64() }
}

fn id(dice: &mut Random) -> ObjectId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&dice.throw().to_le_bytes());
    id[8..].copy_from_slice(&dice.throw().to_le_bytes());
    ObjectId(id)
}
