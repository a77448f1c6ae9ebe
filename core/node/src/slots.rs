//! Slots: which resources are free, and a number for each running task. The number, `{%}` in a
//! command, is different for all tasks that run at the same time. A suspended task keeps its number
//! and all its resources but the processors: a stopped process still uses its memory, disk and
//! devices.
//!
//! GPUs, and cores if tasks are pinned, are not only counted: each task gets its own.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use eyas_types::{GPU, Resources};

use crate::cores::{Core, CoreShare, Cores};

/// GPUs that are handed out one by one; of a node with more, tasks only get numbers of them.
const MAX_GPUS: u64 = 1024;

pub(crate) struct Slots {
    free: Resources,
    returned: BTreeSet<u32>,
    next: u32,
    /// Indices of the GPUs that no task has; `None` if they are only counted.
    gpus: Option<BTreeSet<u32>>,
    cores: Cores,
}

/// A slot that a task has, with its devices.
#[derive(Debug, Default)]
pub(crate) struct TakenSlot {
    pub number: u32,
    /// Indices of GPUs.
    pub gpus: Vec<u32>,
    pub cores: Vec<CoreShare>,
}

impl Slots {
    pub fn new(capacity: Resources) -> Self {
        let gpus = capacity.amount_of(GPU);
        let gpus = (gpus <= MAX_GPUS).then(|| (0..gpus as u32).collect());
        Slots {
            free: capacity,
            returned: BTreeSet::new(),
            next: 0,
            gpus,
            cores: Cores::new(Vec::new()),
        }
    }

    /// Pins tasks to these cores.
    pub fn pin_to(&mut self, cores: Vec<Core>) {
        self.cores = Cores::new(cores);
    }

    /// Takes `need` from the free resources, and returns the lowest free slot; `None` if `need` is
    /// not free.
    pub fn take(&mut self, need: &Resources) -> Option<TakenSlot> {
        if !self.free.covers(need) {
            return None;
        }
        self.free.take(need);
        let number = self.returned.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let count = need.amount_of(GPU);
        let gpus =
            self.gpus.as_mut().map(|free| (0..count).filter_map(|_| free.pop_first()).collect());
        Some(TakenSlot {
            number,
            gpus: gpus.unwrap_or_default(),
            cores: self.cores.take(need.cpus_milli),
        })
    }

    pub fn release(&mut self, slot: &TakenSlot, need: &Resources) {
        self.cores.release(&slot.cores);
        self.release_suspended(slot, need);
        self.free.cpus_milli += need.cpus_milli;
    }

    pub fn free(&self) -> &Resources {
        &self.free
    }

    /// Processors that are not free for a task with this `need`, in thousandths; `None` if another
    /// resource is not free. If 1000 are free, a task that needs 4000 lacks 3000.
    pub fn lacks_cpus_milli(&self, need: &Resources) -> Option<u32> {
        let without_cpus = Resources { cpus_milli: 0, ..need.clone() };
        self.free
            .covers(&without_cpus)
            .then(|| need.cpus_milli.saturating_sub(self.free.cpus_milli))
    }

    /// Frees the processors of a task that is suspended.
    pub fn lend_cpus(&mut self, slot: &TakenSlot, need: &Resources) {
        self.free.cpus_milli += need.cpus_milli;
        self.cores.release(&slot.cores);
    }

    /// Takes the processors of a task that resumes; returns false if they are not free.
    pub fn reclaim_cpus(&mut self, slot: &TakenSlot, need: &Resources) -> bool {
        let Some(free) = self.free.cpus_milli.checked_sub(need.cpus_milli) else { return false };
        self.free.cpus_milli = free;
        self.cores.take_again(&slot.cores);
        true
    }

    /// Frees the slot of a task that ends while it is suspended. Its processors are free already.
    pub fn release_suspended(&mut self, slot: &TakenSlot, need: &Resources) {
        self.free.release(&Resources { cpus_milli: 0, ..need.clone() });
        self.gpus.iter_mut().for_each(|free| free.extend(&slot.gpus));
        assert!(self.returned.insert(slot.number), "slot {} released twice", slot.number);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn resources(cpus_milli: u32, gpus: u64) -> Resources {
        Resources { cpus_milli, named: vec![(GPU.into(), gpus)], ..Resources::default() }
    }

    #[test]
    fn each_task_has_gpus_of_its_own_and_keeps_them_while_it_is_suspended() {
        let mut slots = Slots::new(resources(2000, 3));
        let need = resources(1000, 2);
        let first = slots.take(&need).unwrap();
        assert_eq!((first.number, &first.gpus[..]), (0, &[0, 1][..]));
        assert!(slots.take(&need).is_none(), "only one is free");
        let second = slots.take(&resources(1000, 1)).unwrap();
        assert_eq!((second.number, &second.gpus[..]), (1, &[2][..]));
        slots.lend_cpus(&first, &need);
        assert!(slots.take(&resources(1000, 1)).is_none(), "a suspended task keeps its GPUs");
        assert!(slots.reclaim_cpus(&first, &need) && !slots.reclaim_cpus(&first, &need));
        slots.release(&first, &need);
        assert_eq!(slots.take(&resources(0, 2)).unwrap().gpus, [0, 1]);
    }

    #[test]
    fn more_gpus_than_there_can_be_are_only_counted() {
        let mut slots = Slots::new(resources(1000, u64::MAX));
        assert_eq!(slots.take(&resources(1000, 5)).unwrap().gpus, [0; 0]);
    }
}
