//! `[provisioning]` and `[failures]`.

use eyas_provision as provision;
use eyas_types::ProvisioningPolicy;
use serde::Deserialize;

use super::amount::{Count, Share, Time};
use super::cluster::{MAX_NODES, named};
use super::mistake::ScenarioMistake;
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::SimCluster;
use crate::nodes::{Batch, Failures};

/// `[provisioning]`: differences from the paper's batch system.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProvisioningFields {
    #[serde(deserialize_with = "named")]
    policy: Option<ProvisioningPolicy>,
    min_nodes: Option<Count<MAX_NODES>>,
    grant_least: Option<Time>,
    grant_most: Option<Time>,
    idle: Option<Time>,
    walltime: Option<Time>,
    target: Option<Time>,
}

impl ProvisioningFields {
    pub fn batch(&self, cluster: &SimCluster) -> Result<Batch, ScenarioMistake> {
        let usual = Batch::default();
        let ns = |time: Option<Time>, usual| time.map_or(usual, |time| time.0 * MICROSECOND);
        let batch = Batch {
            policy: self.policy.unwrap_or(usual.policy),
            min_nodes: self.min_nodes.map_or(usual.min_nodes, |count| count.0),
            grants_after_ns: (
                ns(self.grant_least, usual.grants_after_ns.0),
                ns(self.grant_most, usual.grants_after_ns.1),
            ),
            idle_ns: ns(self.idle, usual.idle_ns),
            walltime_ns: ns(self.walltime, usual.walltime_ns),
            target_ns: ns(self.target, usual.target_ns),
        };
        let notice_us = provision::Config::default().notice_us;
        let (least, most) = batch.grants_after_ns;
        if batch.min_nodes > cluster.nodes {
            return Err(ScenarioMistake::TooFewNodes {
                min_nodes: batch.min_nodes,
                nodes: cluster.nodes,
            });
        }
        if least > most {
            return Err(ScenarioMistake::GrantOrder);
        }
        if batch.idle_ns == 0 || batch.target_ns == 0 {
            return Err(ScenarioMistake::NoTime("idle", "target"));
        }
        if self.target.is_some() && batch.policy != ProvisioningPolicy::Demand {
            return Err(ScenarioMistake::TargetWithoutDemand(batch.policy));
        }
        if batch.walltime_ns <= notice_us * MICROSECOND {
            return Err(ScenarioMistake::ShortWalltime { notice_us });
        }
        Ok(batch)
    }
}

/// Default time that a node stays away after it left: about a restart of the machine.
const NODE_AWAY_NS: Ns = 60 * SECOND;
/// Default time until a dead dispatcher is started again: a supervisor has to notice.
const DISPATCHER_BACK_NS: Ns = 5 * SECOND;

/// `[failures]` of a scenario.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FailureFields {
    node_lost_after: Option<Time>,
    node_back_after: Option<Time>,
    disconnected_after: Option<Time>,
    node_leaves_after: Option<Time>,
    node_away: Option<Time>,
    dispatcher_dies_after: Option<Time>,
    dispatcher_back_after: Option<Time>,
    failed_tries: Option<Share>,
    slow_disks: Option<Share>,
    failed_requests: Option<Share>,
    until: Option<Time>,
}

impl FailureFields {
    pub fn failures(&self, cluster: &SimCluster) -> Result<Failures, ScenarioMistake> {
        let ns = |time: Option<Time>| time.map(|time| time.0 * MICROSECOND);
        let share = |share: Option<Share>| share.map_or(0.0, |share| share.0);
        let failures = Failures {
            lost_after_ns: ns(self.node_lost_after),
            back_after_ns: ns(self.node_back_after),
            disconnected_after_ns: ns(self.disconnected_after),
            slow_disks: share(self.slow_disks),
            failed_requests: share(self.failed_requests),
            leaves: ns(self.node_leaves_after)
                .zip(Some(ns(self.node_away).unwrap_or(NODE_AWAY_NS))),
            dispatcher_dies_after_ns: ns(self.dispatcher_dies_after),
            dispatcher_back_after_ns: ns(self.dispatcher_back_after).unwrap_or(DISPATCHER_BACK_NS),
            failed_tries: share(self.failed_tries),
            until_ns: ns(self.until),
        };
        let is_zero = |after: Option<Ns>| after == Some(0);
        if is_zero(failures.lost_after_ns) || is_zero(failures.disconnected_after_ns) {
            return Err(ScenarioMistake::NoTime("node_lost_after", "disconnected_after"));
        }
        if is_zero(failures.leaves.map(|(after, _)| after))
            || is_zero(failures.dispatcher_dies_after_ns)
        {
            return Err(ScenarioMistake::NoTime("node_leaves_after", "dispatcher_dies_after"));
        }
        let pairs = [
            ("node_back_after", self.node_back_after, "node_lost_after", self.node_lost_after),
            ("node_away", self.node_away, "node_leaves_after", self.node_leaves_after),
            (
                "dispatcher_back_after",
                self.dispatcher_back_after,
                "dispatcher_dies_after",
                self.dispatcher_dies_after,
            ),
        ];
        for (key, given, needed, cause) in pairs {
            if given.is_some() && cause.is_none() {
                return Err(ScenarioMistake::Needs {
                    key,
                    needed,
                    missing: "the mean time until this failure",
                });
            }
        }
        if failures.failed_tries == 1.0 {
            let consequence = "no task ever succeeds";
            return Err(ScenarioMistake::AlwaysFails { key: "failed_tries", consequence });
        }
        if failures.slow_disks > 0.0 && cluster.disk.is_none() {
            return Err(ScenarioMistake::NoDisks);
        }
        if failures.failed_requests > 0.0 && cluster.batch.is_none() {
            return Err(ScenarioMistake::NoRequests);
        }
        if failures.failed_requests == 1.0 {
            let consequence = "no node is ever granted";
            return Err(ScenarioMistake::AlwaysFails { key: "failed_requests", consequence });
        }
        Ok(failures)
    }
}
