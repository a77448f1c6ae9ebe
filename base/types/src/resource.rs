//! Resources: of a task, the amounts that it holds while it runs; of a node, the amounts that it
//! has.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::units::format_bytes;

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

    /// The amounts of what `asked` asks for, in words: `2 processors and no gpu`.
    pub fn in_words(&self, asked: &Resources) -> String {
        let size = |have: u64, asked: u64, of: &str| {
            (asked > 0).then(|| format!("{} of {of}", format_bytes(have)))
        };
        let cpus = f64::from(self.cpus_milli) / 1000.0;
        let cpus = format!("{cpus} processor{}", if self.cpus_milli == 1000 { "" } else { "s" });
        let mut parts: Vec<_> = (asked.cpus_milli > 0).then_some(cpus).into_iter().collect();
        parts.extend(size(self.memory_bytes, asked.memory_bytes, "memory"));
        parts.extend(size(self.disk_bytes, asked.disk_bytes, "disk"));
        let named = asked.named.iter().filter(|(_, asked)| *asked > 0);
        parts.extend(named.map(|(name, _)| match self.amount_of(name) {
            0 => format!("no {name}"),
            amount => format!("{amount} {name}"),
        }));
        match &parts[..] {
            [] => "nothing".into(),
            [only] => only.clone(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        }
    }

    /// How many kinds of resources are less than `need` asks for.
    pub fn lacks(&self, need: &Resources) -> usize {
        let named = need.named.iter().filter(|(name, amount)| self.amount_of(name) < *amount);
        usize::from(self.cpus_milli < need.cpus_milli)
            + usize::from(self.memory_bytes < need.memory_bytes)
            + usize::from(self.disk_bytes < need.disk_bytes)
            + named.count()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_said_as_far_as_they_are_asked_for() {
        let named = |name: &str, amount| alloc::vec![(name.into(), amount)];
        let node = Resources {
            cpus_milli: 1000,
            memory_bytes: 4_000_000_000,
            disk_bytes: 5,
            named: named("tape", 3),
        };
        let need = Resources { cpus_milli: 64_000, named: named(GPU, 1), ..Resources::default() };
        assert_eq!(need.in_words(&need), "64 processors and 1 gpu");
        assert_eq!(
            (node.in_words(&need).as_str(), node.lacks(&need)),
            ("1 processor and no gpu", 2)
        );
        let need = Resources {
            cpus_milli: 500,
            memory_bytes: 5_000_000_000,
            disk_bytes: 0,
            named: named("tape", 2),
        };
        assert_eq!(need.in_words(&need), "0.5 processors, 5.0 GB of memory and 2 tape");
        assert_eq!(node.in_words(&need), "1 processor, 4.0 GB of memory and 3 tape");
        assert_eq!((node.lacks(&need), need.lacks(&need)), (1, 0));
        let none = Resources { cpus_milli: 0, ..Resources::default() };
        assert_eq!(node.in_words(&none), "nothing");
    }
}
