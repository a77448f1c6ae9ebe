//! The generator of pseudo-random numbers that tests use.

use eyas_types::random::SplitMix64;

/// A generator that makes the same numbers for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Dice(SplitMix64);

impl Dice {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Dice(SplitMix64::new(seed))
    }

    /// Any 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0 .. count`, and 0 if `count` is 0.
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(count)) >> 64) as u64
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
