//! Settings of an executor, and their defaults.

use std::path::PathBuf;
use std::time::Duration;

use eyas_node::{Overlap, StoreLimits};
use eyas_store::Emulation;
use eyas_types::matching::Labels;
use eyas_types::{EvictionPolicy, Resources};
use rustix::fs::statvfs;

/// Number of concurrent fetches per processor.
const FETCHES_PER_PROCESSOR: usize = 2;
/// Number of concurrent fetches of an executor with fewer than two processors.
const MIN_FETCHES: usize = 4;

/// Settings of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// Name for people; the host's name by default.
    pub name: String,
    /// The host's name.
    pub host: String,
    /// Labels of the node, for match expressions.
    pub labels: Labels,
    /// A checked match expression, which is true for tasks that the executor accepts; `None`: all tasks.
    pub accept: Option<String>,
    /// Resources for tasks.
    pub capacity: Resources,
    /// The executor's own folder, with its store and sandboxes. One executor at a time uses it.
    pub folder: PathBuf,
    /// Bounds on the store.
    pub limits: StoreLimits,
    /// Whether the executor is a node of the file system.
    pub has_files: bool,
    /// The policy that chooses the object that leaves a full store.
    pub eviction: EvictionPolicy,
    /// Limits from which a task is data-intensive, and whether others compute while it is staged.
    pub overlap: Overlap,
    /// Emulated storage and links, for experiments.
    pub emulation: Emulation,
    /// Folder through which executors on one machine share the emulation's state.
    pub emulation_folder: PathBuf,
    /// Access file of the I/O coordinator; without one, fetches do not wait for turns.
    pub io: Option<PathBuf>,
    /// The `eyas` program, which tasks can call by that name.
    pub eyas: PathBuf,
    /// Keep reconnecting to a lost dispatcher for this long.
    pub reconnect: Duration,
    /// Command that starts a [guardian](crate::guardian). The executor appends its own name and the folder with the
    /// sandboxes.
    pub guardian: Option<Vec<String>>,
}

impl ExecutorConfig {
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

/// The resources of this machine.
pub fn default_capacity() -> Resources {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory_kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    // Sandboxes may use what the temporary folder's file system has free now.
    let disk = statvfs(std::env::temp_dir()).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    Resources {
        cpus_milli: (processors * 1000) as u32,
        memory_bytes: memory_kib.map_or(u64::MAX, |kib| kib * 1024),
        disk_bytes: disk,
        named: Vec::new(),
    }
}
