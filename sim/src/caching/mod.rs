//! The caching problem of data-diffusion §3.2, on which eviction policies are compared by what they cost.
//!
//! Requests come one by one, each for an object at a store. Stores have slots of one size; an object is in one store at a
//! time. Loading it from persistent storage costs `storage_cost`, moving it from another store or exchanging two costs 1,
//! having it there already costs nothing.

mod foresight;
mod optimum;
mod policies;
mod two_mark;
mod worst_case;

pub use foresight::floor;
pub use optimum::{Arrangements, TooMany};
pub use policies::{Alone, Group, TwoMarked, cost};
pub use two_mark::TwoMark;
pub use worst_case::worst_ratio;

/// A group of stores, and what it costs to fill them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `N`.
    pub stores: usize,
    /// `M`: slots of each store.
    pub slots: usize,
    /// `s`: what loading costs, where moving costs 1.
    pub storage_cost: u64,
}

/// An object is asked for at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number.
    pub object: u32,
    /// The store's number, of `0 .. stores`.
    pub store: usize,
}

#[cfg(test)]
mod tests;
