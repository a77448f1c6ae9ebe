//! Slots: which resources running tasks hold, and a small number for each, so that a program can be told apart from
//! those beside it (`{%}`).

use alloc::collections::BTreeSet;

use eyas_types::Resources;

pub(crate) struct Slots {
    free: Resources,
    returned: BTreeSet<u32>,
    next: u32,
}

impl Slots {
    pub fn new(capacity: Resources) -> Self {
        Slots { free: capacity, returned: BTreeSet::new(), next: 0 }
    }

    /// A slot's number, the lowest not taken, if there is room for `need`.
    pub fn take(&mut self, need: &Resources) -> Option<u32> {
        if !self.free.covers(need) {
            return None;
        }
        self.free.take(need);
        Some(self.returned.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }))
    }

    pub fn give_back(&mut self, slot: u32, need: &Resources) {
        self.free.give_back(need);
        assert!(self.returned.insert(slot), "slot {slot} given back twice");
    }
}
