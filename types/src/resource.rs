//! What a task takes from a node while it runs, and what a node has.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An amount of each resource. For a task: what it holds while it runs. For a node: what there is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    /// Thousandths of a processor.
    pub cpus_milli: u32,
    /// Main memory; 0 asks for none in particular.
    pub memory_bytes: u64,
    /// Disk for the sandbox and outputs, beyond the store; 0 asks for none in particular.
    pub disk_bytes: u64,
    /// Anything else that is counted, by name: `gpu`, `licence`. Sorted by name, each once.
    pub named: Vec<(String, u64)>,
}

impl Default for Resources {
    /// One processor and nothing else.
    fn default() -> Self {
        Resources { cpus_milli: 1000, memory_bytes: 0, disk_bytes: 0, named: Vec::new() }
    }
}

impl Resources {
    /// How much of `name` there is; 0 where it is not listed.
    pub fn amount_of(&self, name: &str) -> u64 {
        self.named.iter().find(|(n, _)| n == name).map_or(0, |(_, amount)| *amount)
    }

    /// Whether `need` could be taken from `self`.
    pub fn covers(&self, need: &Resources) -> bool {
        self.cpus_milli >= need.cpus_milli
            && self.memory_bytes >= need.memory_bytes
            && self.disk_bytes >= need.disk_bytes
            && need.named.iter().all(|(name, amount)| self.amount_of(name) >= *amount)
    }

    /// Takes `need` from `self`. The caller has asked [`covers`](Self::covers).
    ///
    /// # Panics
    /// If `need` is not covered.
    pub fn take(&mut self, need: &Resources) {
        assert!(self.covers(need), "{need:?} taken from {self:?}");
        self.cpus_milli -= need.cpus_milli;
        self.memory_bytes -= need.memory_bytes;
        self.disk_bytes -= need.disk_bytes;
        for (name, amount) in &mut self.named {
            *amount -= need.amount_of(name);
        }
    }

    /// Gives back what was [taken](Self::take).
    pub fn give_back(&mut self, need: &Resources) {
        self.cpus_milli += need.cpus_milli;
        self.memory_bytes += need.memory_bytes;
        self.disk_bytes += need.disk_bytes;
        for (name, amount) in &mut self.named {
            *amount += need.amount_of(name);
        }
    }

    /// How many tasks of `need` fit at once; the number of slots for such tasks.
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
