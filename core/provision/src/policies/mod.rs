//! Provisioning policies: how many nodes the work is worth, and how they are requested.
//!
//! Adding a policy touches its own file and [`of`].

mod additive;
mod all_at_once;
mod demand;
mod exponential;
mod one_at_a_time;

use alloc::boxed::Box;

use eyas_types::ProvisioningPolicy;

use crate::event::OutstandingWork;

/// One provisioning policy.
pub(crate) trait Provisioning: Send {
    /// The number of nodes with `slots` slots that the work is worth, while `arriving_per_us` tasks
    /// arrive in a microsecond. For example 4 nodes with 4 slots for 10 tasks that wait and 3 that
    /// run.
    fn wanted(&self, work: &OutstandingWork, _arriving_per_us: f64, slots: u32) -> u64 {
        (work.waiting + work.running).div_ceil(slots.into())
    }

    /// The largest size of the next request, after `earlier` requests since there were last enough
    /// nodes.
    fn request(&self, earlier: u32) -> u32;

    /// Whether nodes that are not idle are drained when fewer nodes would have been enough for the
    /// whole idle time.
    fn consolidates(&self) -> bool {
        false
    }
}

/// The policy of that name.
pub(crate) fn of(policy: ProvisioningPolicy, target_us: u64) -> Box<dyn Provisioning> {
    match policy {
        ProvisioningPolicy::OneAtATime => Box::new(one_at_a_time::OneAtATime),
        ProvisioningPolicy::Additive => Box::new(additive::Additive),
        ProvisioningPolicy::Exponential => Box::new(exponential::Exponential),
        ProvisioningPolicy::AllAtOnce => Box::new(all_at_once::AllAtOnce),
        ProvisioningPolicy::Demand => Box::new(demand::DemandDriven { target_us }),
    }
}
