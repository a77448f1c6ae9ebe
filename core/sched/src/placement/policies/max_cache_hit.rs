//! Max-cache-hit (MCH): a task goes to the executor that holds the most of its data, and waits if
//! that one is busy.

use super::{Fallback, PlacementRules, WaitsFor};
use crate::state::Utilisation;

pub(super) struct MaxCacheHit;

impl PlacementRules for MaxCacheHit {
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Holders
    }

    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::OnlyBestHolder
    }
}
