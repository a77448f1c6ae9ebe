//! Dice: SplitMix64 (Steele, Lea and Flood 2014).

pub struct Random(pub u64);

impl Random {
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0 .. count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.throw() % count
    }

    /// True in so many of 1000 cases.
    pub fn chance(&mut self, of_1000: u64) -> bool {
        self.below(1000) < of_1000
    }

    pub fn any<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len() as u64) as usize].clone())
    }
}
