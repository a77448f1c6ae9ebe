//! The nodes that are there, with the counts and orders that decisions ask for, so that no decision
//! walks over all nodes.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::ExecutorId;

/// Number of departed nodes whose former state is remembered. Beyond it, the node that left first
/// is forgotten, and counts as new if it comes back.
pub const MAX_AWAY: usize = 4_096;

/// `NodeState::may_become` has the moves. A node may leave in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Staying,
    Draining,
    Released,
}

impl NodeState {
    /// Whether a node may go from this state to the next one.
    fn may_become(self, next: NodeState) -> bool {
        matches!(
            (self, next),
            (NodeState::Staying, NodeState::Draining) | (NodeState::Draining, NodeState::Released)
        )
    }
}

#[derive(Debug)]
struct ProvisionedNode {
    /// It was requested here, so it can be given back.
    is_ours: bool,
    joined_us: u64,
    /// The time since which it has had no task.
    idle_since_us: Option<u64>,
    /// It may be idle for this much longer than nodes that hold nothing.
    kept_us: u64,
    state: NodeState,
}

impl ProvisionedNode {
    /// Whether it may be told to leave.
    fn may_leave(&self) -> bool {
        self.is_ours && self.state == NodeState::Staying
    }

    /// The time since which it counts as idle: later than it is idle if what it holds is worth
    /// keeping. For example, since 160 s if it is idle since 100 s and kept for 60 s: with an idle
    /// time of 30 s, it is drained at 190 s.
    fn counts_idle_since_us(&self) -> Option<u64> {
        self.idle_since_us.map(|since_us| since_us + self.kept_us)
    }
}

#[derive(Default)]
pub(crate) struct NodePool {
    nodes: BTreeMap<ExecutorId, ProvisionedNode>,
    /// Nodes that are gone without having been given back, the last one at the end. Perhaps only
    /// the connection broke.
    away: VecDeque<(ExecutorId, ProvisionedNode)>,
    staying: u32,
    ours: u32,
    /// Nodes that may leave, by the time at which they joined.
    by_age: BTreeSet<(u64, ExecutorId)>,
    /// Of these, nodes without a task, by the time since which they count as idle.
    by_idleness: BTreeSet<(u64, ExecutorId)>,
}

impl NodePool {
    /// Adds a node. A node that is back resumes its former state: its walltime has not begun anew.
    /// Whether it is draining.
    pub fn join(
        &mut self,
        now_us: u64,
        id: ExecutorId,
        is_ours: bool,
        was: Option<ExecutorId>,
    ) -> bool {
        let index = self.away.iter().position(|(away, _)| Some(*away) == was);
        let before = index.and_then(|index| self.away.remove(index));
        let (joined_us, idle_since_us) = (now_us, Some(now_us));
        let new = ProvisionedNode {
            is_ours,
            joined_us,
            idle_since_us,
            kept_us: 0,
            state: NodeState::Staying,
        };
        let node = before.map_or(new, |(_, before)| ProvisionedNode {
            idle_since_us,
            kept_us: 0,
            ..before
        });
        let is_draining = node.state == NodeState::Draining;
        self.count(id, &node);
        assert!(self.nodes.insert(id, node).is_none(), "{id} is there already");
        is_draining
    }

    pub fn leave(&mut self, id: ExecutorId) {
        let node = self.take(id);
        if node.state != NodeState::Released {
            self.away.push_back((id, node));
        }
        if self.away.len() > MAX_AWAY {
            self.away.pop_front();
        }
    }

    pub fn set_idle_since(&mut self, id: ExecutorId, idle_since_us: Option<u64>) {
        self.change(id, |node| (node.idle_since_us, node.kept_us) = (idle_since_us, 0));
    }

    /// The node may be idle for this much longer than others, because of what it holds.
    pub fn keep(&mut self, id: ExecutorId, kept_us: u64) {
        self.change(id, |node| node.kept_us = kept_us);
    }

    /// Whether the node may be told to leave.
    pub fn may_leave(&self, id: ExecutorId) -> bool {
        self.nodes.get(&id).is_some_and(ProvisionedNode::may_leave)
    }

    pub fn drain(&mut self, id: ExecutorId) {
        self.enter(id, NodeState::Draining);
    }

    pub fn release(&mut self, id: ExecutorId) {
        self.enter(id, NodeState::Released);
    }

