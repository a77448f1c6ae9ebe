//! Why a workload cannot end on a cluster.

use eyas_types::units::{format_bytes, format_duration_us};
use thiserror::Error;

/// Why a workload cannot end on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImpossibleRun {
    /// No store has room for the inputs of a task.
    #[error(
        "a store of {} has no room for the inputs of a task, {}: make `cache` larger",
        format_bytes(*.cache_bytes), format_bytes(*.inputs_bytes)
    )]
    CacheTooSmall {
        /// Bytes of each store.
        cache_bytes: u64,
        /// Bytes of the inputs of the task with the most.
        inputs_bytes: u64,
    },
    /// There are fewer nodes than dispatchers.
    #[error("{dispatchers} dispatchers for {nodes} nodes: each needs at least one node")]
    NoNodes {
        /// Number of dispatchers.
        dispatchers: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// There are several dispatchers, and provisioning works for one only.
    #[error(
        "{0} dispatchers with [provisioning]: nodes are requested for one dispatcher only; use one"
    )]
    ProvisionedDispatchers(u32),
    /// No store has room for all objects that are pushed to it.
    #[error(
        "a store of {} has no room for all objects, {}, which `distribution` pushes to each: make \
         `cache` larger",
        format_bytes(*.cache_bytes), format_bytes(*.data_bytes)
    )]
    CacheTooSmallForAll {
        /// Bytes of each store.
        cache_bytes: u64,
        /// Bytes of all objects.
        data_bytes: u64,
    },
    /// Objects are pushed to nodes that exist at the start, and a batch system grants nodes later.
    #[error(
        "`distribution` pushes to nodes that exist at the start, and with [provisioning] there \
         are none: leave one out"
    )]
    PushWithProvisioning,
    /// Objects are pushed, and first-available keeps nothing in stores.
    #[error(
        "`distribution` pushes into stores, and under `fa` nodes store nothing: leave it out, or \
         choose another `placement`"
    )]
    PushUnderFirstAvailable,
    /// Outputs are kept, and first-available keeps nothing in stores.
    #[error(
        "`kept` keeps outputs in stores, and under `fa` nodes store nothing: leave it out, or \
         choose another `placement`"
    )]
    KeptUnderFirstAvailable,
    /// A task could read an output of a task of another dispatcher.
    #[error(
        "with `stages` tasks read outputs of others, and {0} dispatchers do not know each other's \
         outputs: use one"
    )]
    StagesWithDispatchers(u32),
    /// A dispatcher restarts, and its requests for nodes or its pushes are not in its journal.
    #[error(
        "`dispatcher_dies_after` cannot be simulated with [provisioning] or `distribution`: leave \
         one of them out"
    )]
    RestartWithProvisioning,
    /// The walltime of a node is not longer than the longest task.
    #[error(
        "a task computes for {}, and the walltime of a node is only {}: make `walltime` longer",
        format_duration_us(*.task_us), format_duration_us(*.walltime_us)
    )]
    OutOfTime {
        /// Computing time of the longest task, in microseconds.
        task_us: u64,
        /// Walltime of a node, in microseconds.
        walltime_us: u64,
    },
    /// The lower bound of the run time is above the limit.
    #[error(
        "{what} takes at least {}, and the run is stopped after {}: make `limit` longer",
        format_duration_us(*.least_us), format_duration_us(*.limit_us)
    )]
    TooLong {
        /// What takes that long.
        what: &'static str,
        /// Least time that it takes, in microseconds.
        least_us: u64,
        /// Limit of the run, in microseconds.
        limit_us: u64,
    },
}
