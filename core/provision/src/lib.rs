//! Provisioning: how many nodes to ask of a batch system and when, and which nodes to give back (data-diffusion §2.1).
//!
//! [`Provisioner`] is a pure state machine beside the scheduler. It is told how much work there is and which nodes are
//! there. It says what to request, what to withdraw, and which nodes to drain. A policy decides how many nodes the work
//! is worth, and how they are requested: batch systems grant small requests sooner, and few requests sooner.
//!
//! It must never read a clock or know where tasks run. Adding a policy touches its own file and the list in
//! `policies/mod.rs`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod event;
mod nodes;
mod policies;
mod provisioner;
#[cfg(test)]
mod tests;
mod work_meter;

pub use event::{Config, Effect, Event, Mode, NodeRequestId, OutstandingWork};
pub use nodes::MAX_AWAY;
pub use provisioner::{MAX_REQUESTS, Provisioner};
pub use work_meter::{MAX_EVICTED, WorkMeter};
