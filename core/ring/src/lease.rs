//! Leases: a leader that was replaced in a later view, and does not know it yet, must not answer
//! requests.
//!
//! A replica that hears its leader's heartbeat promises to wait: for
//! [`Config::lease_us`](crate::Config::lease_us) of its own time, it does not give its entries to a
//! leader of a later view. A later leader needs a read quorum of the replicas. So as long as a
//! leader has promises of a write quorum, itself included, no other node serves the partition. The
//! leader counts from the moment when it sent the heartbeat, and counts on less time than was
//! promised, since clocks run at different rates. It also needs promises of a majority of the
//! members, so that a few nodes that come back after they were given up (`recover.rs`) serve
//! nothing.
//!
//! A promise ends early when the old leader is heard in the later view. A replica that restarts has
//! forgotten its promises, and waits as if it had just made them.

use alloc::collections::BTreeMap;

use eyas_types::dfs::NodeId;

/// A leader counts on `1 / MARGIN` less time than was promised. Rates of clocks may differ by up to
/// 1/16: of 2 s that were promised, the leader counts on 1.75 s of its own clock, which are at most
/// 1.86 s of the replica's.
const MARGIN: u64 = 8;

pub(crate) struct Leases {
    lease_us: u64,
    /// As a leader: the time until which each replica waits for this node.
    granted: BTreeMap<NodeId, u64>,
    /// As a replica: the time until which this node waits for each leader of the current view.
    promised: BTreeMap<NodeId, u64>,
    /// The same for leaders of earlier views.
    held: BTreeMap<NodeId, u64>,
    /// Promises that were made before the node started have expired at this time.
    forgotten_until_us: u64,
}

impl Leases {
    /// The leases of a node that starts. A new node has made no promises before.
    pub fn new(lease_us: u64, now_us: u64, is_new: bool) -> Self {
        let forgotten_until_us = if is_new { now_us } else { now_us + lease_us };
        let (granted, promised, held) = Default::default();
        Leases { lease_us, granted, promised, held, forgotten_until_us }
    }

    /// A later view has begun.
    pub fn enter_view(&mut self, now_us: u64) {
        self.granted.clear();
        self.held.retain(|_, until_us| now_us < *until_us);
        for (leader, until_us) in core::mem::take(&mut self.promised) {
            let held = self.held.entry(leader).or_default();
            *held = (*held).max(until_us);
        }
    }

    /// Promises to wait for a leader of the current view.
    pub fn promise(&mut self, leader: NodeId, now_us: u64) {
        self.promised.insert(leader, now_us + self.lease_us);
    }

    /// A node has sent a message in the current view, so it leads in no earlier one.
    pub fn heard(&mut self, node: NodeId) {
        self.held.remove(&node);
    }

    /// A replica has promised to wait, in answer to a heartbeat that was sent at `sent_us`. With
    /// leases of 800 µs and a heartbeat that was sent at 1000, this node counts on the replica
    /// until 1700, and the replica waits until 1800 or later: it has counted from the moment when
    /// the heartbeat came.
    pub fn grant(&mut self, replica: NodeId, sent_us: u64) {
        let until_us = self.granted.entry(replica).or_default();
        *until_us = (*until_us).max(sent_us + self.lease_us - self.lease_us / MARGIN);
    }

    /// Whether a replica waits for this node.
    pub fn is_granted(&self, replica: NodeId, now_us: u64) -> bool {
        self.granted.get(&replica).is_some_and(|until_us| now_us < *until_us)
    }

    /// Number of nodes that wait for this node.
    pub fn granted(&self, now_us: u64) -> usize {
        self.granted.values().filter(|until_us| now_us < **until_us).count()
    }

    /// Whether this node no longer waits for any leader of an earlier view.
    pub fn is_free(&self, now_us: u64) -> bool {
        self.held.values().all(|until_us| now_us >= *until_us) && now_us >= self.forgotten_until_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_counts_on_less_than_was_promised() {
        let [leader, replica] = [1, 2].map(NodeId);
        let mut at_leader = Leases::new(800, 0, true);
        let mut at_replica = Leases::new(800, 0, true);
        at_leader.grant(replica, 1000);
        at_replica.promise(leader, 1000);
        assert!(at_leader.is_granted(replica, 1699) && !at_leader.is_granted(replica, 1700));
        assert_eq!((at_leader.granted(1699), at_leader.granted(1700)), (1, 0));
        assert!(at_replica.is_free(1001), "in its own view it waits for no leader");
        at_replica.enter_view(1001);
        assert!(!at_replica.is_free(1799) && at_replica.is_free(1800));
        at_leader.enter_view(1001);
        assert!(!at_leader.is_granted(replica, 1001), "what was promised in another view");
    }

    #[test]
    fn a_promise_ends_when_its_leader_has_come_along_and_is_not_forgotten_by_starting() {
        let mut leases = Leases::new(800, 0, true);
        leases.promise(NodeId(1), 100);
        leases.enter_view(100);
        leases.heard(NodeId(1));
        assert!(leases.is_free(101));
        let started = Leases::new(800, 5000, false);
        assert!(!started.is_free(5799) && started.is_free(5800));
    }
}
