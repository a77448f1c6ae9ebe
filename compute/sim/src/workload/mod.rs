//! Workloads: objects, and tasks that read them over time (data-diffusion §5 and §6.3, and two
//! classics).
//!
//! The parameters and the seed determine a workload exactly, on any machine. Functions that differ
//! between standard libraries are taken from `libm`.

mod adapted;
mod all_pairs;
mod monotonically_increasing;
mod scan;
mod sine_wave;
mod stacking;
mod staged;
mod zipf;

pub use adapted::AdaptedWorkload;
pub use all_pairs::{AllPairs, Order};
pub use monotonically_increasing::MonotonicallyIncreasing;
pub use scan::Scan;
pub use sine_wave::SineWave;
pub use stacking::{LOCALITIES, Locality, Stacking};
pub use staged::StagedWorkload;
pub use zipf::Zipf;

use std::ops::Range;

use smallvec::smallvec;

use crate::arrival::Arrival;
use crate::random::Random;

/// How an output is kept in the executors' stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeepRule {
    /// Number of executors that keep a replica.
    pub replicas: u8,
    /// Whether they keep it only until all tasks that read it have succeeded.
    pub until_read: bool,
}

/// What a node makes of an object before tasks compute on it, such as the content of a compressed
/// file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// Size of what is made.
    pub size_bytes: u64,
    /// Time of a processor that making it takes, in microseconds.
    pub takes_us: u64,
    /// Whether a node makes it once and keeps it, and others may fetch it from there. If not, each
    /// task makes its own.
    pub is_kept: bool,
}

/// Requests of the client in addition to the submission: retries and cancels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRequests {
    /// Number of retries of a failed task.
    pub retries: u32,
    /// Time of each cancel, in microseconds from the start of the run, and the numbers of the
    /// cancelled tasks.
    pub cancels: Vec<(u64, Range<u32>)>,
    /// Number of times that the client retries the failed and cancelled tasks of an ended job.
    pub job_retries: u32,
}

/// A workload that several threads may share.
pub type SharedWorkload = Box<dyn Workload + Send + Sync>;

impl<W: Workload + ?Sized> Workload for Box<W> {
    fn objects(&self) -> u32 {
        (**self).objects()
    }

    fn keep(&self, object: u32) -> Option<KeepRule> {
        (**self).keep(object)
    }

    fn requests(&self) -> ClientRequests {
        (**self).requests()
    }

    fn derivation(&self) -> Option<Derivation> {
        (**self).derivation()
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

/// A workload. Objects that exist from the start have the numbers `0 .. objects()`; outputs of
/// tasks have higher numbers.
pub trait Workload {
    /// Number of objects that exist from the start.
    fn objects(&self) -> u32;

    /// How an output is kept in the cluster; `None` if it is written to persistent storage.
    fn keep(&self, _object: u32) -> Option<KeepRule> {
        None
    }

    /// Requests of the client in addition to the submission.
    fn requests(&self) -> ClientRequests {
        ClientRequests::default()
    }

    /// What is made of each object that exists from the start, if tasks do not compute on the
    /// object itself.
    fn derivation(&self) -> Option<Derivation> {
        None
    }

    /// Size of an object in bytes; the average if sizes differ.
    fn object_bytes(&self) -> u64;

    /// Size of this object in bytes.
    fn size_bytes(&self, _object: u32) -> u64 {
        self.object_bytes()
    }

    /// Number of tasks.
    fn tasks(&self) -> u64;

    /// The tasks, in order of arrival.
    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_>;

    /// Bytes of all objects that exist from the start.
    fn data_bytes(&self) -> u64 {
        u64::from(self.objects()) * self.object_bytes()
    }
}

/// Arrival times of `count` tasks that are spread evenly over a period.
fn spread(from_us: u64, duration_us: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |task| from_us + task * duration_us / count)
}

/// One task at each of the times. Each task reads one file; all files are equally likely.
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

    /// Bytes that all tasks read together.
    fn read_bytes(workload: &dyn Workload) -> u64 {
        workload.arrivals().map(|task| task.inputs.len() as u64 * workload.object_bytes()).sum()
    }

    #[test]
    fn workloads_have_the_tasks_and_objects_that_they_state() {
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
            assert!(
                again.take(10_000).all(|(one, other)| one == other),
                "the same seed has other tasks"
            );
        }
        assert_eq!(MonotonicallyIncreasing::paper(1).data_bytes(), 100_000_000_000);
        assert_eq!(SineWave::paper(1).data_bytes(), 1_000_000_000_000);
        assert_eq!(AllPairs::cluster(Order::Rows).data_bytes(), 12_000_000_000);
        assert_eq!(read_bytes(&AllPairs::cluster(Order::Random(5))), 6_000_000_000_000);
    }
}
