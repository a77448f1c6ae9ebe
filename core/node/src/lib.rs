//! What one node does with the tasks it was given: which inputs it fetches when, what it evicts for them, and which
//! task starts in which slot.
//!
//! [`Node`] is a pure state machine: facts come in as [`Event`]s, what is to be done goes out as [`Effect`]s. It must
//! never touch a disk, a clock or a process.
//!
//! A task moves `Queued → Staging → Ready → Running`. It enters staging only when room for all its missing inputs
//! has been reserved at once, in order of arrival: so tasks never hold half of their inputs while waiting for each
//! other's room. While some compute, the inputs of the next are staged.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod eviction;
mod node;
mod slots;
mod space;
#[cfg(test)]
mod tests;

pub use node::{Effect, Event, FetchFailure, From, Node};
pub use space::Limits;
