//! `[provisioning]` and `[failures]`.

use eyas_provision as provision;
use eyas_types::ProvisioningPolicy;
use eyas_types::units::format_duration_us;
use serde::Deserialize;

use super::amount::{Count, Share, Time};
use super::cluster::{MAX_NODES, named};
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::Cluster;
use crate::nodes::{Batch, Failures};

/// A batch system and how nodes are asked of it, as far as it is otherwise than the paper's.
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
    pub fn batch(&self, cluster: &Cluster) -> Result<Batch, String> {
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
            return Err(format!("`min_nodes` is {}, the cluster has {}", batch.min_nodes, cluster.nodes));
        }
        if least > most {
            return Err("`grant_least` is longer than `grant_most`".into());
        }
        if batch.idle_ns == 0 || batch.target_ns == 0 {
            return Err("`idle` and `target` are longer than nothing".into());
        }
        if self.target.is_some() && batch.policy != ProvisioningPolicy::Demand {
            let policy = batch.policy;
            return Err(format!("`target` is for `demand` alone, `policy` is `{policy}`: leave one of them out"));
        }
        if batch.walltime_ns <= notice_us * MICROSECOND {
            let notice = format_duration_us(notice_us);
            return Err(format!("`walltime` is too short: nodes are told to leave {notice} before it is over"));
        }
        Ok(batch)
    }
}

/// How long a node that has left in good order is away if nothing is said: about what a restart of a machine takes.
const NODE_AWAY_NS: Ns = 60 * SECOND;
/// How long a dispatcher that has died is away if nothing is said: as long as a supervisor takes to notice.
const DISPATCHER_BACK_NS: Ns = 5 * SECOND;

/// What breaks.
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
    pub fn failures(&self, cluster: &Cluster) -> Result<Failures, String> {
        let ns = |time: Option<Time>| time.map(|time| time.0 * MICROSECOND);
        let share = |share: Option<Share>| share.map_or(0.0, |share| share.0);
        let failures = Failures {
            lost_after_ns: ns(self.node_lost_after),
            back_after_ns: ns(self.node_back_after),
            disconnected_after_ns: ns(self.disconnected_after),
            slow_disks: share(self.slow_disks),
            failed_requests: share(self.failed_requests),
            leaves: ns(self.node_leaves_after).zip(Some(ns(self.node_away).unwrap_or(NODE_AWAY_NS))),
            dispatcher_dies_after_ns: ns(self.dispatcher_dies_after),
            dispatcher_back_after_ns: ns(self.dispatcher_back_after).unwrap_or(DISPATCHER_BACK_NS),
            failed_tries: share(self.failed_tries),
            until_ns: ns(self.until),
        };
        let is_never = |after: Option<Ns>| after == Some(0);
        if is_never(failures.lost_after_ns) || is_never(failures.disconnected_after_ns) {
            return Err("`node_lost_after` and `disconnected_after` are longer than nothing".into());
        }
        if failures.back_after_ns.is_some() && failures.lost_after_ns.is_none() {
            return Err("`node_back_after` says when lost nodes are back: give `node_lost_after`, too".into());
        }
        if is_never(failures.leaves.map(|(after, _)| after)) || is_never(failures.dispatcher_dies_after_ns) {
            return Err("`node_leaves_after` and `dispatcher_dies_after` are longer than nothing".into());
        }
        if self.node_away.is_some() && failures.leaves.is_none() {
            return Err("`node_away` says how long nodes are away that left: give `node_leaves_after`, too".into());
        }
        if self.dispatcher_back_after.is_some() && failures.dispatcher_dies_after_ns.is_none() {
            let why = "`dispatcher_back_after` says when a dispatcher is back: give `dispatcher_dies_after`, too";
            return Err(why.into());
        }
        if failures.failed_tries == 1.0 {
            return Err("`failed_tries`: if all tries fail, no task ever succeeds".into());
        }
        if failures.slow_disks > 0.0 && cluster.disk.is_none() {
            return Err("`slow_disks`: the stores of this cluster are in memory".into());
        }
        if failures.failed_requests > 0.0 && cluster.batch.is_none() {
            return Err("`failed_requests`: without [provisioning] nobody asks for nodes".into());
        }
        if failures.failed_requests == 1.0 {
            return Err("`failed_requests`: if all fail, there is never a node".into());
        }
        Ok(failures)
    }
}
