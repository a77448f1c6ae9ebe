//! Lean: a fraction of the chunks is assigned in advance, round robin over the nodes that have a
//! replica. Workers ask for the others at run time (elastic-blocks §2.5).

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::scheduler::{AssignedChunks, AssignmentInput, BlockScheduler, by_mark};
use crate::measures::ReadRate;
use crate::sizes::Sizes;

/// The paper's degree of pre-assigned input.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Alpha {
    /// This fraction of the chunks, from 0 to 1.
    Fixed(f64),
    /// The fraction that the slowest worker can process while the others do all else: its speed
    /// divided by the mean speed. 0 if any speed is unknown, since that worker might be the
    /// slowest.
    Auto,
}

/// The lean scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lean {
    /// Fraction that is assigned in advance.
    pub alpha: Alpha,
    /// Size of leases at run time.
    pub sizes: Sizes,
}

impl BlockScheduler for Lean {
    fn shares(&self, input: &AssignmentInput) -> Vec<AssignedChunks> {
        let alpha = match self.alpha {
            Alpha::Fixed(alpha) => alpha.clamp(0.0, 1.0),
            Alpha::Auto => best_alpha(input.slots.iter().map(|(_, rate)| *rate)),
        };
        let count = (alpha * input.free.len() as f64) as usize;
        let fewest = |_, slots, assigned| -f64::from(assigned) / f64::from(slots);
        let nodes = by_mark(input, &input.free[..count], fewest);
        let shares = nodes.into_iter().flat_map(|(node, (slots, chunks))| {
            let (count, mut rest) = (chunks.len(), chunks);
            let sizes = (0..slots as usize).map(move |slot| (count + slot) / slots as usize);
            sizes.rev().map(move |size| AssignedChunks {
                wave: 0,
                node,
                chunks: rest.drain(..size).collect(),
            })
        });
        shares.filter(|share| !share.chunks.is_empty()).collect()
    }
}

/// The largest fraction with which the slowest worker can finish with the others, since lean takes
/// at least alpha * W / (P * slowest). It is 1/3 for workers with 100, 100 and 25 MB/s: a third of
/// the chunks, divided by three, take the slowest as long as all take all.
fn best_alpha(rates: impl Iterator<Item = ReadRate>) -> f64 {
    let Some(rates) = rates.collect::<Option<Vec<u64>>>() else { return 0.0 };
    let slowest = rates.iter().min().copied().unwrap_or(0);
    slowest as f64 * rates.len() as f64
        / rates.iter().map(|rate| *rate as f64).sum::<f64>().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_the_slowest_speed_by_the_mean() {
        assert_eq!(best_alpha([Some(100), Some(100), Some(25)].into_iter()), 25.0 / 75.0);
        assert_eq!(best_alpha([Some(7), Some(7)].into_iter()), 1.0);
        assert_eq!(best_alpha([Some(100), None].into_iter()), 0.0);
    }
}
