//! Why a pool stands as it does: why it requests no nodes, why requested nodes have not joined, and
//! why each node stays or leaves. The answers come from the state that decides.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, units};

use super::hosts::ExcludedHost;
use super::request::{PoolRequest, RequestPhase};
use super::{PoolDecider, PoolEffect, PoolNode, PoolStatus};

/// A node of a pool, and why it stays or leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStanding {
    /// Name of its executor.
    pub name: String,
    /// Name of its host.
    pub host: String,
    /// Number of the request for which it was granted.
    pub request: u64,
    /// `busy`, `idle`, `draining` (it is given no more tasks) or `leaving` (it was told to stop).
    pub state: &'static str,
    /// Why it stays, or why it leaves.
    pub why: String,
    /// When its time limit ends, microseconds since 1970.
    pub until_us: u64,
}

impl PoolDecider {
    /// The pool's state in one word, and why it requests no nodes.
    pub fn standing(&self) -> (&'static str, Option<String>) {
        match &self.status {
            PoolStatus::Active => {
                let unfound =
                    self.look_failure.as_ref().filter(|_| self.unclear().next().is_some());
                let unknown = self.states_failure.as_ref().or(unfound);
                ("active", self.backing_off().or_else(|| unknown.cloned()))
            }
            PoolStatus::Paused(why) => ("paused", Some(why.clone())),
            PoolStatus::Capped(why) => ("capped", Some(why.clone())),
            PoolStatus::Closing => ("closing", None),
        }
    }

    /// Why no request is made now, if requests have failed.
    fn backing_off(&self) -> Option<String> {
        (self.failures_in_row > 0).then(|| {
            format!(
                "the last {} failed: {}",
                units::format_count(self.failures_in_row.into(), "request"),
                self.last_failure
            )
        })
    }

    /// Why requested nodes have not joined: how the oldest request stands.
    pub fn why_requested_wait(&self, now_us: u64) -> Option<String> {
        let Some((number, request)) =
            self.requests.iter().find(|(_, request)| request.missing() > 0)
        else {
            return self.why_full();
        };
        let waited =
            units::format_duration_us(now_us.saturating_sub(request.requested_unix_ms * 1000));
        let phase = match request.phase() {
            RequestPhase::Unclear => "is looked for in the batch system",
            RequestPhase::Submitting => "is being submitted",
            RequestPhase::Running => "was granted, and its node has not joined",
            RequestPhase::Pending | RequestPhase::Ended => "waits in the batch system",
        };
        let says = request.says.as_ref().map(|says| format!(" ({says})")).unwrap_or_default();
        Some(format!("request {number}, made {waited} ago, {phase}{says}"))
    }

    /// Why nodes that are wanted are not requested, if a withdrawn request has their places.
    fn why_full(&self) -> Option<String> {
        let is_short = self.provisioner.staying() < self.provisioner.wanted()
            && self.provisioner.withdrawn() > 0;
        let is_withdrawn = |request: &PoolRequest| request.is_open() && request.is_withdrawn();
        let (number, _) =
            self.requests.iter().find(|(_, request)| is_short && is_withdrawn(request))?;
        Some(format!(
            "request {number} is withdrawn, and counts among the {} of --max-nodes until the \
             batch system has ended it",
            self.config.max_nodes
        ))
    }

    /// Hosts on which no node is requested now, and why.
    pub fn excluded_hosts(&self, now_us: u64) -> Vec<ExcludedHost> {
        self.failed_hosts.reports(now_us)
    }

    /// The nodes of the pool, and why each stays or leaves.
    pub fn node_standings(&self, now_us: u64) -> Vec<NodeStanding> {
        let standing = |node: &PoolNode| {
            let (state, why) = self.state_of(now_us, node);
            let (name, host, request, until_us) =
                (node.name.clone(), node.host.clone(), node.request, node.until_us);
            NodeStanding { name, host, request, state, why, until_us }
        };
        self.nodes.values().map(standing).collect()
    }

    /// The state of a node, and why it stays or leaves.
    fn state_of(&self, now_us: u64, node: &PoolNode) -> (&'static str, String) {
        let idle_us = now_us.saturating_sub(node.idle_since_us);
        let idle = units::format_duration_us(idle_us);
        let timeout = units::format_duration_us(self.config.idle_timeout_us);
        let leaves = node.leaves.as_deref().unwrap_or_default();
        if node.is_released {
            return ("leaving", format!("it was told to stop: {leaves}"));
        }
        if node.is_draining && node.is_busy {
            return (
                "draining",
                format!(
                    "it leaves after its {}: {leaves}",
                    units::format_count(node.tasks, "task")
                ),
            );
        }
        if node.is_draining {
            return (
                "draining",
                format!("it leaves when other nodes have what only it holds: {leaves}"),
            );
        }
        if node.is_busy {
            return ("busy", format!("it has {}", units::format_count(node.tasks, "task")));
        }
        let why = if self.provisioner.staying() <= self.provisioner.wanted() {
            let wanted = units::format_count(self.provisioner.wanted().into(), "node");
            format!("it has had no task for {idle}; the work, or --min-nodes, is worth {wanted}")
        } else if let Some(kept) = why_kept(node).filter(|_| idle_us >= self.config.idle_timeout_us)
        {
            format!("it has had no task for {idle}; {kept}")
        } else {
            format!("it has had no task for {idle}, and leaves after {timeout} (--idle-timeout)")
        };
        ("idle", why)
    }

    /// Why a node is drained now.
    pub(super) fn why_drained(&self, now_us: u64, node: &PoolNode) -> String {
        let idle_us = if node.is_busy { 0 } else { now_us.saturating_sub(node.idle_since_us) };
        if matches!(self.status, PoolStatus::Closing | PoolStatus::Capped(_)) {
            "the pool gives back its nodes".to_owned()
        } else if node.until_us <= now_us + self.notice_us() {
            "its time limit nearly ends".to_owned()
        } else if node.lacks_time {
            "its time limit ends before the waiting tasks could end".to_owned()
        } else if idle_us >= self.config.idle_timeout_us {
            format!("it had no task for {}", units::format_duration_us(idle_us))
        } else {
            "fewer nodes are enough for the work".to_owned()
        }
    }

    /// Says once of an idle node that it is kept for what it holds.
    pub(super) fn explain_idle(
        &mut self,
        now_us: u64,
        id: ExecutorId,
        effects: &mut Vec<PoolEffect>,
    ) {
        let is_crowded = self.provisioner.staying() > self.provisioner.wanted();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let is_over = !node.is_busy && now_us >= node.idle_since_us + self.config.idle_timeout_us;
        if node.is_draining || node.is_explained || !is_over || !is_crowded {
            return;
        }
        if let Some(kept) = why_kept(node) {
            node.is_explained = true;
            effects
                .push(PoolEffect::Note(format!("node {} stays without tasks: {kept}", node.name)));
        }
    }
}

/// Why an idle node is worth keeping.
fn why_kept(node: &PoolNode) -> Option<String> {
    (node.refill_us > 0).then(|| {
        let refill = units::format_duration_us(node.refill_us);
        format!(
            "it is kept for {refill}, because it would take as long to fetch again what only it \
             holds"
        )
    })
}
