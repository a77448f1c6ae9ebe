//! Where executors are, and to how many others each gives objects.
//!
//! Estimates ask this of many executors at each decision. So it is small, and kept apart from the
//! table of executors.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::keys::ExecutorKey;
use crate::event::ExecutorProfile;

/// The distance between two executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    /// In one rack, as far as their labels say.
    Near,
    /// From one rack to another.
    Far,
}

#[derive(Default)]
pub(super) struct Topology {
    /// By the index of the executor.
    locations: Vec<Location>,
    /// For each site and rack that executors name: its number, from 1, and the number of executors
    /// there.
    numbers: BTreeMap<Box<str>, (u32, u32)>,
    last_number: u32,
}

#[derive(Clone, Copy, Default)]
struct Location {
    /// The site's number; 0 if the executor has no label `site`.
    site: u32,
    /// The rack's number; 0 if the executor has no label `rack`.
    rack: u32,
    /// The number of objects that the executor is to give to others at the moment.
    gives: u32,
}

impl Topology {
    pub fn join(&mut self, executor: ExecutorKey, profile: &ExecutorProfile) {
        let index = executor.index();
        if self.locations.len() <= index {
            self.locations.resize(index + 1, Location::default());
        }
        let [site, rack] =
            [profile.site(), profile.rack()].map(|name| name.map_or(0, |name| self.number(name)));
        self.locations[index] = Location { site, rack, gives: 0 };
    }

    pub fn leave(&mut self, profile: &ExecutorProfile) {
        for name in [profile.site(), profile.rack()].into_iter().flatten() {
            let (_, executors) =
                self.numbers.get_mut(name).expect("the executor was counted when it joined");
            *executors -= 1;
            if *executors == 0 {
                self.numbers.remove(name);
            }
        }
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some((number, executors)) = self.numbers.get_mut(name) {
            *executors += 1;
            return *number;
        }
        self.last_number += 1;
        self.numbers.insert(name.into(), (self.last_number, 1));
        self.last_number
    }

    pub fn is_one_site(&self, left: ExecutorKey, right: ExecutorKey) -> bool {
        self.locations[left.index()].site == self.locations[right.index()].site
    }

    pub fn distance(&self, left: ExecutorKey, right: ExecutorKey) -> Distance {
        let is_one_rack = self.locations[left.index()].rack == self.locations[right.index()].rack;
        if is_one_rack { Distance::Near } else { Distance::Far }
    }

    pub fn gives(&self, executor: ExecutorKey) -> u32 {
        self.locations[executor.index()].gives
    }

    pub fn gives_mut(&mut self, executor: ExecutorKey) -> &mut u32 {
        &mut self.locations[executor.index()].gives
    }
}
