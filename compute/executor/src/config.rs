//! Settings of an executor, and their defaults.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use eyas_dfs::LoadOptions;
use eyas_node::{Core, Overlap, StoreLimits};
use eyas_session::PortRange;
use eyas_session::private::temporary_folder;
use eyas_store::Emulation;
use eyas_types::matching::Labels;
use eyas_types::{EvictionPolicy, Resources};
use eyas_wire::pool::NodeOrigin;
use rustix::fs::statvfs;

use crate::resources::gpus::Gpus;
use crate::resources::limit_mode::LimitOptions;

/// Number of concurrent fetches per processor.
const FETCHES_PER_PROCESSOR: usize = 2;
/// Number of concurrent fetches of an executor with fewer than two processors.
const MIN_FETCHES: usize = 4;

/// The request of a pool for which this node was started.
#[derive(Clone, Debug)]
pub struct PoolNode {
    /// Name of the pool.
    pub pool: String,
    /// Number of the request in its pool.
    pub request: u64,
    /// When the batch system ends the node.
    pub until: Option<Instant>,
}

impl PoolNode {
    /// The origin as the dispatcher is told it now.
    pub(crate) fn announced(&self) -> NodeOrigin {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left_us = left.map(|left| left.as_micros() as u64);
        NodeOrigin { pool: self.pool.clone(), request: self.request, left_us }
    }
}

/// Settings of an executor.
#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// Name for people; the host's name by default.
    pub name: String,
    /// The host's name.
    pub host: String,
    /// Labels of the node, for match expressions.
    pub labels: Labels,
    /// A checked match expression, which is true for tasks that the executor accepts; `None`: all
    /// tasks.
    pub accept: Option<String>,
    /// Resources for tasks.
    pub capacity: Resources,
    /// The GPUs that tasks get; their number is the resource `gpu`.
    pub gpus: Gpus,
    /// Cores to which tasks are pinned; none if they are not.
    pub cores: Vec<Core>,
    /// How the memory and processors of tasks are limited.
    pub task_limits: LimitOptions,
    /// The executor's own folder, with its store and sandboxes. One executor at a time uses it.
    pub folder: PathBuf,
    /// The request for which the node was started, if it is a node of a pool.
    pub origin: Option<PoolNode>,
    /// Bounds on the store.
    pub limits: StoreLimits,
    /// The address at which other executors reach this one; by default, the one from which it
    /// reached the dispatcher.
    pub address: Option<IpAddr>,
    /// The ports on which it listens; by default, any free ones.
    pub ports: Option<PortRange>,
    /// Whether the executor is a node of the file system.
    pub has_files: bool,
    /// Maximum size of the node's audit log; 0 for no log.
    pub audit_bytes: u64,
    /// Maximum size of the chunks that clients may keep in the node's memory.
    pub files_memory_bytes: u64,
    /// How the node of the file system measures its load.
    pub load: LoadOptions,
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
    /// The job class of fetches at the coordinator.
    pub io_class: String,
    /// The `eyas` program, which tasks can call by that name.
    pub eyas: PathBuf,
    /// Keep reconnecting to a lost dispatcher for this long.
    pub reconnect: Duration,
    /// Command that starts a [guardian](crate::guardian). The executor appends its own name and
    /// the folder with the sandboxes.
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
    let disk = statvfs(temporary_folder()).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    Resources {
        cpus_milli: (processors * 1000) as u32,
        memory_bytes: memory_kib.map_or(u64::MAX, |kib| kib * 1024),
        disk_bytes: disk,
        named: Vec::new(),
    }
}
