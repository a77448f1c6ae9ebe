//! Slots: which resources running tasks hold, and a small number for each, so that a program can be told apart from
//! those beside it (`{%}`). What is suspended keeps its number and all it holds but its processors: a stopped process
//! stays in memory, on disk and on its devices.

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

    pub fn free(&self) -> &Resources {
        &self.free
    }

    /// Processors that a task of such `need` lacks, in thousandths; `None` if it lacks anything else.
    pub fn lacks_cpus_milli(&self, need: &Resources) -> Option<u32> {
        let without_cpus = Resources { cpus_milli: 0, ..need.clone() };
        self.free.covers(&without_cpus).then(|| need.cpus_milli.saturating_sub(self.free.cpus_milli))
    }

    /// The task that has `need` is suspended: its processors are free.
    pub fn lend_cpus(&mut self, need: &Resources) {
        self.free.cpus_milli += need.cpus_milli;
    }

    /// The task gets its processors back, if so many are free.
    pub fn reclaim_cpus(&mut self, need: &Resources) -> bool {
        let free = self.free.cpus_milli.checked_sub(need.cpus_milli);
        self.free.cpus_milli = free.unwrap_or(self.free.cpus_milli);
        free.is_some()
    }

    /// The task ends while its processors are lent.
    pub fn give_back_suspended(&mut self, slot: u32, need: &Resources) {
        self.give_back(slot, &Resources { cpus_milli: 0, ..need.clone() });
    }
}
