//! Options of the processes that commands start: of an executor, of a local cluster, and of
//! placement.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::error::ErrorKind;
use eyas_client::types::matching::Labels;
use eyas_client::types::{EvictionPolicy, PlacementPolicy, units};
use eyas_executor::LimitMode;
use eyas_matching::ExpressionError;
use eyas_sched::HolderPatience;
use eyas_store::Emulation;

use crate::error::ValueError;

/// Headings of the options of [`ShapeArgs`].
pub(crate) const SHAPE_HEADINGS: [&str; 3] = ["Local cluster", "Placement", "Executors"];

/// The shape of a local cluster.
#[derive(Args, Clone)]
pub(crate) struct ShapeArgs {
    /// Number of executors of a local cluster
    #[arg(
        long,
        value_name = "N",
        help_heading = "Local cluster",
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=1024)
    )]
    pub nodes: u32,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub placement: PlacementArgs,
}

/// How the dispatcher places tasks.
#[derive(Args, Clone)]
#[command(next_help_heading = "Placement")]
pub(crate) struct PlacementArgs {
    /// Placement policy: fa, fca, mch, mcu, gcc or cost
    #[arg(long, value_name = "POLICY", default_value = "cost")]
    pub policy: PlacementPolicy,
    /// With --policy gcc: while more than this share of all processors is busy, tasks wait for a
    /// node that holds their inputs [default: 0.9]
    #[arg(
        long,
        value_name = "SHARE",
        allow_negative_numbers = true,
        value_parser = parse_share
    )]
    pub utilisation: Option<f64>,
    /// Number of waiting tasks that one decision considers [default: 100 for each executor, at
    /// least 2,500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub window: Option<u64>,
    /// With --policy mch or gcc: a node that holds at most this share of a task's input bytes does
    /// not count as a holder of them; such as 0.5 [default: 0]
    #[arg(
        long,
        value_name = "SHARE",
        allow_negative_numbers = true,
        value_parser = parse_share
    )]
    pub min_cache_hit: Option<f64>,
    /// How many other tasks leave the queue before a task that waits for a node with its inputs
    /// may go to any node; off: it waits for ever [default: as --window]
    #[arg(
        long,
        value_name = "N|off",
        default_value = "",
        hide_default_value = true,
        value_parser = parse_patience
    )]
    pub patience: HolderPatience,
}

impl PlacementArgs {
    /// Refuses options of which the policy has no use.
    pub fn check(&self) -> Result<(), clap::Error> {
        let wrong = |option: &str, of: &str| {
            let why = format!(
                "{option} is for --policy {of}, and the policy is {}: leave {option} out, or \
                 choose that policy\n",
                self.policy
            );
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, why))
        };
        let (is_gcc, is_mch) = (
            self.policy == PlacementPolicy::GoodCacheCompute,
            self.policy == PlacementPolicy::MaxCacheHit,
        );
        match (self.utilisation, self.min_cache_hit) {
            (Some(_), _) if !is_gcc => wrong("--utilisation", "gcc"),
            (_, Some(_)) if !is_gcc && !is_mch => wrong("--min-cache-hit", "mch or gcc"),
            _ => Ok(()),
        }
    }

    /// The options of a dispatcher that places tasks like this.
    pub fn words(&self) -> Vec<String> {
        let patience = match self.patience {
            HolderPatience::Window => None,
            HolderPatience::Tasks(tasks) => Some(tasks.to_string()),
            HolderPatience::Unlimited => Some("off".into()),
        };
        let options = [
            ("--policy", Some(self.policy.name().to_owned())),
            ("--utilisation", self.utilisation.map(|share| share.to_string())),
            ("--window", self.window.map(|tasks| tasks.to_string())),
            ("--min-cache-hit", self.min_cache_hit.map(|share| share.to_string())),
            ("--patience", patience),
        ];
        options
            .into_iter()
            .filter_map(|(name, value)| Some([name.into(), value?]))
            .flatten()
            .collect()
    }
}

/// A number of tasks, or `off`; the empty text is the default.
fn parse_patience(text: &str) -> Result<HolderPatience, ValueError> {
    match text {
        "" => Ok(HolderPatience::Window),
        "off" => Ok(HolderPatience::Unlimited),
        _ => {
            let tasks = text.parse().ok().filter(|tasks| *tasks > 0);
            tasks.map(HolderPatience::Tasks).ok_or_else(|| ValueError::HolderPatience(text.into()))
        }
    }
}

/// A number from 0 to 1.
pub(crate) fn parse_share(text: &str) -> Result<f64, ValueError> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| ValueError::Share(text.into()))
}

