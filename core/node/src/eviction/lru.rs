//! LRU: the object that was used longest ago leaves first. Storing an object counts as a use.

use eyas_types::ObjectId;

use super::{Eviction, KeyOrder};

#[derive(Default)]
pub(super) struct Lru(KeyOrder<u64>);

impl Eviction for Lru {
    fn stored(&mut self, object: ObjectId) {
        let now = self.0.tick();
        self.0.set(object, now);
    }

    fn used(&mut self, object: ObjectId) {
        self.stored(object);
    }

    fn removed(&mut self, object: ObjectId) {
        self.0.remove(object);
    }

    fn victim(&mut self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId> {
        self.0.first(may_leave)
    }
}
