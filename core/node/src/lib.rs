//! What one node does with the tasks it was given: which inputs it fetches when, what it evicts for them, and which
//! task starts in which slot.
//!
//! [`Node`] is a pure state machine: facts come in as [`Event`]s, what is to be done goes out as [`Effect`]s. It must
//! never touch a disk, a clock or a process.
//!
//! A task moves `Queued → Staging → Ready → Running`, and between running and suspended. It enters staging only when room for all its missing inputs
//! has been reserved at once, in order of arrival: so tasks never hold half of their inputs while waiting for each
//! other's room. Past one that waits for room go a few that need none. While some compute, the inputs of the next are
//! staged, and while a data-intensive one is staged, others have its processors ([`ExecutorLoad::lent_milli`](eyas_types::ExecutorLoad)).
//!
//! A task whose inputs are beyond the store's limits is refused at once and for ever. One that the disk has no room for
//! waits as long as something here can still leave, and is refused for now when nothing can: a full disk never fails a
//! task.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod event;
pub mod eviction;
mod node;
mod overlap;
mod slots;
mod space;
#[cfg(test)]
mod tests;
mod turns;

pub use event::{Effect, Event, FetchFailure};
pub use node::Node;
pub use overlap::Overlap;
pub use space::Limits;
