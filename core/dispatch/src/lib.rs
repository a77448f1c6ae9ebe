//! The exchange between the two deciders of a dispatcher: `core/jobs` decides which tasks may run
//! and what their ends mean, `core/sched` decides where they run.
//!
//! [`Exchange`] passes effects of one decider to the other as events, in an order that keeps their
//! states consistent. It hands out all other effects as [`Effect`]s, which a shell carries out: the
//! dispatcher or the simulator. The exchange decides nothing, and its only state is the effects and
//! events that are still to be passed on.
//!
//! The order has three rules:
//! 1. Effects of `core/jobs` are passed on in their order, and before `core/jobs` gets another
//!    event.
//! 2. An assignment by `core/sched` reaches `core/jobs` at once.
//! 3. Other facts from `core/sched` reach `core/jobs` after all effects that were waiting before.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod exchange;

pub use exchange::{Effect, Exchange, PlacementInputs};
