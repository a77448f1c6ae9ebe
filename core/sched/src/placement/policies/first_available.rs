//! First-available (FA): the oldest task goes to the first free executor. Executors cache nothing:
//! every read goes to persistent storage.

use super::{Fallback, PlacementRules, ReplicaUse};
use crate::state::Utilisation;

pub(super) struct FirstAvailable;

impl PlacementRules for FirstAvailable {
    fn replica_use(&self) -> ReplicaUse {
        ReplicaUse::None
    }

    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::AnyTask
    }
}
