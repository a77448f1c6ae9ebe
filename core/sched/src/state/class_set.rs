//! A set of classes, one bit each.

use alloc::vec::Vec;

use super::keys::ClassKey;

#[derive(Default)]
pub(crate) struct ClassSet(Vec<u64>);

impl ClassSet {
    pub fn contains(&self, class: ClassKey) -> bool {
        self.0.get(class.index() / 64).is_some_and(|word| word >> (class.index() % 64) & 1 == 1)
    }

    pub fn set(&mut self, class: ClassKey, is_in: bool) {
        let word = class.index() / 64;
        if self.0.len() <= word {
            if !is_in {
                return;
            }
            self.0.resize(word + 1, 0);
        }
        let bit = 1 << (class.index() % 64);
        if is_in {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }
}
