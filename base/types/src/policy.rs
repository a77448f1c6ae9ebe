//! The names of the policies a cluster is started with. The policies themselves live in `core`.

use core::fmt;
use core::str::FromStr;

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A text is not the name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {kind} policy; there are {known}")]
pub struct PolicyError {
    /// The text.
    pub text: String,
    /// The kind of policy, with its article.
    pub kind: &'static str,
    /// The names of all policies of that kind.
    pub known: String,
}

macro_rules! policy_names {
    ($(#[$doc:meta])* $name:ident, $kind:literal {
        $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every policy, in the order in which help lists them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The name on the command line.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.name()) }
        }

        impl FromStr for $name {
            type Err = PolicyError;
            fn from_str(text: &str) -> Result<Self, PolicyError> {
                Self::ALL.iter().copied().find(|policy| policy.name() == text).ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|policy| policy.name()).collect();
                    PolicyError { text: text.into(), kind: $kind, known: names.join(", ") }
                })
            }
        }
    };
}

policy_names! {
    /// How a task and an executor are matched (data-diffusion §2.3).
    PlacementPolicy, "a placement" {
        /// First-available: no data awareness, no hints, no caching.
        FirstAvailable = "fa",
        /// First-cache-available: no data awareness in placement; executors cache, and are told who
        /// holds what.
        FirstCacheAvailable = "fca",
        /// Max-cache-hit: a task waits for an executor that holds the most of its data.
        MaxCacheHit = "mch",
        /// Max-compute-util: no free executor is left idle; executors with the data are preferred.
        MaxComputeUtil = "mcu",
        /// Good-cache-compute: MCH while utilisation is at the threshold, else MCU.
        GoodCacheCompute = "gcc",
        /// The executor on which the task would finish first, by estimates of waiting, fetching and
        /// computing.
        Cost = "cost",
    }
}

policy_names! {
    /// Which object leaves a full store (data-diffusion §2.1).
    EvictionPolicy, "an eviction" {
        /// Any object, all equally likely.
        Random = "random",
        /// The object stored first.
        Fifo = "fifo",
        /// The object used longest ago.
        Lru = "lru",
        /// The object used least often; of equals, the one used longest ago.
        Lfu = "lfu",
        /// An object that was not used in this phase; a phase ends when all have been (2Mark of one
        /// store, data-diffusion §3.2).
        TwoMark = "2mark",
    }
}

policy_names! {
    /// How objects get to executors ahead of demand.
    #[derive(Default)]
    Distribution, "a distribution" {
        /// One executor reads persistent storage, and each passes on what it is still receiving.
        #[default]
        Chain = "chain",
        /// In rounds: in each, every executor that has all objects sends them to one executor that
        /// has none. The best case of active storage (data-diffusion §5.3), for comparison.
        SpanningTree = "spanning-tree",
    }
}

policy_names! {
    /// How nodes are requested from a batch system (data-diffusion §2.1).
    ProvisioningPolicy, "a provisioning" {
        /// One request for each node.
        OneAtATime = "one-at-a-time",
        /// Requests for one node, two, three and so on.
        Additive = "additive",
        /// Requests for one node, two, four and so on.
        Exponential = "exponential",
        /// One request for all.
        AllAtOnce = "all-at-once",
        /// One request for the nodes that complete the waiting tasks within a target time.
        Demand = "demand",
    }
}
