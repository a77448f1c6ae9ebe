//! When nodes are there: the batch system that gives them, and what breaks.

use std::fmt;

use eyas_provision as provision;
use eyas_types::ProvisioningPolicy;

use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::Cluster;

/// How many times as long as another's a slow disk takes: about what one does that reads most sectors again and again.
pub const SLOW_DISK: f64 = 10.0;
/// A node that is lost says nothing, and is missed after four heartbeats of 3 s, as dispatchers do if nothing else is said.
pub const MISSED_AFTER_NS: Ns = 12 * SECOND;
/// An executor that has lost its dispatcher kills what runs and dials: as long as executors wait between two attempts.
pub const REJOINS_AFTER_NS: Ns = SECOND / 10;

/// A batch system, and how nodes are asked of it. What was in a store is gone when its node is given back.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// How many nodes are asked for when.
    pub policy: ProvisioningPolicy,
    /// Nodes that are there always, as far as they are granted. The most are all nodes of the cluster.
    pub min_nodes: u32,
    /// A request is granted after a time between these, all equally likely (30 to 60 s, data-diffusion §5.1.6).
    pub grants_after_ns: (Ns, Ns),
    /// A node leaves after so long without a task (30 s, §5.2).
    pub idle_ns: Ns,
    /// For how long each node is asked for.
    pub walltime_ns: Ns,
    /// `demand` has what waits done in so long.
    pub target_ns: Ns,
}

impl Default for Batch {
    /// That of the paper, which names no walltime: a day is longer than its experiments. The policy is ours.
    fn default() -> Self {
        let ours = provision::Config::default();
        Batch {
            policy: ours.policy,
            min_nodes: ours.min_nodes,
            grants_after_ns: (30 * SECOND, 60 * SECOND),
            idle_ns: 30 * SECOND,
            walltime_ns: 86_400 * SECOND,
            target_ns: ours.target_us * MICROSECOND,
        }
    }
}

impl Batch {
    /// A slot for each task that waits, asked for at once: the paper does not name its policy. With the others that do so its
    /// experiments take as long, and hold up to 3 % more processor time.
    pub fn of_the_paper() -> Self {
        Batch { policy: ProvisioningPolicy::AllAtOnce, ..Batch::default() }
    }

    pub(crate) fn config(&self, cluster: &Cluster) -> provision::Config {
        provision::Config {
            policy: self.policy,
            min_nodes: self.min_nodes.min(cluster.nodes),
            max_nodes: cluster.nodes,
            slots: cluster.cpus,
            walltime_us: self.walltime_ns / MICROSECOND,
            idle_us: self.idle_ns / MICROSECOND,
            target_us: self.target_ns / MICROSECOND,
            ..provision::Config::default()
        }
    }
}

/// What breaks. Nothing does if nothing is said.
#[derive(Clone, Default, PartialEq)]
pub struct Failures {
    /// How long a node is there until it is lost with all that it has, on average.
    pub lost_after_ns: Option<Ns>,
    /// How long it is away then; if nothing is said, for ever.
    pub back_after_ns: Option<Ns>,
    /// How long an executor's connection to the dispatcher holds, on average. What is on its way when it breaks is lost, and
    /// what runs is killed; then the executor joins again, with what is in its store.
    pub disconnected_after_ns: Option<Ns>,
    /// How long an executor is there until it asks to leave in good order, on average, and how long its node is away then. It
    /// comes back with what is in its store.
    pub leaves: Option<(Ns, Ns)>,
    /// How long a dispatcher runs until it dies, on average, and how long it takes until it is started again.
    pub dispatcher_dies_after_ns: Option<Ns>,
    /// How long a dispatcher that died is away.
    pub dispatcher_back_after_ns: Ns,
    /// Part of the tries at tasks whose program fails.
    pub failed_tries: f64,
    /// Part of the nodes whose disks take [`SLOW_DISK`] times as long.
    pub slow_disks: f64,
    /// Part of the requests for nodes that fail.
    pub failed_requests: f64,
    /// When nodes and dispatchers cease to fail; if nothing is said, they never do.
    pub until_ns: Option<Ns>,
}

impl Failures {
    /// When a failure happens that is due in `after_ns` from `now`, unless failures have ceased by then.
    pub fn at(&self, now: Ns, after_ns: Ns) -> Option<Ns> {
        let at = now.saturating_add(after_ns);
        self.until_ns.is_none_or(|until| at < until).then_some(at)
    }
}

/// Failures that the experiments of the paper do not have are left out where nothing is said of them: the stamp of their
/// results is made from this text.
impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Failures");
        text.field("lost_after_ns", &self.lost_after_ns);
        text.field("back_after_ns", &self.back_after_ns);
        text.field("disconnected_after_ns", &self.disconnected_after_ns);
        text.field("slow_disks", &self.slow_disks).field("failed_requests", &self.failed_requests);
        if let Some((after_ns, away_ns)) = self.leaves {
            text.field("leaves_after_ns", &after_ns).field("away_ns", &away_ns);
        }
        if let Some(after_ns) = self.dispatcher_dies_after_ns {
            text.field("dispatcher_dies_after_ns", &after_ns);
            text.field("dispatcher_back_after_ns", &self.dispatcher_back_after_ns);
        }
        if self.failed_tries > 0.0 {
            text.field("failed_tries", &self.failed_tries);
        }
        if let Some(until_ns) = self.until_ns {
            text.field("until_ns", &until_ns);
        }
        text.finish()
    }
}