/// The options of an executor.
#[derive(Args, Clone)]
#[command(next_help_heading = "Executors")]
pub(crate) struct NodeArgs {
    /// Number of processors of each executor [default: its part of the machine or allocation]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub slots: Option<u32>,
    /// Memory of each executor [default: its part, as for --slots]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub node_memory: Option<u64>,
    /// How the memory and processors of tasks are limited: cgroup (control groups), poll (memory
    /// only, by looking at processes), off, or auto: by control groups where the system allows it,
    /// else by looking
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = LimitMode::from_str)]
    pub limits: LimitMode,
    /// A task never uses more processors than it asks for, even if others are idle; needs control
    /// groups
    #[arg(long)]
    pub cpu_quota: bool,
    /// Pin each task to cores of its own: whole cores, of one NUMA node where they fit
    #[arg(long)]
    pub pin: bool,
    /// Another resource, such as licence=2 (may be repeated); gpu=N offers the first N GPUs instead
    /// of all
    #[arg(long, value_name = "NAME=N", value_parser = parse_amount)]
    pub node_resource: Vec<(String, u64)>,
    /// A label of each executor, such as site=a, for the requirements of tasks (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Run only tasks for which this expression is true, such as 'task.cpus <= 2'
    #[arg(long, value_name = "EXPR", value_parser = parse_accept)]
    pub accept: Option<String>,
    /// Size of each executor's store [default: 10GB; in a local cluster at most half of the free
    /// disk space, divided among its executors]
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub cache: Option<u64>,
    /// Maximum number of objects in each store
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub cache_objects: u64,
    /// Keep this much disk space free
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = units::parse_bytes)]
    pub keep_free: u64,
    /// Also keep files of the cluster's file system (`eyas dfs`) in the executors' stores
    #[arg(long)]
    pub dfs: bool,
    /// With --dfs: maximum size of each executor's audit log of changes of files; 0 for no log
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "128MiB",
        value_parser = units::parse_bytes,
        requires = "dfs"
    )]
    pub audit_bytes: u64,
    /// With --dfs: memory for map steps with `memory`, taken from what tasks get
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "0",
        value_parser = units::parse_bytes,
        requires = "dfs"
    )]
    pub dfs_memory: u64,
    /// With --dfs: time between two measurements of how busy the executor's disk and processors
    /// are, for `eyas map --policy io-aware` and `eyas dfs du`
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = parse_load_period,
        requires = "dfs"
    )]
    pub load_period: Duration,
    /// With --dfs: weight of the newest of these measurements in the moving average, above 0 and
    /// at most 1
    #[arg(
        long,
        value_name = "WEIGHT",
        default_value = "0.3",
        value_parser = parse_load_weight,
        requires = "dfs"
    )]
    pub load_weight: f64,
    /// Map of users, a TOML file as for `eyas dfs put`: files of the cluster that tasks write
    /// belong to the owner of this executor's access key, else of its user name, else of the role
    /// of the key [default: the executor's user and group id]
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Send data between nodes and clients unencrypted, in a closed network; for the dispatcher and
    /// all executors, or for none
    #[arg(long)]
    pub plain_data: bool,
    /// Eviction policy, which selects the objects that a full store removes: random, fifo, lru,
    /// lfu or 2mark
    #[arg(long, value_name = "POLICY", default_value = "lru")]
    pub eviction: EvictionPolicy,
    /// A task with at least this much data to fetch is data-intensive: other tasks use its
    /// processors during the fetch
    #[arg(long, value_name = "SIZE", default_value = "64MB", value_parser = units::parse_bytes)]
    pub data_intensive: u64,
    /// A task is also data-intensive if fetching its inputs takes at least this long at the
    /// measured rate
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "2s",
        value_parser = units::parse_duration_us
    )]
    pub data_intensive_time: u64,
    /// For comparison: fetch no inputs in advance, and let a task hold its processors while its
    /// inputs are fetched
    #[arg(long)]
    pub no_overlap: bool,
    /// Emulate slow storage and links: storage=RATE,storage-latency=DURATION,link=RATE, or none
    #[arg(long, value_name = "LIMITS", default_value = "none", value_parser = Emulation::parse)]
    pub emulate: Emulation,
    /// Use persistent storage in the order of the I/O coordinator with this access file (`eyas io
    /// serve`)
    #[arg(long, value_name = "FILE")]
    pub io: Option<PathBuf>,
    /// With --io: job class of the executors
    #[arg(long, value_name = "NAME", default_value = "eyas", requires = "io")]
    pub io_class: String,
}

/// Shortest time between two measurements of a node's load.
const MIN_LOAD_PERIOD: Duration = Duration::from_millis(100);

/// A duration of at least [`MIN_LOAD_PERIOD`].
fn parse_load_period(text: &str) -> Result<Duration, ValueError> {
    let parsed = units::parse_duration_us(text).ok().map(Duration::from_micros);
    let period = parsed.filter(|period| *period >= MIN_LOAD_PERIOD);
    period.ok_or_else(|| ValueError::Interval(text.into()))
}

/// A number above 0 and at most 1.
fn parse_load_weight(text: &str) -> Result<f64, ValueError> {
    let weight = text.parse().ok().filter(|weight| *weight > 0.0 && *weight <= 1.0);
    weight.ok_or_else(|| ValueError::LoadWeight(text.into()))
}

