//! What a cluster is asked to do: tasks, one after the other, and the objects they read.

use smallvec::SmallVec;

use crate::clock::Ns;
use crate::random::Random;

/// One task of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it comes; no earlier than the one before.
    pub at_ns: Ns,
    /// The objects that it reads, by their places among [`Workload::object_bytes`]; each once.
    pub inputs: SmallVec<[u32; 4]>,
    /// How long it computes once it has read them.
    pub compute_us: u64,
}

/// Objects, and tasks that read them.
pub struct Workload {
    /// The size of each object.
    pub object_bytes: Box<[u64]>,
    /// In order of time.
    pub arrivals: Box<dyn Iterator<Item = Arrival>>,
}

impl Workload {
    /// Tasks that come at a steady rate and read one object each, any of them.
    pub fn steady(tasks: u64, per_second: f64, objects: u32, object_bytes: u64, compute_us: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let arrivals = (0..tasks).map(move |number| Arrival {
            at_ns: crate::clock::from_seconds(number as f64 / per_second),
            inputs: SmallVec::from_slice(&[random.below(objects.into()) as u32]),
            compute_us,
        });
        Workload { object_bytes: vec![object_bytes; objects as usize].into(), arrivals: Box::new(arrivals) }
    }
}
