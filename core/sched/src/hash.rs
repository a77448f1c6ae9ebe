//! A fixed hash for keys that no outsider can choose freely: the same events give the same tables
//! on any machine.

use core::hash::{BuildHasher, Hasher};

/// Multiplies and folds each word. Ids are dense integers or digests, so more mixing gains nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct FixedHash;

#[derive(Clone, Copy)]
pub(crate) struct FoldedHasher(u64);

impl BuildHasher for FixedHash {
    type Hasher = FoldedHasher;

    fn build_hasher(&self) -> FoldedHasher {
        FoldedHasher(0)
    }
}

impl Hasher for FoldedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x243f_6a88_85a3_08d3)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_0c9b);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, FixedHash>;
