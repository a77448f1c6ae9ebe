//! `eyas simulate index`: measures the dispatcher's central index of replicas, and compares it
//! with a distributed index.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use eyas_client::types::units::format_duration_us;
use eyas_client::types::{ExecutorId, ObjectId, Resources};
use eyas_sched::{Config, Event, Scheduler};
use eyas_sim::index::{self, PAPER_LOOKUPS_PER_S};
use eyas_sim::random::Random;
use serde_json::json;

use super::{Record, csv, object, write};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::print::out;
use crate::show::{self, Table};

#[derive(Args)]
pub(crate) struct IndexArgs {
    /// Number of objects in the central index, each with one replica
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000)
    )]
    entries: u32,
    /// Write the table to FILE, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Number of executors that hold the replicas.
const EXECUTORS: u32 = 1_000;

/// Numbers of nodes for which the distributed index is shown, up to the largest of the paper.
const NODES: [u32; 8] = [1, 15, 100, 1_000, 10_000, 32_768, 100_000, index::MAX_NODES];

/// The measured rates of the catalog of `core/sched`, on one core of this machine.
struct Central {
    inserts_per_s: f64,
    lookups_per_s: f64,
}

pub(super) fn index(args: &IndexArgs, json: bool) -> Result<ExitCode, CliError> {
    let central = measure(args.entries);
    let rows: Vec<_> = NODES.iter().map(|nodes| record(*nodes, &central)).collect();
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
    let mut table = Table::new(&["NODES", "LOOKUP", "LOOKUPS/S", "VS EYAS", "VS PAPER"]);
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
    out!(
        "LOOKUP, LOOKUPS/S: a distributed index, P-RLS, from the data diffusion paper (figure 3)."
    )?;
    let Central { inserts_per_s, lookups_per_s } = central;
    let entries = args.entries;
    out!(
        "VS EYAS: relative to eyas's catalog on this machine: {lookups_per_s:.0} lookups/s, \
         {inserts_per_s:.0} inserts/s, {entries} entries."
    )?;
    out!(
        "VS PAPER: relative to the central index of the paper, a hash table: \
         {PAPER_LOOKUPS_PER_S:.0} lookups/s."
    )?;
    let from = |crossover: Option<u32>| match crossover {
        Some(nodes) => format!("from {nodes} nodes on"),
        None => format!("not even with {} nodes", index::MAX_NODES),
    };
    let (eyas, paper) = (from(crossover), from(paper_crossover));
    out!(
        "The distributed index is as fast as eyas's {eyas}, and as fast as the paper's central \
         index {paper}."
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The row of the distributed index for one number of nodes.
fn record(nodes: u32, central: &Central) -> Record {
    vec![
        ("nodes", nodes.into()),
        ("latency_s", json!(index::latency_s(nodes))),
        ("lookups_per_s", json!(index::lookups_per_s(nodes))),
        ("of_central", json!(index::lookups_per_s(nodes) / central.lookups_per_s)),
    ]
}

/// Inserts this number of replicas into a scheduler's catalog, and looks them up in another order.
/// The times include the construction of the events.
fn measure(entries: u32) -> Central {
    let mut scheduler = Scheduler::new(Config::default());
    let mut effects = Vec::new();
    for executor in 0..EXECUTORS {
        let (capacity, profile, held) = (Resources::default(), Box::default(), Box::default());
        let executor = ExecutorId(executor);
        scheduler.handle(Event::ExecutorJoined { executor, capacity, profile, held }, &mut effects);
    }
    let mut random = Random::new(1);
    let mut objects: Vec<_> = (0..entries).map(|_| id(&mut random)).collect();
    let began = Instant::now();
    for (number, object) in objects.iter().enumerate() {
        let executor = ExecutorId(number as u32 % EXECUTORS);
        scheduler.handle(
            Event::Stored { executor, object: *object, size_bytes: 1_000_000 },
            &mut effects,
        );
    }
    let inserts_per_s = f64::from(entries) / began.elapsed().as_secs_f64();
    random.shuffle(&mut objects);
    let began = Instant::now();
    for object in &objects {
        black_box(scheduler.holders(*object).next()).expect("it is held");
    }
    Central { inserts_per_s, lookups_per_s: f64::from(entries) / began.elapsed().as_secs_f64() }
}

fn id(random: &mut Random) -> ObjectId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    id[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    ObjectId(id)
}
