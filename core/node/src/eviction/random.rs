//! Random: each object is equally likely to leave.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::random::SplitMix64;

use super::Eviction;

pub(super) struct RandomEviction {
    objects: Vec<ObjectId>,
    /// Index of each object in `objects`.
    indices: BTreeMap<ObjectId, usize>,
    random: SplitMix64,
}

impl RandomEviction {
    pub fn new(seed: u64) -> Self {
        RandomEviction {
            objects: Vec::new(),
            indices: BTreeMap::new(),
            random: SplitMix64::new(seed),
        }
    }
}

impl Eviction for RandomEviction {
    fn stored(&mut self, object: ObjectId) {
        if !self.indices.contains_key(&object) {
            self.indices.insert(object, self.objects.len());
            self.objects.push(object);
        }
    }

    fn used(&mut self, _: ObjectId) {}

    fn removed(&mut self, object: ObjectId) {
        if let Some(index) = self.indices.remove(&object) {
            self.objects.swap_remove(index);
            if let Some(moved) = self.objects.get(index) {
                self.indices.insert(*moved, index);
            }
        }
    }

    fn victim(&mut self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId> {
        // Usually most objects may leave, so a few random tries find one. Otherwise all objects are
        // searched, from a random index on.
        let count = self.objects.len();
        for _ in 0..count.min(8) {
            let index = (self.random.next_u64() % count as u64) as usize;
            let object = self.objects[index];
            if may_leave(object) {
                return Some(object);
            }
        }
        let start = if count > 0 { (self.random.next_u64() % count as u64) as usize } else { 0 };
        (0..count).map(|i| self.objects[(start + i) % count]).find(|object| may_leave(*object))
    }
}
