//! Good-cache-compute (GCC): MCH while utilisation is at its threshold, MCU while it is below. For
//! example, at a threshold of 0.9 and with 32 processors, tasks wait for holders while 29 or more
//! have a task.

use super::{Fallback, PlacementRules, WaitsFor};
use crate::state::Utilisation;

pub(super) struct GoodCacheCompute {
    pub utilisation_threshold: f64,
}

impl PlacementRules for GoodCacheCompute {
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Holders
    }

    fn fallback(&self, utilisation: Utilisation) -> Fallback {
        if utilisation.is_at_least(self.utilisation_threshold) {
            Fallback::OnlyBestHolder
        } else {
            Fallback::AnyTask
        }
    }
}
