//! Runs whose virtual size falls while they wait: the order that WSJF and SOJF share.
//!
//! A virtual size is a straight line over time. Lines of different slope cross, so no sorted order
//! of runs stays valid. The runs are kept in a [`KineticTree`], which finds the smallest value at
//! any time. If virtual sizes end at 0, the time at which each run gets there is known; then the
//! run moves to the *overdue* runs, of which the oldest goes first. A decision costs a few steps
//! down a tree, and the crossings since the previous decision.

use alloc::collections::{BTreeMap, BTreeSet};

use super::kinetic::{KineticTree, VirtualSize};
use super::run_order::RunOrder;
use crate::ordering::run::{AgedBytes, QueueKey, RequestRun, Seniority};

pub(super) struct AgingOrder {
    size_of: fn(&RequestRun) -> AgedBytes,
    patience_us: u64,
    is_clamped: bool,
    junction_percent: i128,
    sizes: KineticTree,
    /// Runs that are not overdue, by the time at which their virtual size gets to 0. Empty unless
    /// clamped.
    zeros: BTreeSet<(u64, Seniority, QueueKey)>,
    /// Runs with a virtual size of 0, by age.
    overdue: BTreeMap<Seniority, QueueKey>,
}

impl AgingOrder {
    pub fn new(
        size_of: fn(&RequestRun) -> AgedBytes,
        patience_us: u64,
        is_clamped: bool,
        junction_percent: u32,
    ) -> Self {
        AgingOrder {
            size_of,
            patience_us,
            is_clamped,
            junction_percent: junction_percent.into(),
            sizes: KineticTree::new(),
            zeros: BTreeSet::new(),
            overdue: BTreeMap::new(),
        }
    }

    fn virtual_size(&self, run: &RequestRun) -> VirtualSize {
        VirtualSize::of((self.size_of)(run), self.patience_us)
    }
}

impl RunOrder for AgingOrder {
    fn insert(&mut self, run: &RequestRun) {
        let size = self.virtual_size(run);
        self.sizes.insert(run.head, run.seniority(), size);
        if self.is_clamped {
            self.zeros.insert((size.zero_us(), run.seniority(), run.head));
        }
    }

    fn remove(&mut self, run: &RequestRun) {
        let size = self.virtual_size(run);
        self.sizes.remove(&run.head);
        if self.is_clamped && !self.zeros.remove(&(size.zero_us(), run.seniority(), run.head)) {
            self.overdue.remove(&run.seniority());
        }
    }

    /// The oldest of the runs with the smallest virtual size, or the run at the smallest offset of
    /// the same file whose virtual size is larger by at most the junction coefficient. For example,
    /// with a coefficient of 10 and a smallest virtual size of 20, it may be 22.
    fn choose(&mut self, now_us: u64) -> Option<QueueKey> {
        while let Some((zero_us, seniority, head)) = self.zeros.first().copied()
            && zero_us <= now_us
        {
            self.zeros.pop_first();
            self.overdue.insert(seniority, head);
        }
        self.sizes.advance(now_us);
        let (first, value) = match self.overdue.first_key_value() {
            Some((_, head)) => (*head, 0),
            None => self.sizes.least()?,
        };
        if self.junction_percent == 0 {
            return Some(first);
        }
        let limit = value + (self.junction_percent * value.abs()).div_euclid(100);
        self.sizes.first_within(first.stream, limit)
    }

    fn validate(&self, runs: &BTreeMap<QueueKey, RequestRun>) {
        for run in runs.values() {
            let size = self.virtual_size(run);
            let waits = self.zeros.contains(&(size.zero_us(), run.seniority(), run.head));
            let is_overdue = self.overdue.get(&run.seniority()) == Some(&run.head);
            assert_eq!(waits || is_overdue, self.is_clamped, "{run:?}");
        }
        assert_eq!(self.sizes.len(), runs.len());
        assert_eq!(
            self.zeros.len() + self.overdue.len(),
            if self.is_clamped { runs.len() } else { 0 }
        );
    }
}
