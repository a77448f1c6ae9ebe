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
use thiserror::Error;
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

    /// The name of the policy in [`POLICIES`].
    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Sjf => "sjf",
            Policy::Wsjf(Wsjf { is_clamped: true, .. }) => "wsjf",
            Policy::Wsjf(Wsjf { is_clamped: false, .. }) => "wsjf-paper",
            Policy::Mlf(_) => "mlf",
            Policy::Sojf(_) => "sojf",
        }
    }

    /// The policy with these parameters instead of its own, as far as given.
    ///
    /// # Errors
    /// If a parameter belongs to other policies.
    pub fn with(self, given: PolicyParameters) -> Result<Policy, ForeignParameter> {
        let policy = match self {
            Policy::Wsjf(wsjf) => Policy::Wsjf(Wsjf {
                patience_us: given.patience_us.unwrap_or(wsjf.patience_us),
                junction_percent: given.junction_percent.unwrap_or(wsjf.junction_percent),
                ..wsjf
            }),
            Policy::Sojf(sojf) => {
                Policy::Sojf(Sojf { patience_us: given.patience_us.unwrap_or(sojf.patience_us) })
            }
            Policy::Mlf(mlf) => Policy::Mlf(Mlf {
                quantum_bytes: given.quantum_bytes.unwrap_or(mlf.quantum_bytes),
                factor: given.factor.unwrap_or(mlf.factor),
            }),
            Policy::Fifo | Policy::Sjf => self,
        };
        let own = policy.parameters();
        let parameters = [
            ("patience", given.patience_us.is_some(), own.patience_us.is_some()),
            ("junction", given.junction_percent.is_some(), own.junction_percent.is_some()),
            ("quantum", given.quantum_bytes.is_some(), own.quantum_bytes.is_some()),
            ("factor", given.factor.is_some(), own.factor.is_some()),
        ];
        match parameters.into_iter().find(|(_, is_given, is_own)| *is_given && !is_own) {
            Some((parameter, ..)) => Err(ForeignParameter { parameter, policy: self.name() }),
            None => Ok(policy),
        }
    }

    /// The parameters of the policy; `None` for those of other policies.
    pub fn parameters(self) -> PolicyParameters {
        let none = PolicyParameters::default();
        match self {
            Policy::Fifo | Policy::Sjf => none,
            Policy::Wsjf(Wsjf { patience_us, junction_percent, is_clamped: _ }) => {
                PolicyParameters {
                    patience_us: Some(patience_us),
                    junction_percent: Some(junction_percent),
                    ..none
                }
            }
            Policy::Mlf(Mlf { quantum_bytes, factor }) => PolicyParameters {
                quantum_bytes: Some(quantum_bytes),
                factor: Some(factor),
                ..none
            },
            Policy::Sojf(Sojf { patience_us }) => {
                PolicyParameters { patience_us: Some(patience_us), ..none }
            }
        }
    }
}

/// Parameters of policies. Each belongs to some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyParameters {
    /// See [`Wsjf::patience_us`] and [`Sojf::patience_us`].
    pub patience_us: Option<u64>,
    /// See [`Wsjf::junction_percent`].
    pub junction_percent: Option<u32>,
    /// See [`Mlf::quantum_bytes`].
    pub quantum_bytes: Option<u64>,
    /// See [`Mlf::factor`].
    pub factor: Option<u32>,
}

/// A parameter that the policy does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "`{parameter}` is not a parameter of the policy {policy}: leave it out, or change the policy"
)]
pub struct ForeignParameter {
    /// Name of the parameter.
    pub parameter: &'static str,
    /// Name of the policy.
    pub policy: &'static str,
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
