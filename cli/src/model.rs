//! `eyas model`: how long a workload would take, by the abstract model alone. It asks no cluster.

use std::process::ExitCode;

use clap::Args;
use eyas_client::types::units::{self, format_bytes, format_duration_us};
use eyas_sim::cluster::{Cluster, Disk, Storage};
use eyas_sim::model::{Demand, Limit, Prediction, predict};
use serde_json::json;

use crate::command::Reach;
use crate::{Failure, show};

#[derive(Args)]
pub(crate) struct ModelArgs {
    /// Nodes
    #[arg(long, value_name = "N", help_heading = "Cluster", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Processors of each node
    #[arg(long, value_name = "N", help_heading = "Cluster", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    slots: u32,
    /// Size of each node's store
    #[arg(long, value_name = "SIZE", help_heading = "Cluster", default_value = "10GB", value_parser = units::parse_bytes)]
    cache: u64,
    /// What each node reads from its store
    #[arg(long, value_name = "RATE", help_heading = "Cluster", default_value = "1GB/s", value_parser = units::parse_rate)]
    disk: u64,
    /// What each node's network card receives
    #[arg(long, value_name = "RATE", help_heading = "Cluster", default_value = "1Gbit/s", value_parser = units::parse_rate)]
    link: u64,
    /// What persistent storage gives to all nodes together
    #[arg(long, value_name = "RATE", help_heading = "Cluster", value_parser = units::parse_rate)]
    storage: u64,
    /// What it gives to one node at most [default: --link]
    #[arg(long, value_name = "RATE", help_heading = "Cluster", value_parser = units::parse_rate)]
    storage_client: Option<u64>,
    /// How long it takes to begin to answer
    #[arg(long, value_name = "DURATION", help_heading = "Cluster", default_value = "1ms", value_parser = units::parse_duration_us)]
    storage_latency: u64,
    /// How long the dispatcher takes to place a task
    #[arg(long, value_name = "DURATION", help_heading = "Cluster", default_value = "10us", value_parser = units::parse_duration_us)]
    decision: u64,
    /// Tasks
    #[arg(long, value_name = "N", help_heading = "Workload", value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// How long each computes
    #[arg(long, value_name = "DURATION", help_heading = "Workload", value_parser = units::parse_duration_us)]
    compute: u64,
    /// Objects that each reads
    #[arg(long, value_name = "N", help_heading = "Workload", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    inputs: u32,
    /// Different objects
    #[arg(long, value_name = "N", help_heading = "Workload", value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
    /// Size of each object
    #[arg(long, value_name = "SIZE", help_heading = "Workload", value_parser = units::parse_bytes)]
    object_size: u64,
    /// Tasks that come in a second [default: all are there from the beginning]
    #[arg(long, value_name = "N", help_heading = "Workload", value_parser = parse_frequency)]
    arrivals: Option<f64>,
    /// Share of reads that find their object in no store; 1 is first-available [default: first reads, and what stores have
    /// no room for]
    #[arg(long, value_name = "SHARE", help_heading = "Workload", value_parser = parse_share)]
    misses: Option<f64>,
    /// Share of the other reads that find it on another node
    #[arg(long, value_name = "SHARE", help_heading = "Workload", default_value = "0", value_parser = parse_share)]
    peer_hits: f64,
    /// Let a task hold its slot while its inputs come, as in the paper
    #[arg(long, help_heading = "Workload")]
    no_overlap: bool,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a share: write a number from 0 to 1"))
}

fn parse_frequency(text: &str) -> Result<f64, String> {
    let per_s = text.parse().ok().filter(|per_s: &f64| *per_s > 0.0 && per_s.is_finite());
    per_s.ok_or_else(|| format!("`{text}` is not a number of tasks a second: write for example 2.5"))
}

