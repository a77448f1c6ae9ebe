//! A seeded generator of pseudo-random numbers: the same numbers for the same seed on every
//! machine.

/// SplitMix64 (Steele, Lea and Flood 2014). Not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

/// What is added to the state for each number: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// A generator that starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// Any 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        let number = SplitMix64::mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    /// The first number of the generator with this seed: a hash of the seed.
    pub fn mix(seed: u64) -> u64 {
        let mut z = seed.wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0 .. count`, all equally likely (Lemire 2019).
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        let too_many = count.wrapping_neg() % count;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(count);
            if product as u64 >= too_many {
                return (product >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn numbers_are_those_published_and_spread_evenly() {
        let mut random = SplitMix64::new(1234567);
        assert_eq!(
            [random.next_u64(), random.next_u64()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        assert_eq!(SplitMix64::mix(1234567), 6_457_827_717_110_365_317);
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[random.below(7) as usize] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }
}