    /// Moves a node to another state.
    ///
    /// # Panics
    /// If the move is not allowed.
    fn enter(&mut self, id: ExecutorId, state: NodeState) {
        self.change(id, |node| {
            let before = node.state;
            assert!(
                before.may_become(state),
                "{id} cannot go from {before:?} to {state:?}: {node:?}"
            );
            node.state = state;
        });
    }

    /// Nodes that stay.
    pub fn staying(&self) -> u32 {
        self.staying
    }

    /// Nodes that were requested here.
    pub fn ours(&self) -> u32 {
        self.ours
    }

    /// The number of nodes that may be told to leave.
    pub fn leavable(&self) -> u32 {
        self.by_age.len() as u32
    }

    /// The time at which the oldest node that may leave joined.
    pub fn oldest_joined_us(&self) -> Option<u64> {
        self.by_age.first().map(|(joined_us, _)| *joined_us)
    }

    /// The time since which the node that counts as idle for the longest, and may leave, is idle.
    pub fn longest_idle_since_us(&self) -> Option<u64> {
        self.by_idleness.first().map(|(since_us, _)| *since_us)
    }

    /// Nodes that may leave and joined no later than that, in the order of their ids.
    pub fn joined_until(&self, until_us: u64) -> Vec<ExecutorId> {
        let mut ids: Vec<_> = until(&self.by_age, until_us).collect();
        ids.sort_unstable();
        ids
    }

    /// Nodes that may leave and count as idle since then or longer, the longest first, no more than
    /// `most`.
    pub fn idle_until(&self, until_us: u64, most: u32) -> Vec<ExecutorId> {
        until(&self.by_idleness, until_us).take(most as usize).collect()
    }

    /// The youngest nodes that may leave, no more than `most`; without those that are idle and kept
    /// for what they hold.
    pub fn youngest(&self, most: u32) -> Vec<ExecutorId> {
        let youngest = self.by_age.iter().rev().map(|(_, id)| *id);
        youngest
            .filter(|id| self.nodes.get(id).is_some_and(|node| node.kept_us == 0))
            .take(most as usize)
            .collect()
    }

    /// All nodes that may leave.
    pub fn all_leavable(&self) -> Vec<ExecutorId> {
        self.by_age.iter().rev().map(|(_, id)| *id).collect()
    }

    fn change(&mut self, id: ExecutorId, change: impl FnOnce(&mut ProvisionedNode)) {
        let mut node = self.take(id);
        change(&mut node);
        self.count(id, &node);
        self.nodes.insert(id, node);
    }

    fn take(&mut self, id: ExecutorId) -> ProvisionedNode {
        let node = self.nodes.remove(&id).unwrap_or_else(|| panic!("{id} is not there"));
        self.staying -= u32::from(node.state == NodeState::Staying);
        self.ours -= u32::from(node.is_ours);
        self.by_age.remove(&(node.joined_us, id));
        if let Some(since_us) = node.counts_idle_since_us() {
            self.by_idleness.remove(&(since_us, id));
        }
        node
    }

    fn count(&mut self, id: ExecutorId, node: &ProvisionedNode) {
        self.staying += u32::from(node.state == NodeState::Staying);
        self.ours += u32::from(node.is_ours);
        if node.may_leave() {
            self.by_age.insert((node.joined_us, id));
            self.by_idleness.extend(node.counts_idle_since_us().map(|since_us| (since_us, id)));
        }
    }
}

fn until(nodes: &BTreeSet<(u64, ExecutorId)>, until_us: u64) -> impl Iterator<Item = ExecutorId> {
    nodes.iter().take_while(move |(us, _)| *us <= until_us).map(|(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_leaves_step_by_step() {
        let states = || [NodeState::Staying, NodeState::Draining, NodeState::Released];
        let allowed = states().map(|from| states().map(|to| from.may_become(to)));
        assert_eq!(allowed, [[false, true, false], [false, false, true], [false, false, false]]);
    }

    #[test]
    #[should_panic(expected = "cannot go from Staying to Released: ProvisionedNode { is_ours: \
                               true, joined_us: 5")]
    fn a_node_that_was_not_told_to_leave_is_not_given_back() {
        let (mut nodes, id) = (NodePool::default(), ExecutorId(3));
        nodes.join(5, id, true, None);
        nodes.release(id);
    }
}
