//! `eyas simulate model`: estimates the run time of a workload with the abstract model. It needs no
//! cluster.

use std::path::PathBuf;

use clap::Args;
use eyas_client::types::units::{self, format_bytes, format_duration_us};
use eyas_sim::cluster::{Disk, SimCluster, SimStorage};
use eyas_sim::model::{Demand, Doubt, Limit, Prediction, predict};
use eyas_sim::scenario::Scenario;
use serde_json::json;

use crate::error::{CliError, ValueError};
use crate::exit_code::ExitCode;
use crate::node_args::parse_share;
use crate::print::out;
use crate::show;

#[derive(Args)]
pub(crate) struct ModelArgs {
    /// Scenario file, as for `eyas simulate run`; options replace its values
    #[arg(value_name = "SCENARIO")]
    file: Option<PathBuf>,
    /// Number of nodes
    #[arg(
        long,
        value_name = "N",
        help_heading = "Cluster",
        required_unless_present = "file",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    nodes: Option<u32>,
    /// Processors of each node [default: 1]
    #[arg(
        long,
        value_name = "N",
        help_heading = "Cluster",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    slots: Option<u32>,
    /// Size of each node's store [default: 10GB]
    #[arg(long, value_name = "SIZE", help_heading = "Cluster", value_parser = units::parse_bytes)]
    cache: Option<u64>,
    /// Rate at which a node reads from its store [default: 1GB/s]
    #[arg(long, value_name = "RATE", help_heading = "Cluster", value_parser = units::parse_rate)]
    disk: Option<u64>,
    /// Rate at which a node receives over the network [default: 1Gbit/s]
    #[arg(long, value_name = "RATE", help_heading = "Cluster", value_parser = units::parse_rate)]
    link: Option<u64>,
    /// Rate of persistent storage, for all nodes together
    #[arg(
        long,
        value_name = "RATE",
        help_heading = "Cluster",
        required_unless_present = "file",
        value_parser = units::parse_rate
    )]
    storage: Option<u64>,
    /// Maximum rate of persistent storage for one node [default: the rate of --link]
    #[arg(long, value_name = "RATE", help_heading = "Cluster", value_parser = units::parse_rate)]
    storage_client: Option<u64>,
    /// Latency of persistent storage [default: 1ms]
    #[arg(
        long,
        value_name = "DURATION",
        help_heading = "Cluster",
        value_parser = units::parse_duration_us
    )]
    storage_latency: Option<u64>,
    /// Time that the dispatcher needs to place a task [default: 10us]
    #[arg(
        long,
        value_name = "DURATION",
        help_heading = "Cluster",
        value_parser = units::parse_duration_us
    )]
    decision: Option<u64>,
    /// Number of tasks
    #[arg(
        long,
        value_name = "N",
        help_heading = "Workload",
        required_unless_present = "file",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    tasks: Option<u64>,
    /// Time that each task computes
    #[arg(
        long,
        value_name = "DURATION",
        help_heading = "Workload",
        required_unless_present = "file",
        value_parser = units::parse_duration_us
    )]
    compute: Option<u64>,
    /// Number of objects that each task reads [default: 1]
    #[arg(
        long,
        value_name = "N",
        help_heading = "Workload",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    inputs: Option<u32>,
    /// Number of different objects
    #[arg(
        long,
        value_name = "N",
        help_heading = "Workload",
        required_unless_present = "file",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    objects: Option<u64>,
    /// Size of each object
    #[arg(
        long,
        value_name = "SIZE",
        help_heading = "Workload",
        required_unless_present = "file",
        value_parser = units::parse_bytes
    )]
    object_size: Option<u64>,
    /// Number of tasks that arrive per second [default: all tasks arrive at the start]
    #[arg(long, value_name = "N", help_heading = "Workload", value_parser = parse_frequency)]
    arrivals: Option<f64>,
    /// Share of reads that go to persistent storage; 1 for the policy first-available [default:
    /// the first read of each object, and reads of objects for which the stores have no room]
    #[arg(long, value_name = "SHARE", help_heading = "Workload", value_parser = parse_share)]
    misses: Option<f64>,
    /// Share of the other reads that go to another node [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = "Workload", value_parser = parse_share)]
    peer_hits: Option<f64>,
    /// Let each task hold its slot while its inputs are fetched, as in the paper
    #[arg(long, help_heading = "Workload")]
    no_overlap: bool,
}

fn parse_frequency(text: &str) -> Result<f64, ValueError> {
    let per_s = text.parse().ok().filter(|per_s: &f64| *per_s > 0.0 && per_s.is_finite());
    per_s.ok_or_else(|| ValueError::TaskRate(text.into()))
}

