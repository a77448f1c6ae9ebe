//! Schedulers: what is assigned in advance, and whose chunks others take first; one file for each
//! scheduler (elastic-blocks §2.5, §2.6).
//!
//! [`scheduler`] has what all of them have in common.

mod io_aware;
mod lean;
mod multiwave;
mod scheduler;
mod static_blocks;

use alloc::boxed::Box;

pub use io_aware::IoAware;
pub use lean::{Alpha, Lean};
pub use multiwave::Multiwave;
pub(crate) use scheduler::{AssignedChunks, AssignmentInput, BlockScheduler};
use serde::{Deserialize, Serialize};

use crate::sizes::Sizes;

/// A scheduler and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum BlockPolicy {
    /// All chunks are divided evenly in advance.
    Static,
    /// Some chunks are assigned in advance, the others when workers ask for them.
    Lean(Lean),
    /// Chunks are assigned in waves, each with smaller blocks than the last, with
    /// [`Multiwave::DEFAULT`].
    Multiwave,
    /// Each chunk is assigned to the replica whose node is the least busy.
    IoAware(IoAware),
    /// Multiwave with parameters of its own.
    MultiwaveWith(Multiwave),
}

/// All schedulers by name, with their default parameters.
pub const POLICIES: &[(&str, BlockPolicy)] = &[
    ("lean", BlockPolicy::Lean(Lean { alpha: Alpha::Auto, sizes: Sizes::Factoring })),
    ("static", BlockPolicy::Static),
    ("multiwave", BlockPolicy::Multiwave),
    ("io-aware", BlockPolicy::IoAware(IoAware::DEFAULT)),
];

impl BlockPolicy {
    /// The scheduler with this name in [`POLICIES`].
    pub fn named(name: &str) -> Option<BlockPolicy> {
        POLICIES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }
}

pub(crate) fn of(policy: BlockPolicy) -> Box<dyn BlockScheduler> {
    match policy {
        BlockPolicy::Static => Box::new(static_blocks::Static),
        BlockPolicy::Lean(lean) => Box::new(lean),
        BlockPolicy::Multiwave => Box::new(Multiwave::DEFAULT),
        BlockPolicy::IoAware(io_aware) => Box::new(io_aware),
        BlockPolicy::MultiwaveWith(multiwave) => Box::new(multiwave),
    }
}
