//! Provisioning: how many nodes to ask of a batch system and when, and which nodes to give back
//! (data-diffusion §2.1).
//!
//! [`Provisioner`] is a pure state machine beside the scheduler. It is told how much work there is
//! and which nodes are there. It says what to request, what to withdraw, and which nodes to drain.
//! A policy decides how many nodes the work is worth, and how they are requested: batch systems
//! grant small requests sooner, and few requests sooner.
//!
//! [`PoolDecider`] drives it for a real batch system, whose answers are lost, late or wrong: it
//! decides what becomes of each request, and which nodes are the pool's.
//!
//! It must never read a clock or know where tasks run. Adding a policy touches its own file and the
//! list in `policies/mod.rs`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod event;
mod nodes;
mod policies;
mod pool;
mod provisioner;
#[cfg(test)]
mod tests;
mod work_meter;

pub use event::{Config, Effect, Event, Mode, NodeRequestId, OutstandingWork};
pub use nodes::MAX_AWAY;
pub use pool::{
    BatchEnd, BatchJobId, BatchReport, BatchState, DepartedNode, ExcludedHost, FittingWork,
    MAX_FAILURES, MAX_UNKNOWN, NodeShape, NodeStanding, NodeTraces, PoolConfig, PoolCounts,
    PoolDecider, PoolEffect, PoolEvent, PoolNodeState, PoolOffer, PoolRequest, PoolStatus,
    RememberedRequest, RequestPhase, SavedPool, SubmissionAnswer, request_name, share_work,
};
pub use provisioner::{MAX_REQUESTS, Provisioner};
pub use work_meter::{MAX_EVICTED, WorkMeter};
