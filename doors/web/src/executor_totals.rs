//! Sums over all executors that there ever were. An executor that leaves takes its counters with
//! it; those of monitoring must not fall.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use eyas_client::types::ExecutorId;
use eyas_client::types::outcome::Reads;
use eyas_client::view::ExecutorView;

/// What executors have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExecutorSums {
    /// Tasks that have ended.
    pub ended: u64,
    pub reads: Reads,
}

impl ExecutorSums {
    fn add(&mut self, other: &ExecutorSums) {
        self.ended += other.ended;
        self.reads += other.reads;
    }
}

/// The sums of executors that have left, and what the others said last.
#[derive(Debug, Default)]
pub(crate) struct ExecutorTotals(Mutex<ExecutorTotalsInner>);

#[derive(Debug, Default)]
struct ExecutorTotalsInner {
    left: ExecutorSums,
    present: BTreeMap<ExecutorId, ExecutorSums>,
}

impl ExecutorTotals {
    /// The sums, with these executors.
    pub fn note(&self, executors: &[ExecutorView]) -> ExecutorSums {
        let said =
            |it: &ExecutorView| (it.executor, ExecutorSums { ended: it.ended, reads: it.reads });
        let mut totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        totals.note(executors.iter().map(said).collect())
    }
}

impl ExecutorTotalsInner {
    fn note(&mut self, now: BTreeMap<ExecutorId, ExecutorSums>) -> ExecutorSums {
        for (executor, sums) in std::mem::replace(&mut self.present, now) {
            if !self.present.contains_key(&executor) {
                self.left.add(&sums);
            }
        }
        let mut all = self.left;
        self.present.values().for_each(|sums| all.add(sums));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_what_executors_that_left_have_done() {
        let mut totals = ExecutorTotalsInner::default();
        let mut ended = |executors: &[(u32, u64)]| {
            let sums = |ended| ExecutorSums { ended, reads: Reads::default() };
            let said = executors.iter().map(|(id, ended)| (ExecutorId(*id), sums(*ended)));
            totals.note(said.collect()).ended
        };
        assert_eq!(ended(&[]), 0);
        assert_eq!(ended(&[(1, 5), (2, 7)]), 12);
        assert_eq!(ended(&[(2, 9)]), 14, "executor 1 has left");
        assert_eq!(ended(&[(2, 9), (3, 1)]), 15);
        assert_eq!(ended(&[]), 15);
    }
}
