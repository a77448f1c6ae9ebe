//! A task that comes to a simulated cluster.

use smallvec::SmallVec;

/// Objects that a task reads or writes, by their numbers in its [workload](crate::workload::Workload); most tasks read
/// one
/// or two.
pub type Objects = SmallVec<[u32; 2]>;

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When it comes, microseconds from the beginning.
    pub at_us: u64,
    /// The objects it reads. A task that reads what an earlier task writes waits for that task.
    pub inputs: Objects,
    /// How long it computes once its inputs are there, microseconds.
    pub compute_us: u64,
    /// The objects it writes, each of which no other task writes.
    pub outputs: Objects,
}
