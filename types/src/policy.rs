//! The names of the policies a cluster is started with. The policies themselves live in `core`.

use core::fmt;
use core::str::FromStr;

use alloc::string::String;
use serde::{Deserialize, Serialize};

macro_rules! policy_names {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
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
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|p| p.name() == text).ok_or_else(|| {
                    let mut names = String::new();
                    for policy in Self::ALL {
                        if !names.is_empty() { names.push_str(", "); }
                        names.push_str(policy.name());
                    }
                    alloc::format!(concat!("`{}` is not a ", $what, " policy; there are {}"), text, names)
                })
            }
        }
    };
}

policy_names! {
    /// How a task and an executor are matched (data-diffusion §2.3).
    PlacementPolicy, "placement" {
        /// First-available: no data awareness, no hints, no caching.
        FirstAvailable = "fa",
        /// Max-cache-hit: a task waits for an executor that holds the most of its data.
        MaxCacheHit = "mch",
        /// Max-compute-util: no free executor is left idle, those with the data are preferred.
        MaxComputeUtil = "mcu",
        /// Good-cache-compute: MCH while utilisation is at the threshold, else MCU.
        GoodCacheCompute = "gcc",
        /// Where the task would be done the soonest, by what waiting, fetching and computing are estimated to take.
        Cost = "cost",
    }
}

policy_names! {
    /// Which object leaves a full store (data-diffusion §2.1).
    EvictionPolicy, "eviction" {
        /// Any object, all equally likely.
        Random = "random",
        /// The object stored first.
        Fifo = "fifo",
        /// The object used longest ago.
        Lru = "lru",
        /// The object used least often; of equals, the one used longest ago.
        Lfu = "lfu",
    }
}

policy_names! {
    /// How objects get to executors ahead of demand.
    #[derive(Default)]
    Distribution, "distribution" {
        /// One executor reads persistent storage, and each passes on what it is still receiving.
        #[default]
        Chain = "chain",
        /// In rounds, of which each has whoever has everything give all of it to one that has nothing: the best case of
        /// active storage (data-diffusion §5.2), for comparison.
        SpanningTree = "spanning-tree",
    }
}

policy_names! {
    /// How nodes are asked of a batch system (data-diffusion §2.1).
    ProvisioningPolicy, "provisioning" {
        /// A request for each node.
        OneAtATime = "one-at-a-time",
        /// Requests for one node, two, three and so on.
        Additive = "additive",
        /// Requests for one node, two, four and so on.
        Exponential = "exponential",
        /// One request for all.
        AllAtOnce = "all-at-once",
        /// As many as have what waits done in a target time, by one request.
        Demand = "demand",
    }
}
