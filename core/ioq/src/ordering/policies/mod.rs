//! Policies: which run of a class goes first, one policy a file (io-coordination §5).
//!
//! A policy is told about each run that appears and disappears. It keeps an index that finds the
//! first of 100,000 runs without looking at all of them. A run that changes is removed and inserted
//! again. All runs belong to one server, so a run with more bytes takes longer. A new policy needs
//! its own file, a variant of [`Policy`], a row in [`POLICIES`] and a line in [`order_of`].

mod aging;
mod fifo;
mod kinetic;
mod mlf;
mod run_order;
mod sjf;
mod sojf;
mod wsjf;

use alloc::boxed::Box;

pub use mlf::Mlf;
pub(crate) use run_order::RunOrder;
use serde::{Deserialize, Serialize};
pub use sojf::Sojf;
pub use wsjf::Wsjf;

/// A policy and its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// First in, first out: the run with the oldest request.
    Fifo,
    /// Shortest job first: the smallest run.
    Sjf,
    /// Weighted shortest job first: the smallest run, where waiting makes a run count as smaller.
    Wsjf(Wsjf),
    /// Multilevel feedback: the oldest run that fits its quantum, which grows with each round.
    Mlf(Mlf),
    /// Shortest outstanding job first, for striped files: the run of the smallest call, by its
    /// bytes on all servers.
    Sojf(Sojf),
}

/// All policies with their default parameters, by name.
pub const POLICIES: &[(&str, Policy)] = &[
    ("fifo", Policy::Fifo),
    ("sjf", Policy::Sjf),
    ("wsjf", Policy::Wsjf(Wsjf::DEFAULT)),
    ("wsjf-paper", Policy::Wsjf(Wsjf::PAPER)),
    ("mlf", Policy::Mlf(Mlf::DEFAULT)),
    ("sojf", Policy::Sojf(Sojf::DEFAULT)),
];

impl Policy {
    /// The policy with this name in [`POLICIES`].
    pub fn named(name: &str) -> Option<Policy> {
        POLICIES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }
}

pub(crate) fn order_of(policy: Policy) -> Box<dyn RunOrder> {
    match policy {
        Policy::Fifo => Box::new(fifo::FifoOrder::default()),
        Policy::Sjf => Box::new(sjf::SjfOrder::default()),
        Policy::Wsjf(wsjf) => Box::new(wsjf.order()),
        Policy::Mlf(mlf) => Box::new(mlf::MlfOrder::new(mlf)),
        Policy::Sojf(sojf) => Box::new(sojf.order()),
    }
}
