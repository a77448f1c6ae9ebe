//! Views: who the members are, agreed upon one view after another.
//!
//! View n+1 is chosen by a majority of the members of view n (`paxos.rs`), so that there is never more than one view of a
//! number. Whatever is written is written in a view, and refused by whoever knows a later one.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use eyas_types::dfs::{FileSystemId, NodeId};
use serde::{Deserialize, Serialize};

/// Partitions of a file system whose founder was not told otherwise.
pub const DEFAULT_PARTITIONS: u16 = 1024;
/// So many sets of members can be sources of a view. With more, no view is proposed until one is settled.
pub const MAX_SOURCES: usize = 16;

/// Who the members are, from one moment to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Of which file system: as the founder said, for ever.
    pub system: FileSystemId,
    /// Counts from 1; its upper half is the era, see `recover.rs`.
    pub number: u64,
    /// Whose ring it is. Never empty.
    pub members: BTreeSet<NodeId>,
    /// Into how many partitions names fall: as the founder said, for ever.
    pub partitions: u16,
    /// How many nodes may be lost at once without loss of a record, and one: as the founder said, for ever.
    pub replication: u8,
    /// The last view that was known to be settled when this one was proposed: all that was acknowledged before it was
    /// in it with a quorum.
    pub base: u64,
    /// The members of `base` and of the views after it, before this: whatever was acknowledged is with a quorum of one of
    /// these. Each set once.
    pub sources: Vec<BTreeSet<NodeId>>,
    /// Members of `sources` that a person gave up: what they have does not count.
    pub lost: BTreeSet<NodeId>,
}

impl View {
    /// The first view, of one node.
    pub fn founded_by(system: FileSystemId, node: NodeId, partitions: u16, replication: u8) -> Self {
        let (sources, lost) = Default::default();
        View { system, number: 1, members: [node].into(), partitions, replication, base: 1, sources, lost }
    }

    /// The view after this one, with these members. None if there would be too many sources.
    pub fn followed_by(&self, members: BTreeSet<NodeId>, is_settled: bool) -> Option<View> {
        let (base, mut sources, lost) = match is_settled {
            true => (self.number, Vec::new(), BTreeSet::new()),
            false => (self.base, self.sources.clone(), self.lost.clone()),
        };
        if !sources.contains(&self.members) {
            sources.push(self.members.clone());
        }
        let number = self.number + 1;
        (sources.len() <= MAX_SOURCES).then_some(View { number, members, base, sources, lost, ..*self })
    }

    /// How many nodes keep each record: as many as can be lost beside those that a quorum needs.
    pub fn replicas_of(&self, members: usize) -> usize {
        (2 * usize::from(self.replication) - 1).min(members)
    }
}

/// Of `replicas` nodes, so many must have a record before it is acknowledged: a majority, and enough that one remains
/// when one fewer than `replication` are lost.
pub fn write_quorum(replicas: usize, replication: u8) -> usize {
    (replicas / 2 + 1).max(replicas.min(replication.into()))
}

/// Of `replicas` nodes, so many must be asked to hear of whatever was acknowledged.
pub fn read_quorum(replicas: usize, replication: u8) -> usize {
    replicas - write_quorum(replicas, replication) + 1
}

/// Of `members`, so many choose a view.
pub fn majority(members: usize) -> usize {
    members / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorums_meet_and_outlive_losses() {
        for replication in 1..6_u8 {
            let view = View::founded_by(FileSystemId(1), NodeId(1), 8, replication);
            for members in 1..20 {
                let replicas = view.replicas_of(members);
                let (write, read) = (write_quorum(replicas, replication), read_quorum(replicas, replication));
                assert!(write + read > replicas && 2 * write > replicas && write <= replicas);
                // With one fewer lost than the replication, of enough nodes, all that was acknowledged is still read.
                let lost = usize::from(replication) - 1;
                assert!(members <= lost || replicas.saturating_sub(lost) >= read || replicas <= lost);
            }
        }
    }

    #[test]
    fn sources_are_all_since_the_last_settled_view() {
        let [a, b, c] = [1, 2, 3].map(NodeId);
        let first = View::founded_by(FileSystemId(1), a, 8, 3);
        let second = first.followed_by([a, b].into(), true).unwrap();
        assert_eq!((second.number, second.base, &second.sources[..]), (2, 1, &[[a].into()][..]));
        let third = second.followed_by([a, b, c].into(), false).unwrap();
        assert_eq!((third.base, &third.sources[..]), (1, &[[a].into(), [a, b].into()][..]));
        let back = third.followed_by([a, b].into(), false).unwrap().followed_by([a].into(), false).unwrap();
        assert_eq!(back.sources.len(), 3, "each set once");
        assert_eq!(back.followed_by([b].into(), true).unwrap().sources, [[a].into()]);
    }
}
