//! Workloads: objects, and tasks that read them as time goes on (data-diffusion §5 and §6.3, and two classics).
//!
//! A workload is what its parameters and its seed say, to the last bit, on any machine: functions that differ from one
//! standard library to the next are those of `libm`.

mod all_pairs;
mod first;
mod monotonically_increasing;
mod scan;
mod sine_wave;
mod stacking;
mod staged;
mod uneven;
mod zipf;

pub use all_pairs::{AllPairs, Order};
pub use first::First;
pub use monotonically_increasing::MonotonicallyIncreasing;
pub use scan::Scan;
pub use sine_wave::SineWave;
pub use stacking::{LOCALITIES, Locality, Stacking};
pub use staged::Staged;
pub use uneven::Uneven;
pub use zipf::Zipf;

use std::ops::Range;

use smallvec::smallvec;

use crate::arrival::Arrival;
use crate::random::Random;

/// How an output is kept in executors' stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeepRule {
    /// How many executors keep a replica.
    pub replicas: u8,
    /// They keep it only until all tasks that read it have succeeded.
    pub until_read: bool,
}

/// What else a client asks for: retries of tasks, and requests while the job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// How often a task that fails is tried again.
    pub retries: u32,
    /// When the client cancels tasks, microseconds from the beginning, and which tasks, by their numbers.
    pub cancels: Vec<(u64, Range<u32>)>,
    /// How often the client has the failed and cancelled tasks of the ended job run again.
    pub job_retries: u32,
}

/// A workload that many runs may share.
pub type SharedWorkload = Box<dyn Workload + Send + Sync>;

impl<W: Workload + ?Sized> Workload for Box<W> {
    fn objects(&self) -> u32 {
        (**self).objects()
    }

    fn keep(&self, object: u32) -> Option<KeepRule> {
        (**self).keep(object)
    }

    fn requests(&self) -> Requests {
        (**self).requests()
    }

    fn object_bytes(&self) -> u64 {
        (**self).object_bytes()
    }

    fn size_bytes(&self, object: u32) -> u64 {
        (**self).size_bytes(object)
    }

    fn tasks(&self) -> u64 {
        (**self).tasks()
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        (**self).arrivals()
    }

    fn data_bytes(&self) -> u64 {
        (**self).data_bytes()
    }
}

/// One workload. The objects that exist from the beginning have the numbers `0 .. objects()`; what tasks write follows.
pub trait Workload {
    /// How many objects exist from the beginning.
    fn objects(&self) -> u32;

    /// How an object that a task writes is kept in the cluster; `None` if it is written to persistent storage.
    fn keep(&self, _object: u32) -> Option<KeepRule> {
        None
    }

    /// What else a client asks for.
    fn requests(&self) -> Requests {
        Requests::default()
    }

    /// Bytes of each; on average, if they are not of one size.
    fn object_bytes(&self) -> u64;

    /// Bytes of one of them.
    fn size_bytes(&self, _object: u32) -> u64 {
        self.object_bytes()
    }

    /// How many tasks there are.
    fn tasks(&self) -> u64;

    /// The tasks, in the order in which they come.
    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_>;

    /// Bytes of all objects.
    fn data_bytes(&self) -> u64 {
        u64::from(self.objects()) * self.object_bytes()
    }
}

/// When each of `count` tasks comes that are spread evenly over the time from `from_us` on.
fn spread(from_us: u64, duration_us: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |task| from_us + task * duration_us / count)
}

/// A task at each of the times, each of which reads one of the files, all equally likely.
fn of_any_file(
    times: impl Iterator<Item = u64>,
    files: u32,
    compute_us: u64,
    seed: u64,
) -> impl Iterator<Item = Arrival> {
    let mut dice = Random::new(seed);
    times.map(move |at_us| {
        let inputs = smallvec![dice.below(files.into()) as u32];
        Arrival { at_us, inputs, compute_us, ..Arrival::default() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that all tasks together read.
    fn read_bytes(workload: &dyn Workload) -> u64 {
        workload.arrivals().map(|task| task.inputs.len() as u64 * workload.object_bytes()).sum()
    }

    #[test]
    fn all_keep_their_word() {
        let stacking = Stacking { locality: LOCALITIES[8], seed: 3, ..Stacking::paper(1) };
        let workloads: [(&dyn Workload, u64); 8] = [
            (&MonotonicallyIncreasing::paper(1), 250_000),
            (&SineWave::paper(1), 2_000_000),
            (&AllPairs::cluster(Order::Rows), 250_000),
            (&AllPairs::cluster(Order::Random(5)), 250_000),
            (&AllPairs::cluster(Order::Tiles(32)), 250_000),
            (&stacking, 23_695),
            (&Zipf { objects: 1_000, tasks: 10_000, ..Zipf::default() }, 10_000),
            (&Scan { objects: 100, rounds: 3, ..Scan::default() }, 300),
        ];
        for (workload, tasks) in workloads {
            assert_eq!(workload.tasks(), tasks);
            assert_eq!(workload.arrivals().count() as u64, tasks);
            let mut before_us = 0;
            for (number, task) in workload.arrivals().enumerate() {
                assert!(task.at_us >= before_us, "task {number} comes before an earlier one");
                before_us = task.at_us;
                assert!(task.inputs.iter().all(|object| *object < workload.objects()));
            }
            let again = workload.arrivals().zip(workload.arrivals());
            assert!(again.take(10_000).all(|(one, other)| one == other), "the same seed has other tasks");
        }
        assert_eq!(MonotonicallyIncreasing::paper(1).data_bytes(), 100_000_000_000);
        assert_eq!(SineWave::paper(1).data_bytes(), 1_000_000_000_000);
        assert_eq!(AllPairs::cluster(Order::Rows).data_bytes(), 12_000_000_000);
        assert_eq!(read_bytes(&AllPairs::cluster(Order::Random(5))), 6_000_000_000_000);
    }
}
