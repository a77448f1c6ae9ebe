//! Which cores of its node a task runs on, if tasks are pinned: whole cores, of one NUMA node if
//! one has enough, while there are any. Tasks that ask for less than a core share cores.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Thousandths of a processor in a core.
const CORE_MILLI: u32 = 1000;

/// A core that tasks may be pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core {
    /// The NUMA node of the core.
    pub numa_node: u32,
    /// The system's number of the core.
    pub number: u32,
}

/// A core of a task, and how much of it the task has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreShare {
    pub number: u32,
    milli: u32,
    index: usize,
}

/// All cores of a node, and how much of them tasks have taken.
pub(crate) struct Cores {
    cores: Vec<(Core, u32)>,
}

impl Cores {
    /// Without cores, tasks are not pinned.
    pub fn new(mut cores: Vec<Core>) -> Self {
        cores.sort_unstable();
        Cores { cores: cores.into_iter().map(|core| (core, 0)).collect() }
    }

    /// Takes cores for a task. If more is taken than there is, tasks share cores. A task with 2500
    /// thousandths of a processor gets two whole cores and half of a third.
    pub fn take(&mut self, cpus_milli: u32) -> Vec<CoreShare> {
        let mut shares: Vec<CoreShare> = Vec::new();
        if self.cores.is_empty() || cpus_milli == 0 {
            return shares;
        }
        let numa_node = self.smallest_that_fits(cpus_milli);
        let all_milli = self.cores.len() as u64 * u64::from(CORE_MILLI);
        let mut left_milli = u64::from(cpus_milli).min(all_milli) as u32;
        while left_milli > 0 {
            let index = self.next(left_milli, numa_node, &shares);
            let (core, taken_milli) = &mut self.cores[index];
            // Of a core that is taken already, no more than a whole one.
            let free_milli =
                CORE_MILLI.checked_sub(*taken_milli).filter(|free| *free > 0).unwrap_or(CORE_MILLI);
            let milli = left_milli.min(free_milli);
            *taken_milli += milli;
            left_milli -= milli;
            shares.push(CoreShare { number: core.number, milli, index });
        }
        shares
    }

    /// The NUMA node with the least free cores that has enough of them: of nodes with 2 and 3 free
    /// cores, the first for 2 cores, the second for 3, and none for 4.
    fn smallest_that_fits(&self, cpus_milli: u32) -> Option<u32> {
        let mut nodes = BTreeMap::new();
        for (core, taken_milli) in &self.cores {
            let (whole, free_milli): &mut (u32, u64) = nodes.entry(core.numa_node).or_default();
            *whole += u32::from(*taken_milli == 0);
            *free_milli += u64::from(CORE_MILLI.saturating_sub(*taken_milli));
        }
        let fits = nodes.into_iter().filter(|(_, (whole, free_milli))| {
            *whole >= cpus_milli / CORE_MILLI && *free_milli >= u64::from(cpus_milli)
        });
        fits.min_by_key(|(node, (_, free_milli))| (*free_milli, *node)).map(|(node, _)| node)
    }

    /// The core to take next: a free one for a whole core; for a part, the fullest that has it.
    /// Otherwise the one of which the least is taken. For 500 of cores of which 0, 300 and 700 are
    /// taken, it is the second.
    fn next(&self, left_milli: u32, numa_node: Option<u32>, shares: &[CoreShare]) -> usize {
        let is_new = |index: &usize| shares.iter().all(|share| share.index != *index);
        let suits =
            |index: &usize| numa_node.is_none_or(|node| self.cores[*index].0.numa_node == node);
        let taken_milli = |index: &usize| self.cores[*index].1;
        let candidates = || (0..self.cores.len()).filter(is_new).filter(suits);
        let part = || {
            candidates()
                .filter(|index| taken_milli(index) + left_milli <= CORE_MILLI)
                .max_by_key(|index| (taken_milli(index), Reverse(*index)))
        };
        let found = if left_milli < CORE_MILLI {
            part()
        } else {
            candidates().find(|index| taken_milli(index) == 0)
        };
        let least = || {
            (0..self.cores.len())
                .filter(is_new)
                .min_by_key(|index| (!suits(index), taken_milli(index)))
        };
        found.or_else(least).unwrap_or(0)
    }

    /// Releases the cores of a task that ends or is suspended.
    pub fn release(&mut self, shares: &[CoreShare]) {
        for share in shares {
            self.cores[share.index].1 -= share.milli;
        }
    }

    /// Takes the cores of a task again that resumes. Other tasks may have some of them now, which
    /// then share them.
    pub fn take_again(&mut self, shares: &[CoreShare]) {
        for share in shares {
            self.cores[share.index].1 += share.milli;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(numa_nodes: &[u32]) -> Cores {
        let cores = numa_nodes.iter().enumerate();
        Cores::new(
            cores.map(|(number, node)| Core { numa_node: *node, number: number as u32 }).collect(),
        )
    }

    fn numbers(shares: &[CoreShare]) -> Vec<u32> {
        shares.iter().map(|share| share.number).collect()
    }

    #[test]
    fn whole_cores_of_one_numa_node_are_taken_where_they_fit() {
        let mut cores = cores(&[0, 1, 0, 1, 0, 1]);
        let one = cores.take(1000);
        assert_eq!(numbers(&one), [0]);
        // Node 0 has two cores left and node 1 three: two fit best on node 0, and three only on
        // node 1.
        let two = cores.take(2000);
        assert_eq!(numbers(&two), [2, 4]);
        let three = cores.take(3000);
        assert_eq!(numbers(&three), [1, 3, 5]);
        cores.release(&one);
        cores.release(&three);
        // No node has four: those that are free, of both.
        let mut four = numbers(&cores.take(4000));
        four.sort_unstable();
        assert_eq!(four, [0, 1, 3, 5]);
        assert_eq!(numbers(&cores.take(0)), [0; 0]);
    }

    #[test]
    fn parts_of_cores_share_cores_and_leave_others_whole() {
        let mut cores = cores(&[0, 0]);
        let parts = [500, 300, 200].map(|milli| cores.take(milli));
        assert!(parts.iter().all(|part| numbers(part) == numbers(&parts[0])), "{parts:?}");
        let whole = numbers(&cores.take(1000));
        assert_ne!(whole, numbers(&parts[0]));
        // One core and a half, after a third of each is free: all that there is.
        let mut cores =
            super::Cores::new((0..3).map(|number| Core { numa_node: 0, number }).collect());
        assert_eq!(numbers(&cores.take(1500)), [0, 1]);
        assert_eq!(numbers(&cores.take(1500)), [2, 1]);
    }

    #[test]
    fn more_tasks_than_cores_share_them_evenly() {
        let mut cores = cores(&[0, 0]);
        let taken: Vec<_> = (0..4).map(|_| cores.take(1000)).collect();
        assert_eq!(
            taken.iter().flat_map(|shares| numbers(shares)).collect::<Vec<_>>(),
            [0, 1, 0, 1]
        );
        assert_eq!(numbers(&cores.take(9000)), [0, 1]);
        assert_eq!(Cores::new(Vec::new()).take(1000), []);
    }

    #[test]
    fn a_task_that_resumes_has_its_cores_again() {
        let mut cores = cores(&[0, 0]);
        let suspended = cores.take(1000);
        cores.release(&suspended);
        let other = cores.take(2000);
        cores.take_again(&suspended);
        cores.release(&other);
        assert_eq!(numbers(&cores.take(1000)), [1], "the other core is its own");
    }
}
