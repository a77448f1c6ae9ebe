//! First in, first out: the run with the oldest request. No other order has a smaller maximum
//! response time. For example, requests that arrive at 0, 1 and 2 ms and take 10 ms each end at 10,
//! 20 and 30 ms: no response time is longer than 28 ms. If the last two change places, one is 29
//! ms.

use alloc::collections::BTreeMap;

use super::run_order::RunOrder;
use crate::ordering::run::{QueueKey, RequestRun, Seniority};

#[derive(Default)]
pub(super) struct FifoOrder {
    runs: BTreeMap<Seniority, QueueKey>,
}

impl RunOrder for FifoOrder {
    fn insert(&mut self, run: &RequestRun) {
        self.runs.insert(run.seniority(), run.head);
    }

    fn remove(&mut self, run: &RequestRun) {
        self.runs.remove(&run.seniority());
    }

    fn choose(&mut self, _: u64) -> Option<QueueKey> {
        self.runs.first_key_value().map(|(_, head)| *head)
    }

    fn validate(&self, runs: &BTreeMap<QueueKey, RequestRun>) {
        assert_eq!(self.runs, runs.values().map(|run| (run.seniority(), run.head)).collect());
    }
}
