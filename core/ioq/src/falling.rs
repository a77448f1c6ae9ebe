//! Runs whose value falls while they wait: the first of them, for WSJF and SOJF.
//!
//! A value is a straight line over time, and lines of different slope cross, so no order of runs lasts: they are kept in a
//! [`Kinetic`] tree. Where values end at 0 each run gets there at a known time; then it moves among the *overdue*, of whom
//! the oldest goes. Each decision costs a few steps down a tree, and what has crossed since the last.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::kinetic::{Kinetic, Line};
use crate::run::{Place, Seniority};

pub(crate) struct Falling {
    lines: Kinetic,
    is_clamped: bool,
    junction_percent: i128,
    /// Those whose value has not come to 0, by when it will. Unless clamped: all, and nobody asks.
    zeros: BTreeSet<(u64, Seniority, Place)>,
    overdue: BTreeMap<Seniority, Place>,
}

impl Falling {
    pub fn new(is_clamped: bool, junction_percent: u32) -> Self {
        let (zeros, overdue) = (BTreeSet::new(), BTreeMap::new());
        Falling { lines: Kinetic::new(), is_clamped, junction_percent: junction_percent.into(), zeros, overdue }
    }

    pub fn insert(&mut self, head: Place, seniority: Seniority, line: Line) {
        self.lines.insert(head, seniority, line);
        if self.is_clamped {
            self.zeros.insert((line.zero_us(), seniority, head));
        }
    }

    pub fn remove(&mut self, head: Place, seniority: Seniority, line: Line) {
        self.lines.remove(&head);
        if self.is_clamped && !self.zeros.remove(&(line.zero_us(), seniority, head)) {
            self.overdue.remove(&seniority);
        }
    }

    /// Who goes first: of those with the smallest value the most senior, or who would go at a smaller offset of its file
    /// and has a value that is not much greater.
    pub fn choose(&mut self, now_us: u64) -> Option<Place> {
        while let Some((zero_us, seniority, head)) = self.zeros.first().copied()
            && zero_us <= now_us
        {
            self.zeros.pop_first();
            self.overdue.insert(seniority, head);
        }
        self.lines.advance(now_us);
        let (first, value) = match self.overdue.first_key_value() {
            Some((_, head)) => (*head, 0),
            None => self.lines.least()?,
        };
        if self.junction_percent == 0 {
            return Some(first);
        }
        let limit = value + (self.junction_percent * value.abs()).div_euclid(100);
        self.lines.first_within(first.stream, limit)
    }

    /// # Panics
    /// If it does not know just these runs.
    pub fn validate(&self, runs: impl Iterator<Item = (Place, Seniority, Line)>) {
        let mut all = 0;
        for (head, seniority, line) in runs {
            all += 1;
            let waits = self.zeros.contains(&(line.zero_us(), seniority, head));
            let is_overdue = self.overdue.get(&seniority) == Some(&head);
            assert_eq!(waits || is_overdue, self.is_clamped, "{head:?}");
        }
        assert_eq!(self.lines.len(), all);
        assert_eq!(self.zeros.len() + self.overdue.len(), if self.is_clamped { all } else { 0 });
    }
}