impl ModelArgs {
    /// Cluster and demand. Options take precedence over the scenario, and the scenario over
    /// defaults.
    fn cluster_and_demand(&self) -> Result<(SimCluster, Demand), CliError> {
        let (cluster, demand) = match &self.file {
            Some(file) => {
                let Scenario { cluster, policies, workload, .. } = Scenario::read(file)?;
                if workload.derivation().is_some() {
                    return Err(
                        "the abstract model has no compressed objects: take content_size, \
                                decompress and keep_content out of [job], or use `eyas simulate \
                                run`"
                            .into(),
                    );
                }
                (cluster, Demand::of(&*workload, &policies))
            }
            None => defaults(),
        };
        Ok((self.cluster(cluster), self.demand(demand)))
    }

    fn cluster(&self, mut cluster: SimCluster) -> SimCluster {
        const NS_PER_US: u64 = 1_000;
        if let Some(rate) = self.disk {
            let bytes_per_s = rate as f64;
            cluster.disk =
                Some(Disk { read_bytes_per_s: bytes_per_s, write_bytes_per_s: bytes_per_s });
        }
        let SimStorage { bytes_per_s, client_bytes_per_s, latency_ns } = cluster.storage;
        let rate = |given: Option<u64>, defaults: f64| given.map_or(defaults, |rate| rate as f64);
        let time_ns = |given: Option<u64>, defaults: u64| {
            given.map_or(defaults, |us| us.saturating_mul(NS_PER_US))
        };
        SimCluster {
            nodes: self.nodes.unwrap_or(cluster.nodes),
            cpus: self.slots.unwrap_or(cluster.cpus),
            cache_bytes: self.cache.unwrap_or(cluster.cache_bytes),
            card_bytes_per_s: rate(self.link, cluster.card_bytes_per_s),
            storage: SimStorage {
                bytes_per_s: rate(self.storage, bytes_per_s),
                client_bytes_per_s: self
                    .storage_client
                    .map(|rate| rate as f64)
                    .or(client_bytes_per_s),
                latency_ns: time_ns(self.storage_latency, latency_ns),
            },
            decision_ns: time_ns(self.decision, cluster.decision_ns),
            ..cluster
        }
    }

    fn demand(&self, demand: Demand) -> Demand {
        Demand {
            tasks: self.tasks.unwrap_or(demand.tasks),
            inputs: self.inputs.unwrap_or(demand.inputs),
            objects: self.objects.unwrap_or(demand.objects),
            object_bytes: self.object_size.unwrap_or(demand.object_bytes),
            compute_s: self.compute.map_or(demand.compute_s, |us| us as f64 / 1e6),
            arriving_per_s: self.arrivals.or(demand.arriving_per_s),
            misses: self.misses.or(demand.misses),
            peer_hits: self.peer_hits.unwrap_or(demand.peer_hits),
            overlap: demand.overlap && !self.no_overlap,
        }
    }
}

/// Default values of a cluster and a demand. Zeros are placeholders for options that the user must
/// give.
fn defaults() -> (SimCluster, Demand) {
    let cluster = SimCluster {
        cpus: 1,
        card_bytes_per_s: 125e6,
        disk: Some(Disk { read_bytes_per_s: 1e9, write_bytes_per_s: 1e9 }),
        decision_ns: 10_000,
        // No option sets its size.
        page_cache_bytes: 0,
        // Latencies of messages and peers are those of the papers' cluster; they matter little
        // here.
        ..SimCluster::teragrid_64(10_000_000_000)
    };
    let demand = Demand {
        tasks: 0,
        inputs: 1,
        objects: 0,
        object_bytes: 0,
        compute_s: 0.0,
        arriving_per_s: None,
        misses: None,
        peer_hits: 0.0,
        overlap: true,
    };
    (cluster, demand)
}

/// The name of a limit: as a word in JSON, and for a person.
fn name(limit: Limit) -> (&'static str, &'static str) {
    match limit {
        Limit::Processors => ("processors", "processors"),
        Limit::PersistentStorage => ("persistent_storage", "persistent storage"),
        Limit::StorageClients => ("storage_clients", "persistent storage, rate for one node"),
        Limit::NetworkCards => ("network_cards", "network cards"),
        Limit::Switch => ("switch", "the switch"),
        Limit::Fetches => ("fetches", "simultaneous fetches on each node"),
        Limit::Stores => ("stores", "reading and writing stores"),
        Limit::Dispatcher => ("dispatcher", "the dispatcher"),
        Limit::Arrivals => ("arrivals", "the rate at which tasks arrive"),
    }
}

