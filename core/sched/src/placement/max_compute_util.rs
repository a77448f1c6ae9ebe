//! Max-compute-util (MCU): an executor that can work does, preferably on data it holds.

use super::{Otherwise, Placement, Utilisation};

pub(super) struct MaxComputeUtil;

impl Placement for MaxComputeUtil {
    fn may_hold_back(&self) -> bool {
        false
    }

    fn otherwise(&self, _: Utilisation) -> Otherwise {
        Otherwise::AnyTask
    }
}
