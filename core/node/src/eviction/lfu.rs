//! LFU: the object that was used least often leaves first. Of equal counts, the object that was
//! used longest ago leaves first.

use eyas_types::ObjectId;

use super::{Eviction, KeyOrder};

/// Ordered by the number of uses, then by the time of the last use.
#[derive(Default)]
pub(super) struct Lfu(KeyOrder<(u64, u64)>);

impl Eviction for Lfu {
    fn stored(&mut self, object: ObjectId) {
        let now = self.0.tick();
        self.0.set(object, (0, now));
    }

    fn used(&mut self, object: ObjectId) {
        let now = self.0.tick();
        let uses = self.0.key(object).map_or(0, |(uses, _)| uses);
        self.0.set(object, (uses + 1, now));
    }

    fn removed(&mut self, object: ObjectId) {
        self.0.remove(object);
    }

    fn victim(&mut self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId> {
        self.0.first(may_leave)
    }
}