/// Handles `eyas simulate model`.
pub(super) fn model(args: &ModelArgs, json: bool) -> Result<ExitCode, CliError> {
    let (cluster, demand) = args.cluster_and_demand()?;
    let prediction = predict(&cluster, &demand)?;
    if json {
        print_json(&prediction)?
    } else {
        print_table(&prediction)?
    }
    Ok(ExitCode::SUCCESS)
}

fn print_json(prediction: &Prediction) -> Result<(), CliError> {
    let Prediction { costs, ratios, one_processor_ratios, .. } = prediction;
    let busy =
        prediction.busy.iter().map(|(limit, busy_s)| (name(*limit).0.to_owned(), json!(busy_s)));
    let model = json!({
        "time_s": prediction.time_s,
        "limited_by": name(prediction.limit).0,
        "speedup": prediction.speedup,
        "efficiency": prediction.efficiency,
        "utilisation": prediction.utilisation,
        "sustained_tasks_per_s": prediction.sustained_per_s,
        "one_processor_s": prediction.one_processor_s,
        "one_processor_storage_share": one_processor_ratios.storage,
        "busy_s": busy.collect::<serde_json::Map<_, _>>(),
        "doubts": prediction.doubts.iter().map(|doubt| reason(*doubt)).collect::<Vec<_>>(),
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

fn print_table(prediction: &Prediction) -> Result<(), CliError> {
    let Prediction { costs, ratios, .. } = prediction;
    let time = |seconds: f64| format_duration_us((seconds * 1e6).round() as u64);
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let mut reads = show::Table::new(&["READS", "SHARE", "EACH", "MOVED"]);
    let moved = |bytes: f64| format_bytes(bytes as u64);
    reads.row(vec!["local stores".into(), percent(ratios.local), time(costs.local_s), moved(0.0)]);
    reads.row(vec![
        "peers".into(),
        percent(ratios.peer),
        time(costs.peer_s),
        moved(prediction.peer_bytes),
    ]);
    let storage = [percent(ratios.storage), time(costs.storage_s), moved(prediction.storage_bytes)];
    reads.row(["persistent storage".into()].into_iter().chain(storage).collect());
    reads.print()?;
    out!()?;
    let mut whole = show::Table::new(&[
        "TIME",
        "SPEEDUP",
        "EFFICIENCY",
        "UTILISATION",
        "MAX RATE",
        "LIMITED BY",
    ]);
    whole.row(vec![
        time(prediction.time_s),
        format!("{:.1}", prediction.speedup),
        percent(prediction.efficiency),
        percent(prediction.utilisation),
        format!("{:.1} tasks/s", prediction.sustained_per_s),
        name(prediction.limit).1.into(),
    ]);
    whole.print()?;
    out!()?;
    let mut busy = show::Table::new(&["RESOURCE", "BUSY", "SHARE OF TIME"]);
    let mut all = prediction.busy;
    all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    for (limit, busy_s) in all.into_iter().filter(|(_, busy_s)| *busy_s > 0.0) {
        busy.row(vec![name(limit).1.into(), time(busy_s), percent(busy_s / prediction.time_s)]);
    }
    busy.print()?;
    if prediction.efficiency > 1.0 {
        let [one, all] =
            [prediction.one_processor_ratios, *ratios].map(|ratios| percent(ratios.storage));
        out!(
            "\nMore than 100% because of the stores: one processor alone would have the store and \
             the memory of only one node, and make {one} of its reads from persistent storage \
             instead of {all}."
        )?;
    }
    if !prediction.doubts.is_empty() {
        out!("\nThis estimate may be off by more than 15%:")?;
        prediction.doubts.iter().try_for_each(|doubt| out!("- {}", reason(*doubt)))?;
    }
    Ok(())
}

/// A reason why the prediction may be inaccurate, for a person.
fn reason(doubt: Doubt) -> String {
    match doubt {
        Doubt::FewTasks(tasks) => {
            format!(
                "each processor has only {tasks:.1} tasks, so the start and the end of the \
                 workload matter"
            )
        }
        Doubt::NearlyAsBusy(limit, share) => {
            format!(
                "{} would also be busy {:.0}% of the time, and the waits for both add up",
                name(limit).1,
                100.0 * share
            )
        }
        Doubt::FewReads(reads) => {
            format!(
                "each object is read only {reads:.1} times, so the stores are being filled for \
                 much of the time"
            )
        }
        Doubt::FewObjects(objects) => {
            format!(
                "only {objects:.1} objects exist for each simultaneous read, so nodes wait for \
                 the same objects"
            )
        }
        Doubt::Short(seconds) => {
            format!(
                "the workload takes only {seconds:.1} s, so messages and waits for peers matter"
            )
        }
        Doubt::NoRoom(room) => {
            format!(
                "the stores have room for {:.0}% of the data, and the policies determine which \
                 objects are stored",
                100.0 * room
            )
        }
    }
}
