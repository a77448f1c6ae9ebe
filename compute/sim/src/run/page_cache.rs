//! A node's page cache: the most recently read or received objects that fit in its memory. They are
//! read at the rate of the memory, by tasks and for peers. All others are read from disk.

use std::collections::BTreeMap;

/// Objects in memory.
pub(super) struct PageCache {
    /// Number of objects that fit in memory.
    room: usize,
    uses: u64,
    used: BTreeMap<u32, u64>,
    oldest: BTreeMap<u64, u32>,
}

impl PageCache {
    /// An empty cache for `room` objects.
    pub fn new(room: usize) -> Self {
        PageCache { room, uses: 0, used: BTreeMap::new(), oldest: BTreeMap::new() }
    }

    /// Records that an object is read or received. Returns whether it was in memory before.
    pub fn touch(&mut self, object: u32) -> bool {
        self.uses += 1;
        let before = self.used.insert(object, self.uses);
        before.map(|before| self.oldest.remove(&before));
        self.oldest.insert(self.uses, object);
        if self.used.len() > self.room
            && let Some((_, oldest)) = self.oldest.pop_first()
        {
            self.used.remove(&oldest);
        }
        before.is_some()
    }

    /// Removes an object that left the node.
    pub fn forget(&mut self, object: u32) {
        let used = self.used.remove(&object);
        used.map(|used| self.oldest.remove(&used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_object_leaves_first() {
        let mut pages = PageCache::new(2);
        assert_eq!([1, 2, 1, 3].map(|object| pages.touch(object)), [false, false, true, false]);
        assert_eq!([1, 2].map(|object| pages.touch(object)), [true, false], "3 had pushed 2 out");
        pages.forget(1);
        assert_eq!([2, 1, 3].map(|object| pages.touch(object)), [true, false, false]);
        let mut none = PageCache::new(0);
        assert_eq!([1, 1].map(|object| none.touch(object)), [false, false]);
    }
}
