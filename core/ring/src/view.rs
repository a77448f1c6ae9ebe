//! Views: the members agree on one view after another.
//!
//! View n+1 is chosen by a majority of the members of view n (`paxos.rs`), so there is never more
//! than one view with a number. Every write belongs to a view, and is refused by nodes that know a
//! later one.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use eyas_types::dfs::{FileSystemId, NodeId};
use serde::{Deserialize, Serialize};

/// Default number of partitions of a file system.
pub const DEFAULT_PARTITIONS: u16 = 1024;
/// Maximum number of sources of a view. When it is reached, no view is proposed until the current
/// one is settled.
pub const MAX_SOURCES: usize = 16;

/// The members of the file system during some period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The file system. Fixed when it was founded.
    pub system: FileSystemId,
    /// Number of the view, from 1. The upper half is the era; see `recover.rs`.
    pub number: u64,
    /// The nodes on the ring. Never empty.
    pub members: BTreeSet<NodeId>,
    /// Number of partitions. Fixed when the file system was founded.
    pub partitions: u16,
    /// Replication of records: a record survives the loss of `replication - 1` nodes. Fixed when
    /// the file system was founded.
    pub replication: u8,
    /// The last view that was known to be settled when this one was proposed. All entries that
    /// were acknowledged before had a quorum in it.
    pub base: u64,
    /// The member sets of `base` and of the views between `base` and this one, each set once.
    /// Every acknowledged entry has a quorum in one of them.
    pub sources: Vec<BTreeSet<NodeId>>,
    /// Members of `sources` that a person has given up. Their entries do not count.
    pub lost: BTreeSet<NodeId>,
}

impl View {
    /// The first view, with one node.
    pub fn founded_by(
        system: FileSystemId,
        node: NodeId,
        partitions: u16,
        replication: u8,
    ) -> Self {
        let (sources, lost) = Default::default();
        View {
            system,
            number: 1,
            members: [node].into(),
            partitions,
            replication,
            base: 1,
            sources,
            lost,
        }
    }

    /// The next view, with these members. `None` if it would have too many sources.
    pub fn followed_by(&self, members: BTreeSet<NodeId>, is_settled: bool) -> Option<View> {
        let (base, mut sources, lost) = if is_settled {
            (self.number, Vec::new(), BTreeSet::new())
        } else {
            (self.base, self.sources.clone(), self.lost.clone())
        };
        if !sources.contains(&self.members) {
            sources.push(self.members.clone());
        }
        let number = self.number + 1;
        (sources.len() <= MAX_SOURCES).then_some(View {
            number,
            members,
            base,
            sources,
            lost,
            ..*self
        })
    }

    /// Whether a node may go from the view `before` to this one; `None` is a node that has no view
    /// yet. Number and base grow along one history. After a recovery the base may be lower: the
    /// members that continue may not know what the lost ones knew.
    pub(crate) fn may_follow(&self, before: Option<&View>) -> bool {
        let is_of = |before: &View| {
            let fixed = |view: &View| (view.system, view.partitions, view.replication);
            fixed(self) == fixed(before) && before.number < self.number && !self.sources.is_empty()
        };
        let has_members =
            !self.members.is_empty() && self.sources.iter().all(|members| !members.is_empty());
        has_members
            && self.sources.len() <= MAX_SOURCES
            && self.base <= self.number
            && before.is_none_or(is_of)
    }

    /// Number of nodes that keep each record: a quorum, plus the nodes that may be lost. With
    /// replication 3, 5 of 8 members keep a record, and all of 4 members.
    pub fn replicas_of(&self, members: usize) -> usize {
        (2 * usize::from(self.replication) - 1).min(members)
    }
}

/// Number of `replicas` that must store an entry before it is acknowledged: a majority, and enough
/// that one remains if `replication - 1` nodes are lost. With replication 3: of 5 replicas 3, of 4
/// also 3, and of 2 both.
pub fn write_quorum(replicas: usize, replication: u8) -> usize {
    (replicas / 2 + 1).max(replicas.min(replication.into()))
}

/// Number of `replicas` that must be asked to find every acknowledged entry. With replication 3: of
/// 5 replicas 3, since 3 others have stored the entry and 3 + 3 > 5; of 4 replicas 2, and of 2
/// replicas 1.
pub fn read_quorum(replicas: usize, replication: u8) -> usize {
    replicas - write_quorum(replicas, replication) + 1
}

/// Number of `members` that choose a view: of 4 members 3, and of 5 also 3.
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
                let (write, read) =
                    (write_quorum(replicas, replication), read_quorum(replicas, replication));
                assert!(write + read > replicas && 2 * write > replicas && write <= replicas);
                // If fewer nodes than the replication are lost, and enough remain, every
                // acknowledged entry can still be read.
                let lost = usize::from(replication) - 1;
                assert!(
                    members <= lost || replicas.saturating_sub(lost) >= read || replicas <= lost
                );
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
        let back = third
            .followed_by([a, b].into(), false)
            .unwrap()
            .followed_by([a].into(), false)
            .unwrap();
        assert_eq!(back.sources.len(), 3, "each set once");
        assert_eq!(back.followed_by([b].into(), true).unwrap().sources, [[a].into()]);
    }
    #[test]
    fn a_view_follows_only_earlier_views_of_its_file_system() {
        let [a, b] = [1, 2].map(NodeId);
        let first = View::founded_by(FileSystemId(1), a, 8, 3);
        let second = first.followed_by([a, b].into(), true).unwrap();
        assert!(
            first.may_follow(None) && second.may_follow(None) && second.may_follow(Some(&first))
        );
        assert!(
            !second.may_follow(Some(&second)) && !first.may_follow(Some(&second)),
            "only a later one"
        );
        let wrong = [
            View { system: FileSystemId(2), ..second.clone() },
            View { partitions: 9, ..second.clone() },
            View { replication: 2, ..second.clone() },
            View { members: BTreeSet::new(), ..second.clone() },
            View { sources: Vec::new(), ..second.clone() },
            View { sources: [BTreeSet::new()].into(), ..second.clone() },
            View { sources: (0..17).map(|node| [NodeId(node)].into()).collect(), ..second.clone() },
            View { base: 3, ..second },
        ];
        wrong.iter().for_each(|view| assert!(!view.may_follow(Some(&first)), "{view:?}"));
    }
}
