//! What every part of a node reads: which node it is, the view that it is in, and which members
//! wait for it.
//!
//! A node goes from view to view, and never back: [`RingMembership::may_enter`] has the moves.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::event::{Config, Effect};
use crate::lease::Leases;
use crate::message::{MessageBody, RingMessage};
use crate::record::Round;
use crate::ring::Ring;
use crate::step::Step;
use crate::view::{View, majority, read_quorum, write_quorum};

/// The current view and the rings that follow from it.
pub(crate) struct CurrentView {
    pub view: View,
    pub ring: Ring,
    /// The rings of the view's sources.
    pub sources: Vec<Ring>,
}

impl CurrentView {
    pub fn new(view: View) -> Self {
        let mut known = BTreeMap::new();
        let sources =
            view.sources.iter().map(|members| Ring::of(&view, members, &mut known)).collect();
        CurrentView { ring: Ring::of(&view, &view.members, &mut known), sources, view }
    }

    /// Number of a partition's replicas that must store an entry before it is acknowledged.
    pub fn write_quorum(&self, partition: u16) -> usize {
        write_quorum(self.ring.replicas(partition).len(), self.view.replication)
    }

    /// Number of a partition's replicas in a source that must be asked: a read quorum, or all that
    /// are not given up if those are fewer. Of 5 replicas with replication 3, that is 3; if 3 of
    /// the 5 are given up, it is 2.
    pub fn read_quorum(&self, source: &Ring, partition: u16) -> usize {
        let replicas = source.replicas(partition);
        let left = replicas.iter().filter(|node| !self.view.lost.contains(node)).count();
        read_quorum(replicas.len(), self.view.replication).min(left)
    }
}

/// A node among the members.
pub(crate) struct RingMembership {
    pub config: Config,
    /// Number of times that the node has started.
    pub boot: u64,
    /// The latest view that the node knows.
    pub current: Option<CurrentView>,
    pub leases: Leases,
}

impl RingMembership {
    /// Number of the node's view; 0 if it has none.
    pub fn number(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.view.number)
    }

    /// The round in which this node leads now.
    pub fn round(&self) -> Round {
        Round { view: self.number(), boot: self.boot }
    }

    pub fn is_member(&self, node: NodeId) -> bool {
        self.current.as_ref().is_some_and(|current| current.view.members.contains(&node))
    }

    /// Whether no other node can serve a partition now; see `lease.rs`. Of 7 members, 3 must have
    /// promised to wait, since with this node they are a majority. With replication 3, 2 of the
    /// other replicas of the partition must be among them.
    pub fn is_leased(&self, partition: u16, now_us: u64) -> bool {
        let Some(current) = &self.current else { return false };
        let replicas = current.ring.replicas(partition).iter();
        let waiting = replicas.filter(|node| self.leases.is_granted(**node, now_us)).count();
        let is_with_most = 1 + self.leases.granted(now_us) >= majority(current.view.members.len());
        is_with_most && 1 + waiting >= current.write_quorum(partition)
    }

    /// Whether the node may go from its view to this one, which another node has sent or the
    /// members have chosen.
    pub fn may_enter(&self, next: &View) -> bool {
        next.system == self.config.system
            && next.may_follow(self.current.as_ref().map(|current| &current.view))
    }

    /// Goes to a later view.
    ///
    /// # Panics
    /// If the move is not allowed.
    pub fn enter(&mut self, next: CurrentView, now_us: u64) {
        let (node, boot) = (self.config.node, self.boot);
        let before = self.current.as_ref().map(|current| &current.view);
        let next_view = &next.view;
        assert!(
            self.may_enter(next_view),
            "{node} in boot {boot} cannot go from {before:?} to {next_view:?}"
        );
        self.current = Some(next);
        self.leases.enter_view(now_us);
    }

    pub fn send(&self, to: NodeId, body: MessageBody, step: &mut Step) {
        if to == self.config.node {
            step.own.push_back(body);
        } else {
            let message = RingMessage { view: self.number(), body };
            step.push(Effect::Send { to, message });
        }
    }

    /// Sends to all members, including this node if it is one.
    pub fn send_members(&self, body: &MessageBody, step: &mut Step) {
        for node in self.current.iter().flat_map(|current| &current.view.members) {
            self.send(*node, body.clone(), step);
        }
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::dfs::FileSystemId;

    use super::*;

    #[test]
    #[should_panic(expected = "in boot 3 cannot go from Some(View { system: ")]
    fn a_node_does_not_go_back_to_an_earlier_view() {
        let first = View::founded_by(FileSystemId(1), NodeId(1), 8, 3);
        let second = first.followed_by([NodeId(1), NodeId(2)].into(), true).unwrap();
        let config = Config::new(FileSystemId(1), NodeId(1));
        let leases = Leases::new(config.lease_us, 0, true);
        let mut here = RingMembership {
            config,
            boot: 3,
            current: Some(CurrentView::new(first.clone())),
            leases,
        };
        here.enter(CurrentView::new(second), 1);
        assert_eq!((here.number(), here.may_enter(&first)), (2, false));
        here.enter(CurrentView::new(first), 2);
    }
}
