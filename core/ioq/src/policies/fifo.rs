//! First in, first out: the run with the oldest request. No other order has a smaller longest response.

use alloc::collections::BTreeMap;

use super::Order;
use crate::run::{Place, Run, Seniority};

#[derive(Default)]
pub(super) struct Fifo {
    runs: BTreeMap<Seniority, Place>,
}

impl Order for Fifo {
    fn insert(&mut self, run: &Run) {
        self.runs.insert(run.seniority(), run.head);
    }

    fn remove(&mut self, run: &Run) {
        self.runs.remove(&run.seniority());
    }

    fn choose(&mut self, _: u64) -> Option<Place> {
        self.runs.first_key_value().map(|(_, head)| *head)
    }

    fn validate(&self, runs: &BTreeMap<Place, Run>) {
        assert_eq!(self.runs, runs.values().map(|run| (run.seniority(), run.head)).collect());
    }
}
