//! The exchange between the two deciders of a dispatcher: `core/jobs` decides which tasks may run and what their ends mean,
//! `core/sched` decides where they run.
//!
//! [`Exchange`] passes on what one decider says to the other, in an order that keeps their books equal, and hands out the
//! rest: the [`Effect`]s that a shell carries out. The dispatcher and the simulator are such shells. The exchange decides
//! nothing, and holds nothing but effects and events that are still to be passed on.
//!
//! The order has three rules:
//! 1. Effects of `core/jobs` are passed on in their order, and before `core/jobs` is told anything else.
//! 2. An assignment is booked in `core/jobs` at once.
//! 3. Other facts from `core/sched` wait until all effects that were there before are passed on.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod exchange;

pub use exchange::{Effect, Exchange};
