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

    /// The scheduler with these parameters instead of its own, as far as given.
    ///
    /// # Errors
    /// If it has no such parameter, or the weights of io-aware are not possible.
    pub fn with(self, given: BlockParameters) -> Result<BlockPolicy, BlockParameterError> {
        self.check(given)?;
        let BlockParameters { alpha, beta, min_block_bytes, max_waves } = given;
        let waves = |own: Multiwave| Multiwave {
            min_block_bytes: min_block_bytes.unwrap_or(own.min_block_bytes),
            max_waves: max_waves.or(own.max_waves),
        };
        Ok(match self {
            _ if given == BlockParameters::default() => self,
            BlockPolicy::Static => self,
            BlockPolicy::Lean(lean) => {
                BlockPolicy::Lean(Lean { alpha: alpha.unwrap_or(lean.alpha), ..lean })
            }
            BlockPolicy::Multiwave => BlockPolicy::MultiwaveWith(waves(Multiwave::DEFAULT)),
            BlockPolicy::MultiwaveWith(own) => BlockPolicy::MultiwaveWith(waves(own)),
            BlockPolicy::IoAware(own) => {
                let alpha = match alpha {
                    None => own.alpha,
                    Some(Alpha::Fixed(alpha)) => alpha,
                    Some(Alpha::Auto) => return Err(BlockParameterError::AutoWeight),
                };
                let beta = beta.unwrap_or(own.beta);
                if alpha + beta > 1.0 {
                    return Err(BlockParameterError::Weights { alpha, beta });
                }
                BlockPolicy::IoAware(IoAware { alpha, beta })
            }
        })
    }

    /// Refuses parameters of other schedulers.
    fn check(self, given: BlockParameters) -> Result<(), BlockParameterError> {
        let is_lean = matches!(self, BlockPolicy::Lean(_));
        let is_io_aware = matches!(self, BlockPolicy::IoAware(_));
        let is_multiwave = matches!(self, BlockPolicy::Multiwave | BlockPolicy::MultiwaveWith(_));
        let parameters = [
            ("alpha", given.alpha.is_some(), is_lean || is_io_aware, "lean or io-aware"),
            ("beta", given.beta.is_some(), is_io_aware, "io-aware"),
            ("min-block", given.min_block_bytes.is_some(), is_multiwave, "multiwave"),
            ("waves", given.max_waves.is_some(), is_multiwave, "multiwave"),
        ];
        match parameters.into_iter().find(|(_, is_given, is_own, _)| *is_given && !is_own) {
            Some((parameter, _, _, policies)) => {
                Err(BlockParameterError::Foreign { parameter, policies })
            }
            None => Ok(()),
        }
    }
}

/// Parameters of schedulers. Each belongs to some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockParameters {
    /// See [`Lean::alpha`] and [`IoAware::alpha`].
    pub alpha: Option<Alpha>,
    /// See [`IoAware::beta`].
    pub beta: Option<f64>,
    /// See [`Multiwave::min_block_bytes`].
    pub min_block_bytes: Option<u64>,
    /// See [`Multiwave::max_waves`].
    pub max_waves: Option<u32>,
}

/// Why a scheduler cannot have some parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BlockParameterError {
    /// The parameter belongs to other schedulers.
    Foreign {
        /// Name of the parameter.
        parameter: &'static str,
        /// Names of the schedulers that have it.
        policies: &'static str,
    },
    /// An `alpha` of io-aware that is not a number.
    AutoWeight,
    /// Weights of io-aware that exceed 1 together.
    Weights {
        /// The weight of disks.
        alpha: f64,
        /// The weight of processors.
        beta: f64,
    },
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
