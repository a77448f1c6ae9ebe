//! Where tasks run: the wait queue, the catalog of replicas, and placement (data-diffusion §2.3).
//!
//! [`Scheduler`] is a pure state machine: facts come in as [`Event`]s with the time they happened, what is to be
//! done goes out as [`Effect`]s, and the same events give the same effects. It must never read a clock, block, or
//! know what a task runs.
//!
//! The paper scans a window of the queue for each decision. Here an index from each object to the tasks that wait
//! for it, and from each executor to the objects it holds, finds the same task in a few look-ups, so that the
//! window may be the whole queue; see `search.rs`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod assigned;
mod catalog;
mod choosy;
mod cold;
mod decide;
mod estimate;
mod event;
mod executors;
mod explain;
mod fill;
mod growth;
mod hash;
mod kept;
mod lines;
mod matchmaking;
mod partial;
pub mod placement;
mod push;
mod queue;
mod rates;
mod recall;
mod relay;
mod scheduler;
mod search;
#[cfg(test)]
mod tests;
mod to_search;
mod tree;
mod ways;

pub use catalog::ObjectKey;
pub use event::{Config, Effect, Event, Hint, Holder, MAX_HINTS, PushId, Recipients};
pub use explain::{ExecutorView, ObjectView, TaskView, WaitReason};
pub use eyas_types::{Ended, Need};
pub use matchmaking::{Mismatch, Profile};
pub use push::Received;
pub use scheduler::Scheduler;
