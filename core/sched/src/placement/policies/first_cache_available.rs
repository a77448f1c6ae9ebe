//! First-cache-available (FCA): the oldest task goes to the first free executor, as under
//! first-available. Executors cache inputs, and are told who else holds them.

use super::{Fallback, PlacementRules, ReplicaUse};
use crate::state::Utilisation;

pub(super) struct FirstCacheAvailable;

impl PlacementRules for FirstCacheAvailable {
    fn replica_use(&self) -> ReplicaUse {
        ReplicaUse::Hints
    }

    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::AnyTask
    }
}
