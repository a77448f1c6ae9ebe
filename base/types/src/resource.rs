//! Resources: of a task, the amounts that it holds while it runs; of a node, the amounts that it
//! has.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Name of the resource whose units are handed out to tasks one by one: GPUs.
pub const GPU: &str = "gpu";

/// An amount of each resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpus_milli: u32,
    /// Main memory. A task with 0 does not reserve memory.
    pub memory_bytes: u64,
    /// Disk space for the sandbox and outputs, in addition to the store. A task with 0 does not
    /// reserve disk space.
    pub disk_bytes: u64,
    /// Other countable resources, such as `gpu` or `licence`; sorted by name, each name once.
    pub named: Vec<(String, u64)>,
}

impl Default for Resources {
    /// One processor and nothing else.
    fn default() -> Self {
        Resources { cpus_milli: 1000, memory_bytes: 0, disk_bytes: 0, named: Vec::new() }
    }
}

impl Resources {
    /// Amount of a named resource; 0 if it is not listed.
    pub fn amount_of(&self, name: &str) -> u64 {
        self.named.iter().find(|(n, _)| n == name).map_or(0, |(_, amount)| *amount)
    }

    /// Whether each amount is at least that of `need`.
    pub fn covers(&self, need: &Resources) -> bool {
        self.cpus_milli >= need.cpus_milli
            && self.memory_bytes >= need.memory_bytes
            && self.disk_bytes >= need.disk_bytes
            && need.named.iter().all(|(name, amount)| self.amount_of(name) >= *amount)
    }

    /// Subtracts `need`.
    ///
    /// # Panics
    /// If `need` is not [covered](Self::covers).
    pub fn take(&mut self, need: &Resources) {
        assert!(self.covers(need), "{need:?} taken from {self:?}");
        self.cpus_milli -= need.cpus_milli;
        self.memory_bytes -= need.memory_bytes;
        self.disk_bytes -= need.disk_bytes;
        for (name, amount) in &mut self.named {
            *amount -= need.amount_of(name);
        }
    }

    /// Adds `need`, which was [taken](Self::take) before.
    pub fn release(&mut self, need: &Resources) {
        self.cpus_milli += need.cpus_milli;
        self.memory_bytes += need.memory_bytes;
        self.disk_bytes += need.disk_bytes;
        for (name, amount) in &mut self.named {
            *amount += need.amount_of(name);
        }
    }

    /// Number of tasks with this `need` that fit at the same time: the number of slots for such
    /// tasks.
    pub fn fits(&self, need: &Resources) -> u32 {
        let times = |have: u64, want: u64| have.checked_div(want).unwrap_or(u64::MAX);
        let mut fits = times(self.cpus_milli.into(), need.cpus_milli.into())
            .min(times(self.memory_bytes, need.memory_bytes))
            .min(times(self.disk_bytes, need.disk_bytes));
        for (name, amount) in &need.named {
            fits = fits.min(times(self.amount_of(name), *amount));
        }
        fits.min(u64::from(u32::MAX)) as u32
    }
}
