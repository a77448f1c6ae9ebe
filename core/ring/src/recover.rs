//! Recovery when too many members are lost for good to choose a view. Only a person can know that they never
//! come back.
//!
//! The next view is then not chosen, but made by the first of the remaining members. It is in a later *era*, the upper
//! half of a view's number. So it is later than any view that the missing members could have chosen in the meantime.
//! Entries of the missing members are not asked for. For each partition all remaining members are asked, so that an
//! entry is kept if any of them has it. A member that comes back after all is sent the new view, drops what it had,
//! and joins as a new node would.
//!
//! Recovery must never split a file system that works. It is refused while enough members are heard to choose a view,
//! while a member that is to be given up is considered alive, and unless all missing members are named.

use alloc::collections::BTreeSet;

use eyas_types::dfs::NodeId;

use crate::event::{FileAnswer, Refusal};
use crate::message::MessageBody;
use crate::node::{RingNode, Step};
use crate::view::{View, majority};

/// Position of the era in a view's number.
const ERA_BITS: u32 = 32;

impl RingNode {
    pub(crate) fn recover(&mut self, request: u64, without: &BTreeSet<NodeId>, now_s: u32, step: &mut Step) {
        let answer = self.recovered(without, now_s, step.now_us).map(|view| {
            let members = view.members.clone();
            self.enter_view(view.clone(), step);
            for node in members.iter().filter(|node| **node != self.config.node) {
                self.send(*node, MessageBody::Decided(view.clone()), step);
            }
            FileAnswer::Recovered { members }
        });
        self.answer(request, answer, step);
    }

    /// The view of the remaining members.
    fn recovered(&self, without: &BTreeSet<NodeId>, now_s: u32, now_us: u64) -> Result<View, Refusal> {
        let Some(current) = &self.current else { return Err(Refusal::OtherView { view: 0 }) };
        let view = &current.view;
        let is_heard = |node: &&NodeId| **node == self.config.node || self.leases.is_granted(**node, now_us);
        let left: BTreeSet<NodeId> = view.members.iter().filter(is_heard).copied().collect();
        if left.len() >= majority(view.members.len()) {
            return Err(Refusal::HasMajority);
        }
        let first = left.first().copied().filter(|_| left.contains(&self.config.node)).ok_or(Refusal::NotYet)?;
        if first != self.config.node {
            return Err(Refusal::NotLeader { leader: first, view: view.number });
        }
        let others = view.sources.iter().flatten().filter(|node| !self.paxos.is_alive(**node));
        let missing = view.members.iter().chain(others).filter(|node| !left.contains(node));
        let missing: BTreeSet<NodeId> = missing.copied().collect();
        if missing.iter().any(|node| self.paxos.is_alive(*node)) {
            return Err(Refusal::NotYet);
        }
        if missing != *without {
            return Err(Refusal::Missing(missing));
        }
        let next = view.followed_by(left, self.is_settled()).ok_or(Refusal::NotYet)?;
        let era = ((view.number >> ERA_BITS) + 1).max(now_s.into());
        Ok(View { number: era << ERA_BITS, lost: missing, ..next })
    }
}
