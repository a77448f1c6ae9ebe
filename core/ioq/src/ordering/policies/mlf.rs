//! Multilevel feedback: each round offers every run a quantum, and the oldest run that fits its
//! quantum goes first (io-coordination §5.2).
//!
//! The quantum of a request is `quantum_bytes` in its first round and grows by `factor` in each
//! further round. The quantum of a run is that of its oldest request. So the round in which a run
//! will fit is known in advance: runs wait by that round, and nothing is multiplied. If no run
//! fits, the next round in which one does begins at once. Among the runs that fit, the file of the
//! oldest is chosen, and in that file the run at the smallest offset (§6.3.1).
//!
//! Example, the paper's figure 4 with a quantum of 10 and a factor of 2: runs A1 and A2 have 20 and
//! 15, A3 has 5. In round 0 only A3 fits. In round 1 their quanta are 20; A2 has grown to 25, so A1
//! goes. In round 2 the quantum of A2 is 40 and A2 goes with 30.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ordering::run::{QueueKey, RequestRun, Seniority};

/// Parameters of multilevel feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mlf {
    /// Quantum of a request in its first round, the paper's initial quantum.
    pub quantum_bytes: u64,
    /// Growth of the quantum with each round, the paper's k. At least 2.
    pub factor: u32,
}

impl Mlf {
    /// Default parameters. For example a run of 16 MiB fits after 4 rounds.
    pub const DEFAULT: Mlf = Mlf { quantum_bytes: 1 << 20, factor: 2 };

    /// Number of rounds after which this many bytes fit the quantum. For example, with a quantum of
    /// 10 and a factor of 2, it is 0 for 10 bytes, 1 for 11, and 3 for 41.
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

pub(super) struct MlfOrder {
    mlf: Mlf,
    round: u64,
    /// Runs that do not fit yet, by the round in which they will.
    waiting: BTreeMap<(u64, QueueKey), Seniority>,
    /// Runs that fit, by age and by key.
    by_age: BTreeMap<Seniority, QueueKey>,
    by_key: BTreeSet<QueueKey>,
}

impl MlfOrder {
    pub fn new(mlf: Mlf) -> Self {
        MlfOrder {
            mlf,
            round: 0,
            waiting: BTreeMap::new(),
            by_age: BTreeMap::new(),
            by_key: BTreeSet::new(),
        }
    }

    /// The round in which a run fits.
    fn fits_in_round(&self, run: &RequestRun) -> u64 {
        run.oldest_round + self.mlf.rounds(run.size.bytes)
    }
}

impl super::RunOrder for MlfOrder {
    fn insert(&mut self, run: &RequestRun) {
        self.waiting.insert((self.fits_in_round(run), run.head), run.seniority());
    }

    fn remove(&mut self, run: &RequestRun) {
        if self.waiting.remove(&(self.fits_in_round(run), run.head)).is_none() {
            self.by_age.remove(&run.seniority());
            self.by_key.remove(&run.head);
        }
    }

    fn choose(&mut self, _: u64) -> Option<QueueKey> {
        if self.by_age.is_empty() {
            let ((fits_in_round, _), _) = self.waiting.first_key_value()?;
            self.round = self.round.max(*fits_in_round);
        }
        while let Some(entry) =
            self.waiting.first_entry().filter(|entry| entry.key().0 <= self.round)
        {
            let ((_, head), seniority) = entry.remove_entry();
            self.by_age.insert(seniority, head);
            self.by_key.insert(head);
        }
        let (_, oldest) = self.by_age.first_key_value()?;
        let first = QueueKey { offset: 0, request: crate::event::RequestId(0), ..*oldest };
        self.by_key.range(first..).next().copied()
    }

    fn granted(&mut self) {
        self.round += 1;
    }

    fn round(&self) -> u64 {
        self.round
    }

    fn validate(&self, runs: &BTreeMap<QueueKey, RequestRun>) {
        assert_eq!(self.waiting.len() + self.by_age.len(), runs.len());
        assert_eq!(self.by_age.len(), self.by_key.len());
        for run in runs.values() {
            let is_content = self.by_age.get(&run.seniority()) == Some(&run.head)
                && self.by_key.contains(&run.head);
            let waits =
                self.waiting.get(&(self.fits_in_round(run), run.head)) == Some(&run.seniority());
            assert!(
                is_content != waits && (waits || self.fits_in_round(run) <= self.round),
                "{run:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quanta_double_with_each_round() {
        let mlf = Mlf { quantum_bytes: 10, factor: 2 };
        assert_eq!(
            [0, 10, 11, 20, 21, 40, 41].map(|bytes| mlf.rounds(bytes)),
            [0, 0, 1, 1, 2, 2, 3]
        );
        assert_eq!(Mlf { quantum_bytes: 0, factor: 0 }.rounds(u64::MAX), 64);
    }
}
