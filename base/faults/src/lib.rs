//! What the fault tests of all rooms share: a seeded generator, and the choice of the seeds that
//! are tried.
//!
//! A fault test simulates one part of eyas, throws faults at it, and asserts after each step that
//! its promises hold. One seed decides everything that happens in a run, so a failure can be
//! repeated from its seed alone. Rooms name this crate as a development dependency only.

#![forbid(unsafe_code)]

mod dice;
mod seeds;

pub use dice::Dice;
pub use seeds::{run_twice, try_seeds};
