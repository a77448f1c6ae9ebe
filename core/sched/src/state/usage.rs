//! Resources that assigned tasks hold on an executor, and the share of all processors that have a
//! task.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::Resources;

use super::shares::LoadPpm;

/// Share of the processors of all executors that have a task (data-diffusion §2.3: "processor
/// utilization").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilisation {
    /// Processors with a task, in thousandths.
    pub busy_milli: u64,
    /// All processors, in thousandths.
    pub total_milli: u64,
}

impl Utilisation {
    /// Whether the busy share is at least `threshold` (0 ..= 1). For example 29 of 32 processors
    /// are at least 0.9, and 28 are not.
    pub fn is_at_least(self, threshold: f64) -> bool {
        self.busy_milli as f64 >= threshold * self.total_milli as f64
    }
}

/// The sum of what assigned tasks hold; more than the capacity where tasks wait behind the slots.
#[derive(Clone, Default)]
pub(crate) struct ResourceUsage {
    pub cpus_milli: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    named: Vec<(String, u64)>,
}

impl ResourceUsage {
    pub fn add_all(&mut self, other: &ResourceUsage) {
        self.cpus_milli += other.cpus_milli;
        self.memory_bytes += other.memory_bytes;
        self.disk_bytes += other.disk_bytes;
        for (name, amount) in &other.named {
            self.add_named(name, *amount);
        }
    }

    fn add_named(&mut self, name: &str, amount: u64) {
        match self.named.iter_mut().find(|(n, _)| n == name) {
            Some((_, sum)) => *sum += amount,
            None => self.named.push((name.to_owned(), amount)),
        }
    }

    pub fn add(&mut self, resources: &Resources) {
        self.cpus_milli += u64::from(resources.cpus_milli);
        self.memory_bytes += resources.memory_bytes;
        self.disk_bytes += resources.disk_bytes;
        for (name, amount) in &resources.named {
            self.add_named(name, *amount);
        }
    }

    pub fn subtract(&mut self, resources: &Resources) {
        self.cpus_milli -= u64::from(resources.cpus_milli);
        self.memory_bytes -= resources.memory_bytes;
        self.disk_bytes -= resources.disk_bytes;
        for (name, amount) in &resources.named {
            if let Some((_, sum)) = self.named.iter_mut().find(|(n, _)| n == name) {
                *sum -= amount;
            }
        }
    }

    /// The load on an executor of that capacity: of the resource of which the largest part is in
    /// use. For example 2 of 4 processors and 12 of 16 GB are 750,000.
    pub fn load(&self, capacity: &Resources) -> LoadPpm {
        let named =
            self.named.iter().map(|(name, sum)| LoadPpm::of(*sum, capacity.amount_of(name)));
        let loads = [
            LoadPpm::of(self.cpus_milli, capacity.cpus_milli.into()),
            LoadPpm::of(self.memory_bytes, capacity.memory_bytes),
            LoadPpm::of(self.disk_bytes, capacity.disk_bytes),
        ];
        loads.into_iter().chain(named).max().unwrap_or(LoadPpm::NONE)
    }

    /// Whether there is more of a resource than the capacity, and `resources` is a part of that.
    /// For example, where tasks hold 20 of 16 GB and 2 of 4 processors, this holds for a task that
    /// needs memory, and not for one that needs only processors.
    pub fn exceeds_with(&self, resources: &Resources, capacity: &Resources) -> bool {
        let exceeds = |sum: u64, need: u64, capacity: u64| need > 0 && sum > capacity;
        exceeds(self.cpus_milli, resources.cpus_milli.into(), capacity.cpus_milli.into())
            || exceeds(self.memory_bytes, resources.memory_bytes, capacity.memory_bytes)
            || exceeds(self.disk_bytes, resources.disk_bytes, capacity.disk_bytes)
            || resources
                .named
                .iter()
                .any(|(name, need)| exceeds(self.sum_of(name), *need, capacity.amount_of(name)))
    }

    /// Whether there is more of any resource than the capacity.
    pub fn exceeds(&self, capacity: &Resources) -> bool {
        self.cpus_milli > capacity.cpus_milli.into()
            || self.memory_bytes > capacity.memory_bytes
            || self.disk_bytes > capacity.disk_bytes
            || self.named.iter().any(|(name, sum)| *sum > capacity.amount_of(name))
    }

    fn sum_of(&self, name: &str) -> u64 {
        self.named.iter().find(|(n, _)| n == name).map_or(0, |(_, sum)| *sum)
    }

    /// Whether `resources` more are within `stretch` times the capacity. A resource that is not
    /// asked for does not matter. For example, where tasks hold 20 of 16 GB and the stretch is 2, a
    /// task of 10 GB fits and one of 13 GB does not.
    pub fn fits_with(&self, resources: &Resources, capacity: &Resources, stretch: u64) -> bool {
        let fits = |sum: u64, need: u64, capacity: u64| {
            need == 0 || sum + need <= capacity.saturating_mul(stretch)
        };
        fits(self.cpus_milli, resources.cpus_milli.into(), capacity.cpus_milli.into())
            && fits(self.memory_bytes, resources.memory_bytes, capacity.memory_bytes)
            && fits(self.disk_bytes, resources.disk_bytes, capacity.disk_bytes)
            && resources
                .named
                .iter()
                .all(|(name, amount)| fits(self.sum_of(name), *amount, capacity.amount_of(name)))
    }
}
