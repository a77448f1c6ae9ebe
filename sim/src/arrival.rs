//! A task that comes to a simulated cluster.

use smallvec::SmallVec;

/// Objects that a task reads, by their numbers in its [workload](crate::workload::Workload); most read one or two.
pub type Inputs = SmallVec<[u32; 2]>;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it comes, microseconds from the beginning.
    pub at_us: u64,
    /// What it reads, each once.
    pub inputs: Inputs,
    /// How long it computes once its inputs are there, microseconds.
    pub compute_us: u64,
}