impl ModelArgs {
    fn cluster(&self) -> Cluster {
        const NS_PER_US: u64 = 1_000;
        let disk_bytes_per_s = self.disk as f64;
        let storage = Storage {
            bytes_per_s: self.storage as f64,
            client_bytes_per_s: self.storage_client.map(|rate| rate as f64),
            latency_ns: self.storage_latency * NS_PER_US,
        };
        Cluster {
            nodes: self.nodes,
            cpus: self.slots,
            cache_bytes: self.cache,
            card_bytes_per_s: self.link as f64,
            disk: Some(Disk { read_bytes_per_s: disk_bytes_per_s, write_bytes_per_s: disk_bytes_per_s }),
            storage,
            decision_ns: self.decision * NS_PER_US,
            // Little of it matters here: messages and peers answer as on the papers' cluster.
            ..Cluster::teragrid_64(self.cache)
        }
    }

    fn demand(&self) -> Demand {
        Demand {
            tasks: self.tasks,
            inputs: self.inputs,
            objects: self.objects,
            object_bytes: self.object_size,
            compute_s: self.compute as f64 / 1e6,
            arriving_per_s: self.arrivals,
            misses: self.misses,
            peer_hits: self.peer_hits,
            overlap: !self.no_overlap,
        }
    }
}

/// What takes the longest: as a word of JSON, and for a person.
fn name(limit: Limit) -> (&'static str, &'static str) {
    match limit {
        Limit::Processors => ("processors", "processors"),
        Limit::PersistentStorage => ("persistent_storage", "persistent storage"),
        Limit::NetworkCards => ("network_cards", "network cards"),
        Limit::Stores => ("stores", "reading from stores"),
        Limit::Dispatcher => ("dispatcher", "the dispatcher"),
        Limit::Arrivals => ("arrivals", "the rate at which tasks come"),
    }
}

/// `eyas model`
pub(crate) fn model(args: &ModelArgs, reach: &Reach) -> Result<ExitCode, Failure> {
    let prediction = predict(&args.cluster(), &args.demand())?;
    if reach.json {
        print_json(&prediction)?
    } else {
        print_table(&prediction)?
    }
    Ok(ExitCode::SUCCESS)
}

fn print_json(prediction: &Prediction) -> std::io::Result<()> {
    let Prediction { costs, ratios, .. } = prediction;
    let model = json!({
        "time_s": prediction.time_s,
        "limited_by": name(prediction.limit).0,
        "speedup": prediction.speedup,
        "efficiency": prediction.efficiency,
        "utilisation": prediction.utilisation,
        "sustained_tasks_per_s": prediction.sustained_per_s,
        "one_processor_s": prediction.one_processor_s,
        "task_s": prediction.task_s,
        "data_fits_in_stores": prediction.fits,
        "local_share": ratios.local,
        "peer_share": ratios.peer,
        "storage_share": ratios.storage,
        "local_access_s": costs.local_s,
        "peer_access_s": costs.peer_s,
        "storage_access_s": costs.storage_s,
        "peer_bytes": prediction.peer_bytes as u64,
        "storage_bytes": prediction.storage_bytes as u64,
    });
    show::json("model", &model)
}

fn print_table(prediction: &Prediction) -> std::io::Result<()> {
    let Prediction { costs, ratios, .. } = prediction;
    let time = |seconds: f64| format_duration_us((seconds * 1e6).round() as u64);
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let mut reads = show::Table::new(&["READS", "SHARE", "EACH", "MOVED"]);
    let moved = |bytes: f64| format_bytes(bytes as u64);
    reads.row(vec!["local stores".into(), percent(ratios.local), time(costs.local_s), moved(0.0)]);
    reads.row(vec!["peers".into(), percent(ratios.peer), time(costs.peer_s), moved(prediction.peer_bytes)]);
    let storage = [percent(ratios.storage), time(costs.storage_s), moved(prediction.storage_bytes)];
    reads.row(["persistent storage".into()].into_iter().chain(storage).collect());
    reads.print()?;
    println!();
    let mut whole = show::Table::new(&["TIME", "SPEEDUP", "EFFICIENCY", "UTILISATION", "AT MOST", "LIMITED BY"]);
    whole.row(vec![
        time(prediction.time_s),
        format!("{:.1}", prediction.speedup),
        percent(prediction.efficiency),
        percent(prediction.utilisation),
        format!("{:.1} tasks/s", prediction.sustained_per_s),
        name(prediction.limit).1.into(),
    ]);
    whole.print()
}
