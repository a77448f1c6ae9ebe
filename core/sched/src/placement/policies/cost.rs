//! Cost: a task goes where it would be done the soonest, by what waiting, fetching and computing
//! are estimated to take.

use super::{Fallback, PlacementRules, WaitsFor};
use crate::state::Utilisation;

pub(super) struct Cost;

impl PlacementRules for Cost {
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Home
    }

    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::Soonest
    }
}
