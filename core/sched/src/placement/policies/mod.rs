//! Placement policies: what an executor may take when it holds no waiting task's inputs entirely.
//!
//! Adding a policy touches its own file and [`of`].

mod cost;
mod first_available;
mod first_cache_available;
mod good_cache_compute;
mod max_cache_hit;
mod max_compute_util;

use alloc::boxed::Box;

use eyas_types::PlacementPolicy;

use crate::state::Utilisation;

/// What an executor that asks for work may take beyond tasks whose inputs it holds entirely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// Tasks of which no executor holds more, and tasks of which no executor holds anything;
    /// otherwise it waits.
    OnlyBestHolder,
    /// The task of which it holds the largest share, otherwise the oldest.
    AnyTask,
    /// Tasks that are done on it no later than at their home, and tasks of which no executor holds
    /// anything.
    Soonest,
}

/// What replicas of inputs are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReplicaUse {
    /// Nothing: executors keep none.
    None,
    /// Executors keep them, and fetch from each other. Tasks go anywhere.
    Hints,
    /// Tasks also go where their inputs are.
    Placement,
}

/// What a task may wait for although an executor is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Nothing: [`PlacementRules::fallback`] is always [`Fallback::AnyTask`].
    Nothing,
    /// The executors that hold the most of its inputs.
    Holders,
    /// Its home: the executor where it would be done the soonest. Each waiting task gets one.
    Home,
}

/// One placement policy: all that the scheduler asks of it.
pub(crate) trait PlacementRules: Send {
    /// What replicas are good for; asked once.
    fn replica_use(&self) -> ReplicaUse {
        ReplicaUse::Placement
    }

    /// What tasks may wait for; asked once.
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Nothing
    }

    /// What an executor may take now.
    fn fallback(&self, utilisation: Utilisation) -> Fallback;
}

/// The policy of that name.
pub(crate) fn of(policy: PlacementPolicy, utilisation_threshold: f64) -> Box<dyn PlacementRules> {
    match policy {
        PlacementPolicy::FirstAvailable => Box::new(first_available::FirstAvailable),
        PlacementPolicy::FirstCacheAvailable => {
            Box::new(first_cache_available::FirstCacheAvailable)
        }
        PlacementPolicy::MaxCacheHit => Box::new(max_cache_hit::MaxCacheHit),
        PlacementPolicy::MaxComputeUtil => Box::new(max_compute_util::MaxComputeUtil),
        PlacementPolicy::Cost => Box::new(cost::Cost),
        PlacementPolicy::GoodCacheCompute => {
            Box::new(good_cache_compute::GoodCacheCompute { utilisation_threshold })
        }
    }
}
