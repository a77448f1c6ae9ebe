//! First-available (FA): the oldest task goes to the first free executor, which is told nothing of where data is.

use super::{Otherwise, Placement, Utilisation};

pub(super) struct FirstAvailable;

impl Placement for FirstAvailable {
    fn is_data_aware(&self) -> bool {
        false
    }

    fn may_hold_back(&self) -> bool {
        false
    }

    fn otherwise(&self, _: Utilisation) -> Otherwise {
        Otherwise::AnyTask
    }
}
