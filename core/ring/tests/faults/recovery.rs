//! Runs in which more than half of the nodes are lost, a person lets the others continue, and some
//! lost nodes come back.
//!
//! Entries from before may be gone. The rest is a working file system, which loses nothing from
//! then on.

use std::collections::BTreeSet;

use eyas_faults::try_seeds;
use eyas_ring::{FileAnswer, FileOperation, Refusal, majority};
use eyas_types::dfs::NodeId;

use crate::cluster::MS;
use crate::{Run, SEEDS};

/// Time in which missing nodes are noticed and leases expire.
const MISSED_US: u64 = 5_000 * MS;

#[test]
fn the_remaining_nodes_continue_after_a_recovery() {
    try_seeds(SEEDS, |seed| {
        let mut run = Run::new(seed);
        run.break_things();
        run.heal();
        let lost = run.lose_most();
        run.recover(&lost);
        run.break_things();
        run.heal();
        run.check();
    });
}

impl Run {
    /// Loses more than half of the members. Fewer than a majority may come back.
    fn lose_most(&mut self) -> BTreeSet<NodeId> {
        let (_, mut members) = self.view();
        let left = 1 + self.cluster.dice.below((members.len() as u64 - 1) / 2);
        let mut may_return = self.cluster.dice.below(majority(members.len()) as u64);
        while members.len() as u64 > left {
            let place = self.cluster.dice.below(members.len() as u64) as usize;
            let node = members.swap_remove(place);
            self.cluster.crash(node);
            match may_return {
                0 => drop(self.cluster.machines.remove(&node)),
                _ => may_return -= 1,
            }
        }
        let (_, all) = self.view_of(members[0]);
        all.into_iter().filter(|node| !members.contains(node)).collect()
    }

    fn view_of(&self, node: NodeId) -> (u64, Vec<NodeId>) {
        let view = self.cluster.machines[&node]
            .node
            .as_ref()
            .and_then(|node| node.view())
            .expect("it is a member");
        (view.number, view.members.iter().copied().collect())
    }

    fn recover(&mut self, lost: &BTreeSet<NodeId>) {
        self.go_on(MISSED_US);
        let mut asked = self.cluster.up()[0];
        let without = |without: &BTreeSet<NodeId>| FileOperation::Recover {
            without: without.clone(),
            now_s: 7,
        };
        let fewer = lost.iter().skip(1).copied().collect();
        match self.clients.answer(asked, without(&fewer), &mut self.cluster) {
            Err(Refusal::Missing(missing)) => assert_eq!(missing, *lost),
            Err(Refusal::NotLeader { leader, .. }) => asked = leader,
            other => panic!("{other:?}, though not all that are missing were named"),
        }
        let recovered = self.clients.answer(asked, without(lost), &mut self.cluster);
        let left: BTreeSet<NodeId> = self.cluster.up().into_iter().collect();
        assert_eq!(recovered, Ok(FileAnswer::Recovered { members: left }));
        // The second time there is nothing to do.
        self.go_on(MISSED_US);
        assert_eq!(
            self.clients.answer(asked, without(lost), &mut self.cluster),
            Err(Refusal::HasMajority)
        );
        self.clients.begin_anew(&mut self.cluster);
    }
}
