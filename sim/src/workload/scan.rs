//! Scan: all objects, one after the other, again and again. What does not fit into the stores is the worst that can
//! happen to LRU: what is read next is what has just left.

use smallvec::smallvec;

use super::Workload;
use crate::arrival::Arrival;

/// Each task reads one object; they come at a constant rate.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Objects.
    pub objects: u32,
    /// Bytes of each.
    pub object_bytes: u64,
    /// How often each is read.
    pub rounds: u32,
    /// From one task to the next, microseconds; 0: all are there from the beginning.
    pub interval_us: u64,
    /// How long a task computes, microseconds.
    pub compute_us: u64,
}

impl Default for Scan {
    /// As much data and computing as [MI](super::MonotonicallyIncreasing), at 500 tasks a second.
    fn default() -> Self {
        Scan { objects: 10_000, object_bytes: 10_000_000, rounds: 25, interval_us: 2_000, compute_us: 10_000 }
    }
}

impl Workload for Scan {
    fn objects(&self) -> u32 {
        self.objects
    }

    fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    fn tasks(&self) -> u64 {
        u64::from(self.objects) * u64::from(self.rounds)
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        Box::new((0..self.tasks()).map(|task| Arrival {
            at_us: task * self.interval_us,
            inputs: smallvec![(task % u64::from(self.objects)) as u32],
            compute_us: self.compute_us,
            ..Arrival::default()
        }))
    }
}
