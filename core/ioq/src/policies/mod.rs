//! Policies: which run goes first, one a file (io-coordination §5).
//!
//! A policy is told of each run that comes and goes, and keeps what it needs to find the first of 100,000 without looking at
//! all. Runs change as requests come; to it a run that has changed is another run. All runs are of one server, so that what
//! takes longer there is what has more bytes. Adding a policy touches its own file and [`of`].

mod fifo;
mod mlf;
mod sjf;
mod sojf;
mod wsjf;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

pub use mlf::Mlf;
use serde::{Deserialize, Serialize};
pub use sojf::Sojf;
pub use wsjf::Wsjf;

use crate::run::{Place, Run};

/// A policy and what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// The oldest.
    Fifo,
    /// The shortest.
    Sjf,
    /// The shortest, and the shorter the longer it has waited.
    Wsjf(Wsjf),
    /// The oldest of those that are not longer than what they are offered, which grows.
    Mlf(Mlf),
    /// For striped files: that of the shortest call, by all that it wants of all servers.
    Sojf(Sojf),
}

/// All policies with what they are told by default, by their names.
pub const POLICIES: &[(&str, Policy)] = &[
    ("fifo", Policy::Fifo),
    ("sjf", Policy::Sjf),
    ("wsjf", Policy::Wsjf(Wsjf::DEFAULT)),
    ("wsjf-paper", Policy::Wsjf(Wsjf::PAPER)),
    ("mlf", Policy::Mlf(Mlf::DEFAULT)),
    ("sojf", Policy::Sojf(Sojf::DEFAULT)),
];

impl Policy {
    /// The policy of that name, as in [`POLICIES`].
    pub fn named(name: &str) -> Option<Policy> {
        POLICIES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }
}

pub(crate) trait Order: Send {
    /// A run could be granted from now on.
    fn insert(&mut self, run: &Run);

    /// It could not any more: it was granted, or has changed.
    fn remove(&mut self, run: &Run);

    /// The head of the run that is to go first. Time never goes back. To ask and not to grant changes nothing.
    fn choose(&mut self, now_us: u64) -> Option<Place>;

    /// What was chosen is granted.
    fn granted(&mut self) {}

    /// How often runs were chosen, by what requests are to grow older.
    fn round(&self) -> u64 {
        0
    }

    /// # Panics
    /// If it does not know just these runs.
    fn validate(&self, runs: &BTreeMap<Place, Run>);
}

pub(crate) fn of(policy: Policy) -> Box<dyn Order> {
    match policy {
        Policy::Fifo => Box::new(fifo::Fifo::default()),
        Policy::Sjf => Box::new(sjf::Sjf::default()),
        Policy::Wsjf(wsjf) => Box::new(wsjf::Order::new(wsjf)),
        Policy::Mlf(mlf) => Box::new(mlf::Order::new(mlf)),
        Policy::Sojf(sojf) => Box::new(sojf::Order::new(sojf)),
    }
}
