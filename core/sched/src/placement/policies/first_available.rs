//! First-available (FA): the oldest task goes to the first free executor, which is told nothing of where data is.

use super::{Fallback, PlacementRules};
use crate::state::Utilisation;

pub(super) struct FirstAvailable;

impl PlacementRules for FirstAvailable {
    fn is_data_aware(&self) -> bool {
        false
    }

    fn may_hold_back(&self) -> bool {
        false
    }

    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::AnyTask
    }
}
