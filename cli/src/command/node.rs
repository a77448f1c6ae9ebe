//! What an executor has: the options of `eyas start executor`, and of commands that start some.

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;
use eyas_client::types::matching::Labels;
use eyas_client::types::{EvictionPolicy, units};
use eyas_store::Emulation;

/// What an executor has.
#[derive(Args, Clone)]
pub(crate) struct NodeArgs {
    /// Processors of each executor [default: those of the machine or allocation, shared among local executors]
    #[arg(long, value_name = "N", help_heading = "Executors", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub slots: Option<u32>,
    /// Memory of each executor [default: as for --slots]
    #[arg(long, value_name = "SIZE", help_heading = "Executors", value_parser = units::parse_bytes)]
    pub node_memory: Option<u64>,
    /// Another resource of each executor, such as gpu=1 (again for more)
    #[arg(long, value_name = "NAME=N", help_heading = "Executors", value_parser = parse_amount)]
    pub node_resource: Vec<(String, u64)>,
    /// A label of each executor, for which tasks' requirements ask, such as site=a (again for more)
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Executors", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Take only tasks for which this is true, such as 'task.cpus <= 2'
    #[arg(long, value_name = "EXPR", help_heading = "Executors", value_parser = parse_accept)]
    pub accept: Option<String>,
    /// Size of each executor's store
    #[arg(long, value_name = "SIZE", help_heading = "Executors", default_value = "10GB", value_parser = units::parse_bytes)]
    pub cache: u64,
    /// Most objects in each executor's store
    #[arg(long, value_name = "N", help_heading = "Executors", default_value_t = 1_000_000)]
    pub cache_objects: u64,
    /// Leave so much of the disk free
    #[arg(long, value_name = "SIZE", help_heading = "Executors", default_value = "1GB", value_parser = units::parse_bytes)]
    pub keep_free: u64,
    /// Keep files of the cluster's file system (`eyas dfs`) in each executor's store, too
    #[arg(long, help_heading = "Executors")]
    pub dfs: bool,
    /// Move data between nodes and clients unencrypted, for closed networks; the dispatcher and all executors must agree
    #[arg(long, help_heading = "Executors")]
    pub plain_data: bool,
    /// Which object leaves a full store: random, fifo, lru, lfu
    #[arg(long, value_name = "POLICY", help_heading = "Executors", default_value = "lru")]
    pub eviction: EvictionPolicy,
    /// A task of which so much is to be fetched is data-intensive: others compute while it is staged
    #[arg(long, value_name = "SIZE", help_heading = "Executors", default_value = "64MB", value_parser = units::parse_bytes)]
    pub data_intensive: u64,
    /// So is one whose inputs would take so long, at the rate seen so far
    #[arg(long, value_name = "DURATION", help_heading = "Executors", default_value = "2s", value_parser = units::parse_duration_us)]
    pub data_intensive_time: u64,
    /// Let a task hold its slot while its inputs are staged, and stage nothing ahead; for comparison
    #[arg(long, help_heading = "Executors")]
    pub no_overlap: bool,
    /// Pretend: storage=RATE,storage-latency=DURATION,link=RATE
    #[arg(long, value_name = "WHAT", help_heading = "Executors", default_value = "none", value_parser = Emulation::parse)]
    pub emulate: Emulation,
    /// Fetch from persistent storage in turn with all that `eyas io` orders: as the coordinator with this access file says
    #[arg(long, value_name = "FILE", help_heading = "Executors")]
    pub io: Option<PathBuf>,
}

/// Bytes of a label's name and of its value.
const MAX_LABEL_BYTES: usize = 256;
/// Labels of one executor.
const MAX_LABELS: usize = 64;

/// `NAME=VALUE` as a label.
fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && name.len().max(value.len()) <= MAX_LABEL_BYTES => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!(
            "`{text}` is not a label: write NAME=VALUE, for example site=a, neither of them over {MAX_LABEL_BYTES} bytes"
        )),
    }
}

/// Labels by their names.
///
/// # Errors
/// If one is given twice, or there are too many.
pub(crate) fn labels(given: &[(String, String)]) -> Result<Labels, clap::Error> {
    let wrong = |why: String| clap::Error::raw(ErrorKind::ArgumentConflict, why);
    let mut labels = Labels::new();
    for (name, value) in given {
        if labels.insert(name.clone(), value.clone()).is_some() {
            return Err(wrong(format!("label `{name}` is given twice\n")));
        }
    }
    if labels.len() > MAX_LABELS {
        return Err(wrong(format!("there are {} labels, at most {MAX_LABELS} are allowed\n", labels.len())));
    }
    Ok(labels)
}

/// A match expression over tasks.
fn parse_accept(text: &str) -> Result<String, String> {
    eyas_matching::accept(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// `NAME=N` as a counted resource.
pub(crate) fn parse_amount(text: &str) -> Result<(String, u64), String> {
    let parsed = text.split_once('=').and_then(|(name, n)| Some((name, n.parse::<u64>().ok()?)));
    match parsed {
        Some((name, amount)) if !name.is_empty() => Ok((name.to_owned(), amount)),
        _ => Err(format!("`{text}` is not a resource: write NAME=N, for example gpu=1")),
    }
}

/// Counted resources in the order of their names.
///
/// # Errors
/// If one is given twice.
pub(crate) fn named_amounts(given: &[(String, u64)]) -> Result<Vec<(String, u64)>, clap::Error> {
    let mut amounts = given.to_vec();
    amounts.sort();
    match amounts.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            let twice = format!("resource `{}` is given twice\n", pair[0].0);
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, twice))
        }
        None => Ok(amounts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_written() {
        let labels = |words: &[&str]| {
            let parsed: Result<Vec<_>, _> = words.iter().map(|word| parse_label(word)).collect();
            labels(&parsed?).map_err(|e| e.to_string())
        };
        let expected = [("gpu-kind", "a=100"), ("site", "")].map(|(name, value)| (name.into(), value.into())).into();
        assert_eq!(labels(&["site=", "gpu-kind=a=100"]), Ok(expected));
        for wrong in [&["site"][..], &["=a"], &["a=1", "a=2"], &[&format!("a={}", "x".repeat(300))]] {
            assert!(labels(wrong).is_err(), "{wrong:?}");
        }
        let many: Vec<_> = (0..=MAX_LABELS).map(|number| format!("l{number}=x")).collect();
        assert!(labels(&many.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_err().contains("at most 64"));
    }

    #[test]
    fn resources_are_read_as_written() {
        let amounts = |words: &[&str]| {
            let parsed: Result<Vec<_>, _> = words.iter().map(|word| parse_amount(word)).collect();
            named_amounts(&parsed?).map_err(|e| e.to_string())
        };
        assert_eq!(amounts(&["tape=2", "gpu=1"]), Ok(vec![("gpu".into(), 1), ("tape".into(), 2)]));
        for wrong in [&["gpu"][..], &["=1"], &["gpu=x"], &["gpu=1", "gpu=2"]] {
            assert!(amounts(wrong).is_err(), "{wrong:?}");
        }
    }
}
