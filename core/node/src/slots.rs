//! Slots: which resources are free, and a number for each running task. The number, `{%}` in a command, is different
//! for all tasks that run at the same time. A suspended task keeps its number and all its resources but the processors:
//! a stopped process still uses its memory, disk and devices.

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

    /// Takes `need` from the free resources, and returns the lowest free slot number; `None` if `need` is not free.
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

    /// Processors that are not free for a task with this `need`, in thousandths; `None` if another resource is not
    /// free.
    pub fn lacks_cpus_milli(&self, need: &Resources) -> Option<u32> {
        let without_cpus = Resources { cpus_milli: 0, ..need.clone() };
        self.free.covers(&without_cpus).then(|| need.cpus_milli.saturating_sub(self.free.cpus_milli))
    }

    /// Frees the processors of a task that is suspended.
    pub fn lend_cpus(&mut self, need: &Resources) {
        self.free.cpus_milli += need.cpus_milli;
    }

    /// Takes the processors of a task that resumes; returns false if they are not free.
    pub fn reclaim_cpus(&mut self, need: &Resources) -> bool {
        let free = self.free.cpus_milli.checked_sub(need.cpus_milli);
        self.free.cpus_milli = free.unwrap_or(self.free.cpus_milli);
        free.is_some()
    }

    /// Frees the slot of a task that ends while it is suspended. Its processors are free already.
    pub fn give_back_suspended(&mut self, slot: u32, need: &Resources) {
        self.give_back(slot, &Resources { cpus_milli: 0, ..need.clone() });
    }
}
