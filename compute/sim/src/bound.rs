//! What a workload needs under any placement, and a lower bound of its run time.

use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::SimCluster;
use crate::workload::Workload;

/// See the [module's](self) documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Room that the task with the most data needs in a store: its inputs, and its outputs that
    /// are kept on its node.
    pub inputs_bytes: u64,
    /// Computing time of all tasks, in microseconds.
    pub computing_us: u128,
    /// Computing time of the longest task, in microseconds.
    pub longest_us: u64,
    /// Time at which the last task arrives, in microseconds.
    pub last_us: u64,
    /// Bytes of all objects that exist from the start and that a task reads.
    pub read_bytes: u64,
    /// Whether an output is kept in the cluster.
    pub keeps: bool,
    /// Whether a task reads an output of another task.
    pub is_staged: bool,
}

impl Needs {
    /// The needs of a workload. Goes through all its tasks.
    pub fn of(workload: &dyn Workload) -> Needs {
        let mut needs = Needs::default();
        let mut is_read = vec![false; workload.objects() as usize];
        for task in workload.arrivals() {
            let mut inputs_bytes = 0;
            for object in task.inputs {
                let size_bytes = workload.size_bytes(object);
                inputs_bytes += size_bytes;
                // Outputs of tasks need not come from persistent storage.
                match is_read.get_mut(object as usize) {
                    Some(is_read @ false) => {
                        *is_read = true;
                        needs.read_bytes += size_bytes;
                    }
                    Some(true) => {}
                    None => needs.is_staged = true,
                }
            }
            for object in task.outputs.iter().filter(|object| workload.keep(**object).is_some()) {
                inputs_bytes += workload.size_bytes(*object);
                needs.keeps = true;
            }
            needs.inputs_bytes = needs.inputs_bytes.max(inputs_bytes);
            needs.computing_us += u128::from(task.compute_us);
            needs.longest_us = needs.longest_us.max(task.compute_us);
            needs.last_us = needs.last_us.max(task.at_us);
        }
        needs
    }

    /// Work that no placement can avoid, with the least time that it takes on the cluster:
    /// computing on all processors, the arrival of the last task, and reading each object once from
    /// persistent storage.
    pub fn least(&self, cluster: &SimCluster) -> [(&'static str, Ns); 3] {
        let computing_ns =
            self.computing_us * u128::from(MICROSECOND) / u128::from(cluster.processors());
        let reading_ns = self.read_bytes as f64 / cluster.storage.bytes_per_s * SECOND as f64;
        [
            ("computing", computing_ns.try_into().unwrap_or(Ns::MAX)),
            ("the arrival of all tasks", self.last_us * MICROSECOND),
            ("reading each object once", reading_ns as Ns),
        ]
    }

    /// Lower bound of the run time.
    pub fn bound_ns(&self, cluster: &SimCluster) -> Ns {
        self.least(cluster).map(|(_, ns)| ns).into_iter().max().expect("there are three")
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::PlacementPolicy;

    use super::*;
    use crate::cluster::Policies;
    use crate::workload::{AllPairs, Order, Scan};

    #[test]
    fn whatever_takes_longest_is_the_bound() {
        let cluster = SimCluster { nodes: 10, ..SimCluster::teragrid_64(1_000_000_000) };
        let pairs = AllPairs {
            side: 100,
            object_bytes: 5_500_000,
            compute_us: 1_000_000,
            order: Order::Rows,
        };
        let needs = Needs::of(&pairs);
        let expected = Needs {
            inputs_bytes: 11_000_000,
            computing_us: 10_000_000_000,
            longest_us: 1_000_000,
            last_us: 0,
            read_bytes: 1_100_000_000,
            ..Needs::default()
        };
        assert_eq!(needs, expected);
        assert_eq!(needs.least(&cluster).map(|(_, ns)| ns / SECOND), [500, 0, 2]);
        assert_eq!(needs.bound_ns(&cluster), 500 * SECOND);
        let scan =
            Needs::of(&Scan { objects: 10, rounds: 3, interval_us: 1_000_000, ..Scan::default() });
        assert_eq!(scan.bound_ns(&cluster), 29 * SECOND);
    }

    #[test]
    fn no_run_is_below_its_bound() {
        let cluster = SimCluster { nodes: 4, ..SimCluster::teragrid_64(200_000_000) };
        let pairs =
            AllPairs { side: 30, object_bytes: 5_000_000, compute_us: 10_000, order: Order::Rows };
        let bound_ns = Needs::of(&pairs).bound_ns(&cluster);
        for placement in PlacementPolicy::ALL {
            let outcome = crate::run(&cluster, &Policies::of_eyas(*placement), &pairs, 1);
            assert!(outcome.makespan_ns >= bound_ns, "{placement}");
        }
    }
}
