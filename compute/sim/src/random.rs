//! What the simulator draws by chance: the same for the same seed on any machine.

use eyas_types::random::SplitMix64;

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Random(SplitMix64::new(seed))
    }

    /// Any 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0 .. count`, all equally likely.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        self.0.below(count)
    }

    /// A number in `0 .. 1`.
    pub fn share(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
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
    fn the_mean_of_shares_is_one_half() {
        let mut dice = Random::new(1234567);
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
