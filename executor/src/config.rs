//! How an executor is started.

use std::path::PathBuf;
use std::time::Duration;

use eyas_node::{Limits, Overlap};
use eyas_store::Emulation;
use eyas_types::matching::Labels;
use eyas_types::{EvictionPolicy, Resources};
use rustix::fs::statvfs;
use thiserror::Error;

/// Objects fetched at a time, per processor and at least.
const FETCHES_PER_PROCESSOR: usize = 2;
const MIN_FETCHES: usize = 4;

/// Settings of an executor.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name for people; the host's if none better is known.
    pub name: String,
    /// The host's name.
    pub host: String,
    /// Labels of the node, which expressions of tasks ask for.
    pub labels: Labels,
    /// Which tasks it accepts, as a match expression that was checked; any if there is none.
    pub accept: Option<String>,
    /// What it has for tasks.
    pub capacity: Resources,
    /// Its own folder: the store and sandboxes are in it. One executor at a time has it.
    pub folder: PathBuf,
    /// Bounds on the store.
    pub limits: Limits,
    /// Whether it is a node of the file system.
    pub has_files: bool,
    /// Which object leaves a full store.
    pub eviction: EvictionPolicy,
    /// What is data-intensive, and whether others compute while it is staged.
    pub overlap: Overlap,
    /// What to pretend.
    pub emulation: Emulation,
    /// Where the state of what is emulated is shared with the machine's other executors.
    pub emulation_folder: PathBuf,
    /// The access file of the coordinator of storages, if what is fetched waits for its turn there.
    pub io: Option<PathBuf>,
    /// The `eyas` program itself, which tasks find under that name.
    pub eyas: PathBuf,
    /// After losing the dispatcher, it tries to come back for so long.
    pub reconnect: Duration,
    /// Command that starts a [guardian](crate::guardian); its marker and the folder
    /// with the sandboxes are added as its last words.
    pub guardian: Option<Vec<String>>,
}

/// Why an executor cannot run with these settings.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Config {
    pub(crate) fn max_fetches(&self) -> usize {
        (self.capacity.cpus_milli as usize / 1000 * FETCHES_PER_PROCESSOR).max(MIN_FETCHES)
    }

    pub(crate) fn store_folder(&self) -> PathBuf {
        self.folder.join("store")
    }

    pub(crate) fn files_folder(&self) -> PathBuf {
        self.folder.join("files")
    }

    pub(crate) fn tokens_folder(&self) -> PathBuf {
        self.folder.join("tokens")
    }

    pub(crate) fn sandbox_folder(&self) -> PathBuf {
        self.folder.join("sandboxes")
    }
}

/// What this machine has: its processors, and memory as far as it is known.
pub fn default_capacity() -> Resources {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory_kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    // Disk for sandboxes is what the temporary folder's file system has free now.
    let disk = statvfs(std::env::temp_dir()).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    Resources {
        cpus_milli: (processors * 1000) as u32,
        memory_bytes: memory_kib.map_or(u64::MAX, |kib| kib * 1024),
        disk_bytes: disk,
        named: Vec::new(),
    }
}
