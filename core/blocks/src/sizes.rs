//! The number of chunks in a lease.

use serde::{Deserialize, Serialize};

/// Maximum number of chunks of a lease at run time.
pub const MAX_LEASE_CHUNKS: u32 = 1024;

/// A rule for the size of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sizes {
    /// Always this number of chunks; the paper locks one at a time.
    Fixed(u32),
    /// The remaining chunks divided by `divisor` times the number of workers. Guided
    /// self-scheduling (Polychronopoulos and Kuck 1987) has divisor 1, and gives too much to a slow
    /// worker that comes first. The leases of 64 chunks for 8 workers have 8, 7, 7, 6, 5, 4, 4, 3
    /// chunks, and so on.
    Guided {
        /// The divisor.
        divisor: u32,
    },
    /// Half of the remaining chunks in as many leases as there are workers, then half of the rest,
    /// and so on; each lease is weighted by the speed of its worker (Flynn Hummel et al. 1996). A
    /// worker of unknown speed gets one chunk. The leases of 64 chunks for 8 equal workers have 4
    /// chunks, 8 times, then 2, then 1; a worker with a quarter of the mean speed gets 1 instead of
    /// 4.
    Factoring,
}

/// Computes the sizes of leases.
pub(crate) struct Sizer {
    sizes: Sizes,
    /// Number of leases left in the current batch.
    left: u32,
    /// Size of a lease in this batch, for a worker of mean speed.
    chunks: u32,
}

impl Sizer {
    pub fn new(sizes: Sizes) -> Self {
        Sizer { sizes, left: 0, chunks: 0 }
    }

    /// Size of the next lease when `rest` chunks are left for `workers`; `speed` is the rate of its
    /// worker and the mean rate.
    pub fn next(&mut self, rest: u32, workers: u32, speed: Option<(u64, u64)>) -> u32 {
        let workers = workers.max(1);
        let chunks = match self.sizes {
            Sizes::Fixed(chunks) => chunks,
            Sizes::Guided { divisor } => rest.div_ceil(divisor.max(1).saturating_mul(workers)),
            Sizes::Factoring => {
                let Some((rate, mean)) = speed else { return 1 };
                if self.left == 0 {
                    (self.left, self.chunks) = (workers, rest.div_ceil(workers.saturating_mul(2)));
                }
                self.left -= 1;
                (u128::from(self.chunks) * u128::from(rate) / u128::from(mean.max(1))) as u32
            }
        };
        chunks.clamp(1, MAX_LEASE_CHUNKS)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Sizes of the leases of 64 chunks for eight workers, one of which has the speed `slow`.
    fn leases(sizes: Sizes, slow: Option<(u64, u64)>) -> Vec<u32> {
        let mut sizer = Sizer::new(sizes);
        let (mut rest, mut leases) = (64, Vec::new());
        while rest > 0 {
            let speed = if leases.len() % 8 == 7 { slow } else { Some((100, 100)) };
            let chunks = sizer.next(rest, 8, speed).min(rest);
            rest -= chunks;
            leases.push(chunks);
        }
        leases
    }

    #[test]
    fn rules_have_their_sizes() {
        let slow = Some((25, 100));
        assert_eq!(leases(Sizes::Fixed(30), slow), [30, 30, 4]);
        assert_eq!(leases(Sizes::Guided { divisor: 1 }, slow)[..8], [8, 7, 7, 6, 5, 4, 4, 3]);
        let factoring = leases(Sizes::Factoring, slow);
        assert_eq!(
            factoring[..24],
            [4, 4, 4, 4, 4, 4, 4, 1, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1][..]
        );
        assert_eq!(leases(Sizes::Factoring, None)[7], 1, "a worker of unknown speed gets one");
        assert_eq!(Sizer::new(Sizes::Factoring).next(u32::MAX, 0, Some((9, 1))), MAX_LEASE_CHUNKS);
    }
}
