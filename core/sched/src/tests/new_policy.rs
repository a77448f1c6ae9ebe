//! Adding a placement policy takes its rules alone: this one is added here.

use super::*;
use crate::placement::{PlacementRules, ReplicaUse, WaitsFor};

/// Waits for holders until half of all processors are busy, the other way round than
/// good-cache-compute.
struct HoldersWhileIdle;

impl PlacementRules for HoldersWhileIdle {
    fn replica_use(&self) -> ReplicaUse {
        ReplicaUse::Placement
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Holders
    }

    fn fallback(&self, utilisation: Utilisation) -> Fallback {
        if utilisation.is_at_least(0.5) { Fallback::AnyTask } else { Fallback::OnlyBestHolder }
    }
}

#[test]
fn a_policy_is_its_rules() {
    let mut scheduler = Scheduler::with_rules(Box::new(HoldersWhileIdle), &Config::default());
    scheduler.join(1, 1);
    scheduler.store(1, 1);
    assert_eq!(assigned(&scheduler.submit(0, &[1])), [(1, 0)]);
    assert_eq!(assigned(&scheduler.submit(1, &[1])), [(1, 1)]);
    // One of four processors is busy: the task waits for the holder.
    scheduler.join(2, 3);
    assert_eq!(assigned(&scheduler.submit(2, &[1])), []);
    // Two of four are busy: it goes to any.
    let effects = scheduler.submit(3, &[9]);
    assert_eq!(assigned(&effects), [(2, 3), (2, 2)]);
}
