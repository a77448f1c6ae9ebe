//! A seeded generator of pseudo-random numbers: the same numbers for the same seed on any machine.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Any 64-bit number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
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
            let product = u128::from(self.throw()) * u128::from(count);
            if product as u64 >= too_many {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in `0 .. 1`.
    pub fn share(&mut self) -> f64 {
        (self.throw() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles `items`. All orders are equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throws_are_known_ahead_and_even() {
        let mut dice = Random::new(1234567);
        assert_eq!(
            [dice.throw(), dice.throw()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973],
            "as published"
        );
        let mut counts = [0; 7];
        (0..70_000).for_each(|_| counts[dice.below(7) as usize] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        let mean = (0..10_000).map(|_| dice.share()).sum::<f64>() / 10_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
    }

    #[test]
    fn every_order_is_as_likely() {
        let mut dice = Random::new(1);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [0, 1, 2];
            dice.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
