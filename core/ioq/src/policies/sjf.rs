//! Shortest job first: the run with the fewest bytes. Of requests that come together no other order has a smaller mean
//! response; long ones may wait for ever. It is there to compare with.

use alloc::collections::BTreeMap;

use super::Order;
use crate::run::{Place, Run, Seniority};

#[derive(Default)]
pub(super) struct Sjf {
    runs: BTreeMap<(u64 /* bytes */, Seniority), Place>,
}

impl Order for Sjf {
    fn insert(&mut self, run: &Run) {
        self.runs.insert((run.bytes, run.seniority()), run.head);
    }

    fn remove(&mut self, run: &Run) {
        self.runs.remove(&(run.bytes, run.seniority()));
    }

    fn choose(&mut self, _: u64) -> Option<Place> {
        self.runs.first_key_value().map(|(_, head)| *head)
    }

    fn validate(&self, runs: &BTreeMap<Place, Run>) {
        assert_eq!(self.runs, runs.values().map(|run| ((run.bytes, run.seniority()), run.head)).collect());
    }
}
