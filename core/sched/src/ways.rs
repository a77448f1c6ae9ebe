//! Where executors are, and to how many others each is to give objects: what an estimate asks of many executors. So it
//! is kept apart from all else that is known of them, and small.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::matchmaking::Profile;

/// By the place of the executor in its table.
#[derive(Default)]
pub(crate) struct Ways {
    ways: Vec<Way>,
    /// Numbers of the sites and racks that there are, from 1, and how many executors say that they are there.
    numbers: BTreeMap<Box<str>, (u32, u32)>,
    last_number: u32,
}

/// What is asked of one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Way {
    /// The site's number; 0 if that is not said.
    pub site: u32,
    /// The rack's.
    pub rack: u32,
    /// To how many others it is to give an object at the moment.
    pub gives: u32,
}

impl Ways {
    pub fn join(&mut self, place: usize, profile: &Profile) {
        if self.ways.len() <= place {
            self.ways.resize(place + 1, Way::default());
        }
        let [site, rack] = [profile.site(), profile.rack()].map(|name| name.map_or(0, |name| self.number(name)));
        self.ways[place] = Way { site, rack, gives: 0 };
    }

    pub fn leave(&mut self, profile: &Profile) {
        for name in [profile.site(), profile.rack()].into_iter().flatten() {
            let (_, executors) = self.numbers.get_mut(name).expect("who leaves a place has come to it");
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

    pub fn of(&self, place: usize) -> &Way {
        &self.ways[place]
    }

    pub fn gives_mut(&mut self, place: usize) -> &mut u32 {
        &mut self.ways[place].gives
    }
}
