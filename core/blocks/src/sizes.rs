//! How many chunks a worker is lent at once.

/// Most chunks of a lease that is claimed at run time.
pub const MAX_LEASE_CHUNKS: u32 = 1024;

/// A rule for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Always so many; the paper locks one at a time.
    Fixed(u32),
    /// A share of the rest: what is left, by `divisor` times the workers. Guided self-scheduling (Polychronopoulos and Kuck
    /// 1987) has 1, and gives a slow worker that comes first too much.
    Guided {
        /// How many times smaller.
        divisor: u32,
    },
    /// Half of the rest in as many leases as there are workers, then half of what is left then; each weighted by how fast
    /// its worker is (Flynn Hummel et al. 1996). One chunk to whom nothing is known of.
    Factoring,
}

/// Counts leases.
pub(crate) struct Sizer {
    sizes: Sizes,
    /// Leases to come of the present batch.
    left: u32,
    /// Of a worker of mean speed in it.
    chunks: u32,
}

impl Sizer {
    pub fn new(sizes: Sizes) -> Self {
        Sizer { sizes, left: 0, chunks: 0 }
    }

    /// Chunks of the next lease when `rest` are left for so many workers; `speed` is its worker's and the mean of all.
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

    /// Sizes of all leases of 64 chunks for eight workers, of which every eighth claim is by one of that speed.
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
        assert_eq!(factoring[..24], [4, 4, 4, 4, 4, 4, 4, 1, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1][..]);
        assert_eq!(leases(Sizes::Factoring, None)[7], 1, "who is not known gets one");
        assert_eq!(Sizer::new(Sizes::Factoring).next(u32::MAX, 0, Some((9, 1))), MAX_LEASE_CHUNKS);
    }
}
