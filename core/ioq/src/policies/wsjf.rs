//! Weighted shortest job first: a run seems the shorter the longer its requests have waited (io-coordination §5.1).
//!
//! Tv(run) = sum over its requests of Tr * (M - E) / M: Tr is how long a request takes, E how long it has waited, and the
//! smallest Tv goes first. Since all takes as long as it has bytes, bytes stand for Tr here. The paper's M is two numbers:
//! a time, here `patience_us`, and what a run has at most, `max_run_bytes` of the configuration.
//!
//! Below 0 the paper's formula turns round: of two runs that have waited for longer than M the *larger* goes first, and a
//! stream of large ones can keep a small one waiting. So Tv ends at 0 here unless told otherwise, and the oldest goes first
//! of those that have come there. `falling.rs` says how the first is found.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::falling::Falling;
use crate::kinetic::Line;
use crate::run::{Place, Run};

/// What weighted shortest job first is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wsjf {
    /// The paper's M as a time: who has waited for so long goes before all who have not.
    pub patience_us: u64,
    /// A run that would go at a smaller offset of the same file goes first if its Tv is greater by so many hundredths at
    /// most (the paper's junction coefficient, §6.3.1).
    pub junction_percent: u32,
    /// Whether Tv ends at 0.
    pub is_clamped: bool,
}

impl Wsjf {
    /// What it is told by default.
    pub const DEFAULT: Wsjf = Wsjf { patience_us: 500_000, junction_percent: 10, is_clamped: true };
    /// As the paper has it, to compare with.
    pub const PAPER: Wsjf = Wsjf { is_clamped: false, ..Wsjf::DEFAULT };
}

pub(super) struct Order {
    wsjf: Wsjf,
    runs: Falling,
}

impl Order {
    pub fn new(wsjf: Wsjf) -> Self {
        Order { wsjf, runs: Falling::new(wsjf.is_clamped, wsjf.junction_percent) }
    }

    fn line(&self, run: &Run) -> Line {
        Line::of(run.bytes, run.bytes_us, self.wsjf.patience_us)
    }
}

impl super::Order for Order {
    fn insert(&mut self, run: &Run) {
        self.runs.insert(run.head, run.seniority(), self.line(run));
    }

    fn remove(&mut self, run: &Run) {
        self.runs.remove(run.head, run.seniority(), self.line(run));
    }

    fn choose(&mut self, now_us: u64) -> Option<Place> {
        self.runs.choose(now_us)
    }

    fn validate(&self, runs: &BTreeMap<Place, Run>) {
        self.runs.validate(runs.values().map(|run| (run.head, run.seniority(), self.line(run))));
    }
}
