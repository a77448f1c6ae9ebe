//! Max-cache-hit (MCH): a task goes to the executor that holds the most of its data, and waits if that one is busy.

use super::{Otherwise, Placement, Utilisation};

pub(super) struct MaxCacheHit;

impl Placement for MaxCacheHit {
    fn may_hold_back(&self) -> bool {
        true
    }

    fn otherwise(&self, _: Utilisation) -> Otherwise {
        Otherwise::OnlyBestHolder
    }
}
