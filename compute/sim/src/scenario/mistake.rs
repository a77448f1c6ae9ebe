//! Mistakes in scenario files. The caller adds the file and the line.

use eyas_types::ProvisioningPolicy;
use eyas_types::units::format_duration_us;
use thiserror::Error;

use super::impossible::ImpossibleRun;
use crate::file::FileError;
use crate::trace::TraceMistake;

/// What is wrong with a scenario, and what to write instead.
#[derive(Debug, Error)]
pub enum ScenarioMistake {
    /// The file is not TOML, or a key has an unknown name or a value of the wrong kind.
    #[error("{0}")]
    Syntax(String),
    /// The workload can never end on the cluster.
    #[error("{0}")]
    Impossible(#[from] ImpossibleRun),
    /// The trace of the workload cannot be used.
    #[error("{0}")]
    Trace(Box<FileError<TraceMistake>>),
    /// A key needs another key, which is missing.
    #[error("`{key}` needs `{needed}`: give {missing}")]
    Needs {
        /// The key.
        key: &'static str,
        /// The missing key.
        needed: &'static str,
        /// What the missing key says.
        missing: &'static str,
    },
    /// Durations that must be longer than 0.
    #[error("`{0}` and `{1}` must be longer than 0")]
    NoTime(&'static str, &'static str),
    /// A share of failures with which no run would ever end.
    #[error("`{key}` is 1, so {consequence}: give a smaller share")]
    AlwaysFails {
        /// The key.
        key: &'static str,
        /// What never happens.
        consequence: &'static str,
    },
    /// `min_nodes` is above the number of nodes.
    #[error("`min_nodes` is {min_nodes}, and the cluster has only {nodes} nodes")]
    TooFewNodes {
        /// The least number of nodes that are kept.
        min_nodes: u32,
        /// The number of nodes.
        nodes: u32,
    },
    /// The bounds of the time until a grant are in the wrong order.
    #[error("`grant_least` is longer than `grant_most`")]
    GrantOrder,
    /// `target` is given for another policy than `demand`.
    #[error(
        "`target` belongs to the policy `demand`, and `policy` is `{0}`: leave one of them out"
    )]
    TargetWithoutDemand(ProvisioningPolicy),
    /// The walltime is over before a node could get a task.
    #[error(
        "`walltime` is too short: nodes are drained {} before its end, so make it longer than that",
        format_duration_us(*.notice_us)
    )]
    ShortWalltime {
        /// Time before the end of the walltime at which a node is drained, in microseconds.
        notice_us: u64,
    },
    /// Disks are to be slow, and there are none.
    #[error("`slow_disks` needs disks, and the stores of this cluster are in memory")]
    NoDisks,
    /// Requests for nodes are to fail, and there are none.
    #[error("`failed_requests` needs [provisioning]: without it, no nodes are requested")]
    NoRequests,
    /// Tasks write too many objects.
    #[error(
        "{tasks} tasks with {outputs} outputs each are too many objects: at most {} are possible",
        u32::MAX
    )]
    TooManyOutputs {
        /// The number of tasks.
        tasks: u64,
        /// The number of outputs of each task.
        outputs: u32,
    },
    /// There are more stages than tasks.
    #[error("there are only {tasks} tasks: give at most that number of stages")]
    TooManyStages {
        /// The number of tasks.
        tasks: u64,
    },
    /// `tile` is given for another order than tiles.
    #[error("`tile` needs `order = \"tiles\"`")]
    TileWithoutTiles,
    /// The exponent of Zipf is out of range.
    #[error("the exponent {0} is out of range: give a number from 0 to 10")]
    Exponent(f64),
    /// Table 3 has no row of this locality.
    #[error(
        "no workload has locality {locality}: choose one of {}",
        .known.map(|one| one.to_string()).join(", ")
    )]
    Locality {
        /// The locality that was given.
        locality: f64,
        /// The localities of table 3.
        known: [f64; 9],
    },
    /// There are more tasks than a run can have.
    #[error("{tasks} tasks are too many: give at most {most}")]
    TooManyTasks {
        /// The number of tasks.
        tasks: u64,
        /// The largest number of tasks.
        most: u32,
    },
    /// The last task would arrive too late.
    #[error("the last task would arrive after more than a hundred years: make `interval` shorter")]
    LateArrivals,
}
