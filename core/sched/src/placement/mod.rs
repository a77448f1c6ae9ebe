//! Placement policies: what an executor may take when nothing that waits is entirely local to it.
//!
//! Adding a policy touches its own file and [`of`].

mod cost;
mod first_available;
mod good_cache_compute;
mod max_cache_hit;
mod max_compute_util;

use alloc::boxed::Box;

use eyas_types::PlacementPolicy;

/// Share of the processors of all executors that have a task (data-diffusion §2.3: "processor utilization").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilisation {
    /// Processors with a task, in thousandths.
    pub busy_milli: u64,
    /// All processors, in thousandths.
    pub total_milli: u64,
}

impl Utilisation {
    /// Whether the busy share is at least `threshold` (0 ..= 1).
    pub fn is_at_least(self, threshold: f64) -> bool {
        self.busy_milli as f64 >= threshold * self.total_milli as f64
    }
}

/// What an executor that asks for work may take beyond tasks whose inputs it all holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Tasks of which nobody holds more than it does, and tasks of which nobody holds anything; else it waits.
    OnlyBestHolder,
    /// The task of which it holds the largest share, else the oldest.
    AnyTask,
    /// Tasks that are done on it no later than where they are lined up, and tasks of which nobody holds anything.
    Soonest,
}

/// One placement policy.
pub trait Placement: Send {
    /// Whether replicas count at all. If not: no search, no hints, no caching.
    fn is_data_aware(&self) -> bool {
        true
    }

    /// Whether it ever answers other than [`Otherwise::AnyTask`].
    fn may_hold_back(&self) -> bool;

    /// Whether tasks are lined up where they would be done the soonest.
    fn lines_up(&self) -> bool {
        false
    }

    /// What an executor may take now.
    fn otherwise(&self, utilisation: Utilisation) -> Otherwise;
}

/// The policy of that name.
pub fn of(policy: PlacementPolicy, utilisation_threshold: f64) -> Box<dyn Placement> {
    match policy {
        PlacementPolicy::FirstAvailable => Box::new(first_available::FirstAvailable),
        PlacementPolicy::MaxCacheHit => Box::new(max_cache_hit::MaxCacheHit),
        PlacementPolicy::MaxComputeUtil => Box::new(max_compute_util::MaxComputeUtil),
        PlacementPolicy::Cost => Box::new(cost::Cost),
        PlacementPolicy::GoodCacheCompute => Box::new(good_cache_compute::GoodCacheCompute { utilisation_threshold }),
    }
}
