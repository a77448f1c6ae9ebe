//! Placement policies: what an executor may take when it holds no waiting task's inputs entirely.
//!
//! Adding a policy touches its own file and [`of`].

mod cost;
mod first_available;
mod good_cache_compute;
mod max_cache_hit;
mod max_compute_util;

use alloc::boxed::Box;

use eyas_types::PlacementPolicy;

use crate::state::Utilisation;

/// What an executor that asks for work may take beyond tasks whose inputs it holds entirely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// Tasks of which no executor holds more, and tasks of which no executor holds anything; otherwise it waits.
    OnlyBestHolder,
    /// The task of which it holds the largest share, otherwise the oldest.
    AnyTask,
    /// Tasks that are done on it no later than at their home, and tasks of which no executor holds anything.
    Soonest,
}

/// One placement policy.
pub(crate) trait PlacementRules: Send {
    /// Whether replicas count at all. If not, there is no search, and there are no hints and no caching.
    fn is_data_aware(&self) -> bool {
        true
    }

    /// Whether [`fallback`](Self::fallback) is ever other than [`Fallback::AnyTask`].
    fn may_hold_back(&self) -> bool;

    /// Whether each waiting task gets a home: the executor where it would be done the soonest.
    fn has_homes(&self) -> bool {
        false
    }

    /// What an executor may take now.
    fn fallback(&self, utilisation: Utilisation) -> Fallback;
}

/// The policy of that name.
pub(crate) fn of(policy: PlacementPolicy, utilisation_threshold: f64) -> Box<dyn PlacementRules> {
    match policy {
        PlacementPolicy::FirstAvailable => Box::new(first_available::FirstAvailable),
        PlacementPolicy::MaxCacheHit => Box::new(max_cache_hit::MaxCacheHit),
        PlacementPolicy::MaxComputeUtil => Box::new(max_compute_util::MaxComputeUtil),
        PlacementPolicy::Cost => Box::new(cost::Cost),
        PlacementPolicy::GoodCacheCompute => Box::new(good_cache_compute::GoodCacheCompute { utilisation_threshold }),
    }
}
