//! Max-compute-util (MCU): an executor that can work does, preferably on data it holds.

use super::{Fallback, PlacementRules};
use crate::state::Utilisation;

pub(super) struct MaxComputeUtil;

impl PlacementRules for MaxComputeUtil {
    fn fallback(&self, _: Utilisation) -> Fallback {
        Fallback::AnyTask
    }
}
