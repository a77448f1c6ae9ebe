//! Scan: all objects in turn, repeatedly. When they do not fit in the stores, this is the worst
//! case of LRU: the next object is always the one that was just evicted.

use smallvec::smallvec;

use super::Workload;
use crate::arrival::Arrival;

/// Each task reads one object. Tasks arrive at a constant rate.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Number of objects.
    pub objects: u32,
    /// Size of each object in bytes.
    pub object_bytes: u64,
    /// Number of times that each object is read.
    pub rounds: u32,
    /// Time between two arrivals, in microseconds. 0: all tasks arrive at the start.
    pub interval_us: u64,
    /// Computing time of a task, in microseconds.
    pub compute_us: u64,
}

impl Default for Scan {
    /// The data and computing time of [MI](super::MonotonicallyIncreasing), at 500 tasks per
    /// second.
    fn default() -> Self {
        Scan {
            objects: 10_000,
            object_bytes: 10_000_000,
            rounds: 25,
            interval_us: 2_000,
            compute_us: 10_000,
        }
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