/// Maximum length of a label's name, and of its value.
const MAX_LABEL_BYTES: usize = 256;
/// Maximum number of labels of one executor.
const MAX_LABELS: usize = 64;

/// `NAME=VALUE` as a label.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value))
            if !name.is_empty() && name.len().max(value.len()) <= MAX_LABEL_BYTES =>
        {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(ValueError::Label { text: text.into(), max_bytes: MAX_LABEL_BYTES }),
    }
}

/// Labels by their names.
///
/// # Errors
/// If a name is given twice, or there are more than [`MAX_LABELS`].
pub(crate) fn labels(given: &[(String, String)]) -> Result<Labels, clap::Error> {
    let wrong = |why: String| clap::Error::raw(ErrorKind::ArgumentConflict, why);
    let mut labels = Labels::new();
    for (name, value) in given {
        if labels.insert(name.clone(), value.clone()).is_some() {
            return Err(wrong(format!(
                "the label `{name}` is given twice: an executor has one value for each label\n"
            )));
        }
    }
    if labels.len() > MAX_LABELS {
        return Err(wrong(format!(
            "{} labels are given: an executor has at most {MAX_LABELS}\n",
            labels.len()
        )));
    }
    Ok(labels)
}

/// Checks a match expression over tasks.
fn parse_accept(text: &str) -> Result<String, ExpressionError> {
    eyas_matching::accept(text).map(|_| text.to_owned())
}

/// `NAME=N` as a counted resource.
pub(crate) fn parse_amount(text: &str) -> Result<(String, u64), ValueError> {
    let parsed = text.split_once('=').and_then(|(name, n)| Some((name, n.parse::<u64>().ok()?)));
    match parsed {
        Some((name, amount)) if !name.is_empty() => Ok((name.to_owned(), amount)),
        _ => Err(ValueError::Resource(text.into())),
    }
}

/// Counted resources in the order of their names.
///
/// # Errors
/// If a resource is given twice.
pub(crate) fn named_amounts(given: &[(String, u64)]) -> Result<Vec<(String, u64)>, clap::Error> {
    let mut amounts = given.to_vec();
    amounts.sort();
    match amounts.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            let twice = format!(
                "the resource `{}` is given twice: write the sum of the two numbers\n",
                pair[0].0
            );
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, twice))
        }
        None => Ok(amounts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Placement {
        #[command(flatten)]
        args: PlacementArgs,
    }

    #[test]
    fn options_of_placement_are_passed_on_and_refused_where_the_policy_has_no_use_of_them() {
        let parsed = |words: &str| {
            let words = ["x"].into_iter().chain(words.split_whitespace());
            <Placement as clap::Parser>::try_parse_from(words).map(|parsed| parsed.args)
        };
        for words in [
            "--policy cost",
            "--policy gcc --utilisation 0.5 --window 7 --min-cache-hit 0.25 --patience off",
            "--policy mch --min-cache-hit 0.5 --patience 3",
        ] {
            let args = parsed(words).unwrap();
            assert!(args.check().is_ok(), "{words}");
            assert_eq!(args.words().join(" "), words);
        }
        for (words, says) in [
            ("--utilisation 0.5", "--utilisation is for --policy gcc, and the policy is cost: "),
            ("--policy mch --utilisation 1", "--utilisation is for --policy gcc"),
            ("--policy mcu --min-cache-hit 1", "--min-cache-hit is for --policy mch or gcc"),
        ] {
            let said = parsed(words).unwrap().check().unwrap_err().to_string();
            assert!(said.contains(says), "{words}: {said}");
        }
    }

    #[test]
    fn labels_are_read_as_written() {
        let labels = |words: &[&str]| {
            let parsed: Result<Vec<_>, _> = words.iter().map(|word| parse_label(word)).collect();
            labels(&parsed.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
        };
        let expected = [("gpu-kind", "a=100"), ("site", "")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        assert_eq!(labels(&["site=", "gpu-kind=a=100"]), Ok(expected));
        for wrong in [&["site"][..], &["=a"], &["a=1", "a=2"], &[&format!("a={}", "x".repeat(300))]]
        {
            assert!(labels(wrong).is_err(), "{wrong:?}");
        }
        let many: Vec<_> = (0..=MAX_LABELS).map(|number| format!("l{number}=x")).collect();
        assert!(
            labels(&many.iter().map(String::as_str).collect::<Vec<_>>())
                .unwrap_err()
                .contains("at most 64")
        );
    }

    #[test]
    fn resources_are_read_as_written() {
        let amounts = |words: &[&str]| {
            let parsed: Result<Vec<_>, _> = words.iter().map(|word| parse_amount(word)).collect();
            named_amounts(&parsed.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
        };
        assert_eq!(amounts(&["tape=2", "gpu=1"]), Ok(vec![("gpu".into(), 1), ("tape".into(), 2)]));
        for wrong in [&["gpu"][..], &["=1"], &["gpu=x"], &["gpu=1", "gpu=2"]] {
            assert!(amounts(wrong).is_err(), "{wrong:?}");
        }
    }
}
