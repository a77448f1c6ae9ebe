//! When nodes are available: the batch system that grants them, and failures.

use std::fmt;

use eyas_provision as provision;
use eyas_types::ProvisioningPolicy;

use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::SimCluster;

/// A slow disk takes this many times as long as a sound one. Disks that read most sectors
/// repeatedly are about this slow.
pub const SLOW_DISK: f64 = 10.0;
/// Time after which the dispatcher misses a lost node: four heartbeats of 3 s, the dispatcher's
/// default.
pub const MISSED_AFTER_NS: Ns = 12 * SECOND;
/// Time after which an executor that lost its dispatcher connects again: the interval between two
/// attempts of real executors. The executor has killed its running tasks by then.
pub const REJOINS_AFTER_NS: Ns = SECOND / 10;

/// A batch system, and how nodes are requested from it. When a node is given back, the content of
/// its store is lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Provisioning policy: how many nodes are requested, and when.
    pub policy: ProvisioningPolicy,
    /// Number of nodes that are kept even without tasks. The upper limit is the size of the
    /// cluster.
    pub min_nodes: u32,
    /// Shortest and longest time until a request is granted; all times between them are equally
    /// likely (30 to 60 s, data-diffusion §5.1.6).
    pub grants_after_ns: (Ns, Ns),
    /// A node is given back after this time without a task (30 s, §5.2).
    pub idle_ns: Ns,
    /// Walltime of each node.
    pub walltime_ns: Ns,
    /// The policy `demand` requests enough nodes to finish the waiting tasks within this time.
    pub target_ns: Ns,
}

impl Default for Batch {
    /// The paper's values, with the default policy of eyas. The paper names no walltime; a day is
    /// longer than its experiments.
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
    /// Requests one slot for each waiting task, all at once. The paper does not name its policy.
    /// With its other policies, the experiments take the same time and hold up to 3 % more
    /// processor time.
    pub fn of_the_paper() -> Self {
        Batch { policy: ProvisioningPolicy::AllAtOnce, ..Batch::default() }
    }

    pub(crate) fn config(&self, cluster: &SimCluster) -> provision::Config {
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

/// Failures that happen during a run. By default there are none.
#[derive(Clone, Default, PartialEq)]
pub struct Failures {
    /// Mean time until a node is lost with its tasks and its store.
    pub lost_after_ns: Option<Ns>,
    /// Time until a lost node comes back. `None`: the node never comes back.
    pub back_after_ns: Option<Ns>,
    /// Mean time until the connection between an executor and its dispatcher breaks. Messages in
    /// flight are lost and running tasks are killed. Then the executor joins again with the
    /// content of its store.
    pub disconnected_after_ns: Option<Ns>,
    /// Mean time until an executor asks to leave, and the time that its node then stays away. The
    /// node comes back with the content of its store.
    pub leaves: Option<(Ns, Ns)>,
    /// Mean time until a dispatcher dies.
    pub dispatcher_dies_after_ns: Option<Ns>,
    /// Time from a dispatcher's death until it is started again.
    pub dispatcher_back_after_ns: Ns,
    /// Share of attempts at tasks whose program fails, 0 to 1.
    pub failed_tries: f64,
    /// Share of nodes whose disks are [`SLOW_DISK`] times as slow, 0 to 1.
    pub slow_disks: f64,
    /// Share of requests for nodes that fail, 0 to 1.
    pub failed_requests: f64,
    /// Time from which nodes, connections and dispatchers no longer fail; `None`: they fail until
    /// the run ends.
    pub until_ns: Option<Ns>,
}

impl Failures {
    /// Time of a failure that is due `after_ns` after `now`; `None` if failures have ended by then.
    pub fn at(&self, now: Ns, after_ns: Ns) -> Option<Ns> {
        let at = now.saturating_add(after_ns);
        self.until_ns.is_none_or(|until| at < until).then_some(at)
    }
}

/// Leaves out the failures that the paper's experiments do not have, unless they are set: the stamp
/// of the paper's results is made from this text.
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
