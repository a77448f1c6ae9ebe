//! Cost: a task goes where it would be done the soonest, by what waiting, fetching and computing are estimated to take.

use super::{Fallback, PlacementRules};
use crate::state::Utilisation;

pub(super) struct Cost;

impl PlacementRules for Cost {
    fn may_hold_back(&self) -> bool {
        true
    }

    fn has_homes(&self) -> bool {
        true
    }

    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::Soonest
    }
}
