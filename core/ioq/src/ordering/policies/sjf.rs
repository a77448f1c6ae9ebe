//! Shortest job first: the run with the fewest bytes. For requests that arrive together no other
//! order has a smaller mean response time, but large runs can starve. For comparison. For example,
//! requests of 1, 2 and 3 s that arrive together end after 1, 3 and 6 s, which is 3.3 s on average;
//! in the opposite order, it is 4.7 s.

use alloc::collections::BTreeMap;

use super::run_order::RunOrder;
use crate::ordering::run::{QueueKey, RequestRun, Seniority};

#[derive(Default)]
pub(super) struct SjfOrder {
    runs: BTreeMap<(u64 /* bytes */, Seniority), QueueKey>,
}

impl RunOrder for SjfOrder {
    fn insert(&mut self, run: &RequestRun) {
        self.runs.insert((run.size.bytes, run.seniority()), run.head);
    }

    fn remove(&mut self, run: &RequestRun) {
        self.runs.remove(&(run.size.bytes, run.seniority()));
    }

    fn choose(&mut self, _: u64) -> Option<QueueKey> {
        self.runs.first_key_value().map(|(_, head)| *head)
    }

    fn validate(&self, runs: &BTreeMap<QueueKey, RequestRun>) {
        assert_eq!(
            self.runs,
            runs.values().map(|run| ((run.size.bytes, run.seniority()), run.head)).collect()
        );
    }
}
