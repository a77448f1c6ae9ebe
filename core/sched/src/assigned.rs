//! What tasks that were given to an executor hold of it together.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::Resources;

use crate::executors::part;

/// What assigned tasks hold; more than the capacity where tasks are lined up.
#[derive(Default)]
pub(crate) struct Assigned {
    pub cpus_milli: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    named: Vec<(String, u64)>,
}

impl Assigned {
    pub fn add_all(&mut self, other: &Assigned) {
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

    pub fn add(&mut self, need: &Resources) {
        self.cpus_milli += u64::from(need.cpus_milli);
        self.memory_bytes += need.memory_bytes;
        self.disk_bytes += need.disk_bytes;
        for (name, amount) in &need.named {
            self.add_named(name, *amount);
        }
    }

    pub fn subtract(&mut self, need: &Resources) {
        self.cpus_milli -= u64::from(need.cpus_milli);
        self.memory_bytes -= need.memory_bytes;
        self.disk_bytes -= need.disk_bytes;
        for (name, amount) in &need.named {
            if let Some((_, sum)) = self.named.iter_mut().find(|(n, _)| n == name) {
                *sum -= amount;
            }
        }
    }

    /// What part of the capacity that is, millionths: of whatever it is the largest part of.
    pub fn share_of(&self, capacity: &Resources) -> u64 {
        let named = self.named.iter().map(|(name, sum)| part(*sum, capacity.amount_of(name)));
        let parts = [
            part(self.cpus_milli, capacity.cpus_milli.into()),
            part(self.memory_bytes, capacity.memory_bytes),
            part(self.disk_bytes, capacity.disk_bytes),
        ];
        parts.into_iter().chain(named).max().unwrap_or(0)
    }

    /// Whether so much more is within `stretch` times what there is. What is not asked for does not matter.
    pub fn fits_with(&self, need: &Resources, capacity: &Resources, stretch: u64) -> bool {
        let fits = |sum: u64, need: u64, capacity: u64| need == 0 || sum + need <= capacity.saturating_mul(stretch);
        let sum_of = |name: &str| self.named.iter().find(|(n, _)| n == name).map_or(0, |(_, sum)| *sum);
        fits(self.cpus_milli, need.cpus_milli.into(), capacity.cpus_milli.into())
            && fits(self.memory_bytes, need.memory_bytes, capacity.memory_bytes)
            && fits(self.disk_bytes, need.disk_bytes, capacity.disk_bytes)
            && need.named.iter().all(|(name, amount)| fits(sum_of(name), *amount, capacity.amount_of(name)))
    }
}
