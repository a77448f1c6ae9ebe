//! Another workload with a small change: only its first tasks, computing times that vary a little,
//! or compressed objects.

use std::ops::Deref;

use super::{ClientRequests, Derivation, KeepRule, Workload};
use crate::arrival::Arrival;
use crate::random::Random;

/// Largest relative change of a computing time. It is enough for the processors of a node to get
/// out of step within a few tasks.
const VARIES: f64 = 0.1;

/// Another workload with a change.
pub struct AdaptedWorkload<W> {
    workload: W,
    change: Change,
}

/// What is changed.
enum Change {
    /// The workload ends after this number of tasks.
    FirstTasks(u64),
    /// Computing times vary, by a seed.
    Uneven(u64),
    /// This is made of each object.
    Derived(Derivation),
}

impl<W: Deref<Target: Workload>> AdaptedWorkload<W> {
    /// The first `most` tasks of a workload.
    pub fn first_tasks(workload: W, most: u64) -> Self {
        AdaptedWorkload { workload, change: Change::FirstTasks(most) }
    }

    /// A workload whose computing times vary by up to 10 %, by a seed.
    pub fn uneven(workload: W, seed: u64) -> Self {
        AdaptedWorkload { workload, change: Change::Uneven(seed) }
    }

    /// A workload whose objects are compressed: tasks read what is made of them.
    pub fn derived(workload: W, derivation: Derivation) -> Self {
        AdaptedWorkload { workload, change: Change::Derived(derivation) }
    }
}

impl<W: Deref<Target: Workload>> Workload for AdaptedWorkload<W> {
    fn objects(&self) -> u32 {
        self.workload.objects()
    }

    fn keep(&self, object: u32) -> Option<KeepRule> {
        self.workload.keep(object)
    }

    fn requests(&self) -> ClientRequests {
        self.workload.requests()
    }

    fn derivation(&self) -> Option<Derivation> {
        match self.change {
            Change::Derived(derivation) => Some(derivation),
            Change::FirstTasks(_) | Change::Uneven(_) => self.workload.derivation(),
        }
    }

    fn object_bytes(&self) -> u64 {
        self.workload.object_bytes()
    }

    fn size_bytes(&self, object: u32) -> u64 {
        self.workload.size_bytes(object)
    }

    fn tasks(&self) -> u64 {
        match self.change {
            Change::FirstTasks(most) => self.workload.tasks().min(most),
            Change::Uneven(_) | Change::Derived(_) => self.workload.tasks(),
        }
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let arrivals = self.workload.arrivals();
        match self.change {
            Change::FirstTasks(most) => {
                Box::new(arrivals.take(usize::try_from(most).unwrap_or(usize::MAX)))
            }
            Change::Derived(_) => arrivals,
            Change::Uneven(seed) => {
                let mut dice = Random::new(seed);
                Box::new(arrivals.map(move |task| {
                    let factor = 1.0 + VARIES * (2.0 * dice.share() - 1.0);
                    Arrival { compute_us: (task.compute_us as f64 * factor).round() as u64, ..task }
                }))
            }
        }
    }

    fn data_bytes(&self) -> u64 {
        self.workload.data_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{AllPairs, Order};

    #[test]
    fn times_vary_around_the_original_ones_and_nothing_else_changes() {
        let pairs = AllPairs { side: 100, ..AllPairs::cluster(Order::Rows) };
        let times = |seed| {
            let uneven = AdaptedWorkload::uneven(&pairs, seed);
            assert!(
                uneven
                    .arrivals()
                    .zip(pairs.arrivals())
                    .all(|(one, other)| one.inputs == other.inputs)
            );
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
