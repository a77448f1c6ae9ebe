//! Who may answer for now: a leader that was voted out, and does not know it, must not show what was.
//!
//! A replica that hears its leader's heartbeat promises that it will not tell what it has to a leader of a later view for
//! [`Config::lease_us`](crate::Config::lease_us) of its own time. A later leader needs a read quorum of the replicas; so a leader that has promises of a
//! write quorum, itself counted, knows that nobody else serves. It counts from when it sent the heartbeat, and less than was
//! promised, since clocks run differently fast. It also needs promises of most members, so that a few who come back after they
//! were given up (`recover.rs`) serve nothing. A promise ends when its leader is heard in the later view, and a replica
//! that starts has forgotten its promises, and waits as if it had just made them.

use alloc::collections::BTreeMap;

use eyas_types::dfs::NodeId;

/// A leader counts on this much less than what was promised, as a share of it: clocks may differ by 1/16 in their rates.
const MARGIN: u64 = 8;

pub(crate) struct Leases {
    lease_us: u64,
    /// Until when this node, as a leader, has whose promise.
    granted: BTreeMap<NodeId, u64>,
    /// Until when this node, as a replica, has promised to wait for whom; of this view.
    promised: BTreeMap<NodeId, u64>,
    /// The same, of earlier views.
    held: BTreeMap<NodeId, u64>,
    /// What was promised before the node started has ended by then.
    forgotten_until_us: u64,
}

impl Leases {
    /// Of a node that starts; of a new one, if it has promised nothing yet.
    pub fn new(lease_us: u64, now_us: u64, is_new: bool) -> Self {
        let forgotten_until_us = if is_new { now_us } else { now_us + lease_us };
        let (granted, promised, held) = Default::default();
        Leases { lease_us, granted, promised, held, forgotten_until_us }
    }

    /// A later view has begun.
    pub fn enter_view(&mut self) {
        self.granted.clear();
        for (leader, until_us) in core::mem::take(&mut self.promised) {
            let held = self.held.entry(leader).or_default();
            *held = (*held).max(until_us);
        }
    }

    /// Promises to wait for a leader of this view.
    pub fn promise(&mut self, leader: NodeId, now_us: u64) {
        self.promised.insert(leader, now_us + self.lease_us);
    }

    /// A node has spoken in this view: it leads in no earlier one.
    pub fn heard(&mut self, node: NodeId) {
        self.held.remove(&node);
    }

    /// A replica has promised to wait, when it heard what was sent at that time.
    pub fn grant(&mut self, replica: NodeId, sent_us: u64) {
        let until_us = self.granted.entry(replica).or_default();
        *until_us = (*until_us).max(sent_us + self.lease_us - self.lease_us / MARGIN);
    }

    /// Whether a replica waits for this node.
    pub fn is_granted(&self, replica: NodeId, now_us: u64) -> bool {
        self.granted.get(&replica).is_some_and(|until_us| now_us < *until_us)
    }

    /// How many wait for this node.
    pub fn granted(&self, now_us: u64) -> usize {
        self.granted.values().filter(|until_us| now_us < **until_us).count()
    }

    /// Whether this node waits for no leader of an earlier view any more.
    pub fn is_free(&mut self, now_us: u64) -> bool {
        self.held.retain(|_, until_us| now_us < *until_us);
        self.held.is_empty() && now_us >= self.forgotten_until_us
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
        assert!(at_replica.is_free(1001), "in its own view it waits for nobody");
        at_replica.enter_view();
        assert!(!at_replica.is_free(1799) && at_replica.is_free(1800));
        at_leader.enter_view();
        assert!(!at_leader.is_granted(replica, 1001), "what was promised in another view");
    }

    #[test]
    fn a_promise_ends_when_its_leader_has_come_along_and_is_not_forgotten_by_starting() {
        let mut leases = Leases::new(800, 0, true);
        leases.promise(NodeId(1), 100);
        leases.enter_view();
        leases.heard(NodeId(1));
        assert!(leases.is_free(101));
        let mut started = Leases::new(800, 5000, false);
        assert!(!started.is_free(5799) && started.is_free(5800));
    }
}
