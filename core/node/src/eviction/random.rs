//! Random: each object is equally likely to leave.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::ObjectId;

use super::Eviction;

pub(super) struct Random {
    objects: Vec<ObjectId>,
    places: BTreeMap<ObjectId, usize>,
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Random { objects: Vec::new(), places: BTreeMap::new(), state: seed }
    }

    /// SplitMix64 (Steele, Lea and Flood 2014): more than enough for this.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Eviction for Random {
    fn stored(&mut self, object: ObjectId) {
        if !self.places.contains_key(&object) {
            self.places.insert(object, self.objects.len());
            self.objects.push(object);
        }
    }

    fn used(&mut self, _: ObjectId) {}

    fn removed(&mut self, object: ObjectId) {
        if let Some(place) = self.places.remove(&object) {
            self.objects.swap_remove(place);
            if let Some(moved) = self.objects.get(place) {
                self.places.insert(*moved, place);
            }
        }
    }

    fn victim(&mut self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId> {
        // Nearly all may leave, so a few throws find one; where nearly none may, look at all from a thrown place on.
        let count = self.objects.len();
        for _ in 0..count.min(8) {
            let thrown = (self.next() % count as u64) as usize;
            let object = self.objects[thrown];
            if may_leave(object) {
                return Some(object);
            }
        }
        let start = if count > 0 { (self.next() % count as u64) as usize } else { 0 };
        (0..count).map(|i| self.objects[(start + i) % count]).find(|object| may_leave(*object))
    }
}
