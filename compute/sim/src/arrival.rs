//! A task that is submitted to a simulated cluster.

use smallvec::SmallVec;

/// Objects that a task reads or writes, by their numbers in the
/// [workload](crate::workload::Workload). Most tasks read one or two.
pub type Objects = SmallVec<[u32; 2]>;

/// A task, and the time at which it arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival, in microseconds from the start of the run.
    pub at_us: u64,
    /// Objects that the task reads. A task that reads the output of an earlier task waits for that
    /// task.
    pub inputs: Objects,
    /// Computing time once all inputs are on the node, in microseconds.
    pub compute_us: u64,
    /// Objects that the task writes. No other task writes them.
    pub outputs: Objects,
}
