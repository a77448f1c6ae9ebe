//! Decides what one node does with its tasks: which inputs it fetches and when, which objects it
//! evicts for them, and which task starts in which slot.
//!
//! [`Node`] is a pure state machine: facts come in as [`Event`]s, actions go out as [`Effect`]s. It
//! must never touch a disk, a clock or a process.
//!
//! A task moves `Queued → Staging → Ready → Running`, and between `Running` and `Suspended`. It
//! enters `Staging` only when space for all its missing inputs was reserved at once, in order of
//! arrival. So there is no deadlock of two tasks that each hold a part of their inputs and wait for
//! the other's space. A few tasks that need no space may overtake a task that waits for space.
//!
//! While tasks compute, the inputs of the next tasks are staged. While a data-intensive task is
//! staged, other tasks use its processors ([`ExecutorLoad::lent_milli`](eyas_types::ExecutorLoad)).
//!
//! A task whose inputs exceed the store's limits is refused for good. If only the disk is too full,
//! the task waits while other objects may still leave the store; when none can, the task is refused
//! for now, and another node may take it. A task that has started and finds the disk full starts
//! again after others have left room. So a full disk never fails a task.
//!
//! The node routes events to its parts, each with a state that no other part changes: `NodeTasks`
//! and the states that they are in (`tasks.rs`), the `RoomQueue` of tasks that wait for room
//! (`queue.rs`), `NodeObjects` in the store and on their way to it (`objects.rs`, `hold.rs`,
//! `space.rs`, `fetches.rs`), and the `TaskTurns` in which tasks start (`turns.rs`).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod copies;
mod cores;
mod event;
pub mod eviction;
mod fetches;
mod hold;
mod node;
mod objects;
mod overlap;
mod queue;
mod slots;
mod space;
mod tasks;
#[cfg(test)]
mod tests;
mod turns;

pub use cores::Core;
pub use event::{Effect, Event, FetchFailure};
pub use node::Node;
pub use overlap::Overlap;
pub use space::StoreLimits;
