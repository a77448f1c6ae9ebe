//! The generator of pseudo-random numbers that tests use.

/// SplitMix64 (Steele, Lea and Flood 2014): the same numbers for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// Any 64-bit number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0 .. count`, and 0 if `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.throw()) * u128::from(count)) >> 64) as u64
    }

    /// True with this probability, which is in `0.0 ..= 1.0`.
    pub fn happens(&mut self, probability: f64) -> bool {
        (self.below(1 << 32) as f64) < probability * (1_u64 << 32) as f64
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `items`, all equally likely; `None` if there are none.
    pub fn any<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        (!items.is_empty()).then(|| items[self.below(items.len() as u64) as usize].clone())
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn numbers_are_those_published_and_spread_evenly() {
        let mut dice = Dice::new(1234567);
        assert_eq!([dice.throw(), dice.throw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[dice.below(7) as usize] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    }
}
