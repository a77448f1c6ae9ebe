//! Active storage: all objects are pushed to all nodes, as the dispatcher's decider plans it. Along
//! a spanning tree this happens before the first task arrives; in chains it happens while tasks
//! run. It is the baseline for fetching on demand.

use eyas_sched::{Event, Need, PushId, Recipients};
use eyas_types::{Distribution, Resources};

use super::world::Setup;
use crate::cluster::Policies;

/// The only push of each dispatcher.
const PUSH: PushId = PushId(1);

/// A push in progress. Each dispatcher pushes to its own nodes.
pub(super) struct Push {
    distribution: Distribution,
    /// Number of dispatchers whose push has not ended.
    pushing: u32,
}

impl Push {
    /// The push that the policies ask for.
    pub fn new(policies: &Policies, pushing: u32) -> Option<Self> {
        let distribution = policies.distribution.filter(|_| policies.caches())?;
        Some(Push { distribution, pushing })
    }

    /// For each dispatcher, the event that begins its push.
    pub fn begin(&self, setup: &Setup) -> Vec<Event> {
        let objects = 0..setup.workload.objects();
        let objects: Box<[_]> =
            objects.map(|object| (setup.id_of(object), setup.size_bytes(object))).collect();
        let event = || Event::Push {
            push: PUSH,
            objects: objects.clone(),
            to: Recipients::Takers([Need::from(Resources::default())].into()),
            distribution: self.distribution,
        };
        (0..self.pushing).map(|_| event()).collect()
    }

    /// Whether tasks wait until all nodes have all objects.
    pub fn is_first(&self) -> bool {
        self.distribution == Distribution::SpanningTree
    }

    /// The push of one dispatcher has ended. Returns whether it was the last.
    pub fn end_of_dispatcher(&mut self) -> bool {
        self.pushing -= 1;
        self.pushing == 0
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::PlacementPolicy;

    use super::*;
    use crate::clock::SECOND;
    use crate::cluster::{Policies, SimCluster, SimStorage};
    use crate::nodes::Failures;
    use crate::outcome::RunOutcome;
    use crate::run::tests::{pairs, plain};

    /// Ten objects of 10 MB, which pass one card in 0.8 s, are pushed to eight nodes. Tasks take no
    /// time.
    fn pushed(distribution: Distribution) -> RunOutcome {
        let mut cluster = plain(8, 1);
        cluster.storage = SimStorage { bytes_per_s: 1e9, ..cluster.storage };
        let distribution = Some(distribution);
        let policies = Policies { distribution, ..Policies::of_eyas(PlacementPolicy::Cost) };
        let outcome = crate::run(&cluster, &policies, &pairs(5, 0), 1);
        assert!(outcome.is_complete());
        assert_eq!(outcome.storage_bytes, 100_000_000, "each object once");
        outcome
    }

    #[test]
    fn a_spanning_tree_takes_a_round_for_each_doubling() {
        let outcome = pushed(Distribution::SpanningTree);
        assert!((3.2..3.21).contains(&outcome.makespan_s()), "{}", outcome.makespan_s());
        assert_eq!(outcome.peer_bytes, 700_000_000);
        assert_eq!(outcome.read_shares(), [1.0, 0.0, 0.0], "all is there before tasks are");
    }

    #[test]
    fn a_chain_delivers_to_all_as_soon_as_to_one() {
        let outcome = pushed(Distribution::Chain);
        assert!(outcome.makespan_s() < 0.9, "{}", outcome.makespan_s());
    }

    #[test]
    fn long_chains_need_no_deep_stack() {
        let distribution = Some(Distribution::Chain);
        let policies = Policies { distribution, ..Policies::of_eyas(PlacementPolicy::Cost) };
        // Some nodes are lost while all nodes after them in the chain wait.
        let failures = Failures { lost_after_ns: Some(20 * SECOND), ..Failures::default() };
        let cluster = SimCluster { failures, ..plain(800, 1) };
        let run = move || crate::run(&cluster, &policies, &pairs(1, 5_000_000), 1);
        let outcome =
            std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap();
        assert!(outcome.is_complete() && outcome.lost_nodes > 100);
    }

    #[test]
    fn nodes_without_room_do_without() {
        let distribution = Some(Distribution::SpanningTree);
        let cluster = SimCluster { cache_bytes: 50_000_000, ..plain(4, 1) };
        let policies = Policies { distribution, ..Policies::of_eyas(PlacementPolicy::Cost) };
        assert!(crate::run(&cluster, &policies, &pairs(5, 0), 1).is_complete());
    }
}
