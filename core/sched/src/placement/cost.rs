//! Cost: a task goes where it would be done the soonest, by what waiting, fetching and computing are estimated to take.

use super::{Otherwise, Placement, Utilisation};

pub(super) struct Cost;

impl Placement for Cost {
    fn may_hold_back(&self) -> bool {
        true
    }

    fn lines_up(&self) -> bool {
        true
    }

    fn otherwise(&self, _: Utilisation) -> Otherwise {
        Otherwise::Soonest
    }
}
