//! Where tasks run: the wait queue, the catalog of replicas, and placement (data-diffusion §2.3).
//!
//! [`Scheduler`] is a pure state machine: facts come in as [`Event`]s with the time they took, what
//! is to be done goes out as [`Effect`]s, and the same events give the same effects. It must never
//! read a clock, block, or know what a task runs.
//!
//! Each part has an owner: `state` is what is known, `placement` decides what executors are given,
//! `replication` which executors get which objects from where, and `estimate` says how soon a task
//! would be done where. [`Scheduler`] routes events between them.
//!
//! The paper scans a window of the queue for each decision. Here an index from each object to the
//! tasks that wait for it, and from each executor to the objects that it holds, finds the same task
//! in a few look-ups. So the window may be the whole queue; see `placement/search.rs`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod estimate;
mod event;
mod explain;
mod hash;
mod outline;
mod placement;
mod replication;
mod scheduler;
mod state;
#[cfg(test)]
mod tests;
mod tight_deque;

pub use event::{
    Config, Effect, Event, ExecutorProfile, Hint, Holder, HolderPatience, MAX_HINTS,
    PlacementCommand, PlacementReport, PushId, Recipients,
};
pub use explain::{ExecutorOccupancy, ObjectLocations, TaskPlacement, WaitReason};
pub use eyas_types::{AssignmentEnd, Need};
pub use outline::{NodeOutline, UnstartedClass};
pub use placement::caches;
pub use replication::PushProgress;
pub use scheduler::Scheduler;
pub use state::{Mismatch, Utilisation};
