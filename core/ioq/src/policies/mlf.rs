//! Multilevel feedback: each round offers every run a quantum, and the oldest that is content with its own goes
//! (io-coordination §5.2).
//!
//! A quantum is `quantum_bytes` in a request's first round, and `factor` times as much in each further one; a run's is that
//! of its oldest request. So it is known of each run in which round it will be content, and nothing is multiplied: runs wait
//! by that round, and when nobody is content the next round with somebody begins at once. The file with the oldest of those
//! who are content goes, there the smallest offset (§6.3.1).

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::run::{Place, Run, Seniority};

/// What multilevel feedback is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mlf {
    /// What a request is offered at first. (the paper's q0)
    pub quantum_bytes: u64,
    /// It is offered so many times as much in each further round (the paper's k). Less than 2 is taken for 2.
    pub factor: u32,
}

impl Mlf {
    /// What it is told by default.
    pub const DEFAULT: Mlf = Mlf { quantum_bytes: 1 << 20, factor: 2 };

    /// After how many rounds so many bytes are not more than the quantum.
    fn rounds(self, bytes: u64) -> u64 {
        let mut quantum = u128::from(self.quantum_bytes.max(1));
        let mut rounds = 0;
        while quantum < u128::from(bytes) {
            quantum *= u128::from(self.factor.max(2));
            rounds += 1;
        }
        rounds
    }
}

pub(super) struct Order {
    mlf: Mlf,
    round: u64,
    /// Those who are not content yet, by the round in which they will be.
    waiting: BTreeMap<(u64, Place), Seniority>,
    /// Those who are, by age and by place.
    by_age: BTreeMap<Seniority, Place>,
    by_place: BTreeSet<Place>,
}

impl Order {
    pub fn new(mlf: Mlf) -> Self {
        Order { mlf, round: 0, waiting: BTreeMap::new(), by_age: BTreeMap::new(), by_place: BTreeSet::new() }
    }

    /// The round in which a run is content.
    fn content(&self, run: &Run) -> u64 {
        run.oldest_round + self.mlf.rounds(run.bytes)
    }
}

impl super::Order for Order {
    fn insert(&mut self, run: &Run) {
        self.waiting.insert((self.content(run), run.head), run.seniority());
    }

    fn remove(&mut self, run: &Run) {
        if self.waiting.remove(&(self.content(run), run.head)).is_none() {
            self.by_age.remove(&run.seniority());
            self.by_place.remove(&run.head);
        }
    }

    fn choose(&mut self, _: u64) -> Option<Place> {
        if self.by_age.is_empty() {
            let ((content, _), _) = self.waiting.first_key_value()?;
            self.round = self.round.max(*content);
        }
        while let Some(entry) = self.waiting.first_entry().filter(|entry| entry.key().0 <= self.round) {
            let ((_, head), seniority) = entry.remove_entry();
            self.by_age.insert(seniority, head);
            self.by_place.insert(head);
        }
        let (_, oldest) = self.by_age.first_key_value()?;
        let first = Place { offset: 0, request: crate::event::RequestId(0), ..*oldest };
        self.by_place.range(first..).next().copied()
    }

    fn granted(&mut self) {
        self.round += 1;
    }

    fn round(&self) -> u64 {
        self.round
    }

    fn validate(&self, runs: &BTreeMap<Place, Run>) {
        assert_eq!(self.waiting.len() + self.by_age.len(), runs.len());
        assert_eq!(self.by_age.len(), self.by_place.len());
        for run in runs.values() {
            let is_content = self.by_age.get(&run.seniority()) == Some(&run.head) && self.by_place.contains(&run.head);
            let waits = self.waiting.get(&(self.content(run), run.head)) == Some(&run.seniority());
            assert!(is_content != waits && (waits || self.content(run) <= self.round), "{run:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quanta_double_with_each_round() {
        let mlf = Mlf { quantum_bytes: 10, factor: 2 };
        assert_eq!([0, 10, 11, 20, 21, 40, 41].map(|bytes| mlf.rounds(bytes)), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(Mlf { quantum_bytes: 0, factor: 0 }.rounds(u64::MAX), 64);
    }
}
