//! Tables with a fixed hash, for keys that no outsider can choose freely: the same events give the
//! same tables on any machine.

use core::hash::{BuildHasher, Hash, Hasher};

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

/// Parts of a [`PartedMap`].
const PARTS: usize = 16;

/// A table that may have millions of entries, in parts. A table that is full moves all its entries
/// to a larger one. For a million entries, that takes 0.1 s, during which the scheduler answers
/// nobody. Parts are full at different moments: when the table has 917,504 entries, each part has
/// 57,344, more or less some 230.
pub(crate) struct PartedMap<K, V>([Map<K, V>; PARTS]);

impl<K, V> Default for PartedMap<K, V> {
    fn default() -> Self {
        PartedMap(core::array::from_fn(|_| Map::default()))
    }
}

impl<K: Hash + Eq, V> PartedMap<K, V> {
    /// The part that has the key, if any has.
    pub fn part(&self, key: &K) -> &Map<K, V> {
        &self.0[part_of(key)]
    }

    /// The part for the key.
    pub fn part_mut(&mut self, key: &K) -> &mut Map<K, V> {
        &mut self.0[part_of(key)]
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(Map::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Map::is_empty)
    }

    /// The values, in no particular order.
    #[cfg(test)]
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().flat_map(Map::values)
    }

    /// The values, in no particular order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().flat_map(Map::values_mut)
    }
}

/// The hash is mixed once more: those of consecutive numbers are spread so evenly that all parts
/// would grow at one moment.
fn part_of(key: &impl Hash) -> usize {
    let hash = FixedHash.hash_one(key);
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 32)) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use super::{PARTS, PartedMap};

    #[test]
    fn parts_of_a_map_grow_at_different_moments() {
        let mut map = PartedMap::default();
        let mut growths = [0; 200];
        for key in 0..200_000_u32 {
            let part = map.part_mut(&key);
            let capacity = part.capacity();
            part.insert(key, key);
            // The parts' last growth, of 7,168 entries each.
            if part.capacity() > capacity && capacity > 7_000 {
                growths[key as usize / 1_000] += 1;
            }
        }
        assert_eq!(map.len(), 200_000);
        assert_eq!(map.part(&7).get(&7), Some(&7));
        assert_eq!(growths.iter().sum::<usize>(), PARTS);
        assert!(growths.iter().all(|count| *count <= PARTS / 2), "{growths:?}");
    }
}
