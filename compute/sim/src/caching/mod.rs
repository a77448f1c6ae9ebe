//! The caching problem of data-diffusion §3.2, on which the costs of eviction policies are
//! compared.
//!
//! Requests arrive one by one, each for an object at a store. Stores have slots of equal size, and
//! an object is in at most one store at a time. Loading an object from persistent storage costs
//! `storage_cost`. Moving an object from another store, or exchanging two objects, costs 1. An
//! object that is already in the store costs nothing.

mod foresight;
mod optimum;
mod policies;
mod worst_case;

pub use eyas_node::eviction::two_mark::TwoMark;
pub use foresight::floor;
pub use optimum::{Arrangements, TooMany};
pub use policies::{Group, IndependentStores, TwoMarked, cost};
pub use worst_case::worst_ratio;

/// A group of stores, and the cost of loading an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `N`: number of stores.
    pub stores: usize,
    /// `M`: slots of each store.
    pub slots: usize,
    /// `s`: cost of loading an object from persistent storage, where moving it between stores
    /// costs 1.
    pub storage_cost: u64,
}

/// A request for an object at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRequest {
    /// Number of the object.
    pub object: u32,
    /// Number of the store, in `0 .. stores`.
    pub store: usize,
}

#[cfg(test)]
mod tests;
