//! Shortest outstanding demand first, for files that are striped over servers (io-coordination §5.3).
//!
//! A call ends when its last part does, so its parts should go at about the same time everywhere. The servers do not talk
//! to each other for that: each orders parts by what their calls want of all servers, which is the same everywhere, weighted
//! by waiting as under WSJF so that large calls are not starved.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::falling::Falling;
use crate::kinetic::Line;
use crate::run::{Place, Run};

/// What shortest outstanding demand first is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sojf {
    /// Who has waited for so long goes before all who have not.
    pub patience_us: u64,
}

impl Sojf {
    /// What it is told by default.
    pub const DEFAULT: Sojf = Sojf { patience_us: 500_000 };
}

pub(super) struct Order {
    sojf: Sojf,
    runs: Falling,
}

impl Order {
    pub fn new(sojf: Sojf) -> Self {
        Order { sojf, runs: Falling::new(true, 0) }
    }

    fn line(&self, run: &Run) -> Line {
        Line::of(run.demand_bytes, run.demand_bytes_us, self.sojf.patience_us)
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
