//! Good-cache-compute (GCC): MCH while utilisation is at its threshold, MCU while it is below.

use super::{Otherwise, Placement, Utilisation};

pub(super) struct GoodCacheCompute {
    pub utilisation_threshold: f64,
}

impl Placement for GoodCacheCompute {
    fn may_hold_back(&self) -> bool {
        true
    }

    fn otherwise(&self, utilisation: Utilisation) -> Otherwise {
        if utilisation.is_at_least(self.utilisation_threshold) { Otherwise::OnlyBestHolder } else { Otherwise::AnyTask }
    }
}
