//! Another workload whose tasks compute for times that vary a little.

use super::Workload;
use crate::arrival::Arrival;
use crate::random::Random;

/// By this share more or less, at most. It is enough for the processors of a node to leave the same step within a few tasks.
const VARIES: f64 = 0.1;

/// Another workload whose tasks do not all compute for the same time.
pub struct Uneven<'a> {
    /// The other.
    pub workload: &'a dyn Workload,
    /// By which times vary.
    pub seed: u64,
}

impl Workload for Uneven<'_> {
    fn objects(&self) -> u32 {
        self.workload.objects()
    }

    fn object_bytes(&self) -> u64 {
        self.workload.object_bytes()
    }

    fn size_bytes(&self, object: u32) -> u64 {
        self.workload.size_bytes(object)
    }

    fn tasks(&self) -> u64 {
        self.workload.tasks()
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let mut dice = Random::new(self.seed);
        Box::new(self.workload.arrivals().map(move |task| {
            let factor = 1.0 + VARIES * (2.0 * dice.share() - 1.0);
            Arrival { compute_us: (task.compute_us as f64 * factor).round() as u64, ..task }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{AllPairs, Order};

    #[test]
    fn times_vary_around_what_they_were_and_nothing_else_does() {
        let pairs = AllPairs { side: 100, ..AllPairs::cluster(Order::Rows) };
        let times = |seed| {
            let uneven = Uneven { workload: &pairs, seed };
            assert!(uneven.arrivals().zip(pairs.arrivals()).all(|(one, other)| one.inputs == other.inputs));
            uneven.arrivals().map(|task| task.compute_us).collect::<Vec<_>>()
        };
        let (one, other) = (times(1), times(2));
        assert_ne!(one, other);
        assert_eq!(one, times(1));
        assert!(one.iter().all(|us| (900_000..=1_100_000).contains(us)));
        let mean = one.iter().sum::<u64>() as f64 / one.len() as f64;
        assert!((0.995e6..1.005e6).contains(&mean), "{mean}");
    }
}
