//! Max-cache-hit (MCH): a task goes to the executor that holds the most of its data, and waits if that one is busy.

use super::{Fallback, PlacementRules};
use crate::state::Utilisation;

pub(super) struct MaxCacheHit;

impl PlacementRules for MaxCacheHit {
    fn may_hold_back(&self) -> bool {
        true
    }

    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::OnlyBestHolder
    }
}
