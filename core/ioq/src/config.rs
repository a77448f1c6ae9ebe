//! How a server is treated.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::event::ClassId;
use crate::policies::{Mlf, Policy};

/// How a server is treated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Which run goes first.
    pub policy: Policy,
    /// Bytes of a run at most (the paper's M). A single request may have more.
    pub max_run_bytes: u64,
    /// An idle server is held for so long for what would continue a chain; not at all if it is 0.
    pub window_us: u64,
    /// The next grant leaves so much later than when the one before is predicted to be done (the paper's k): up to twice
    /// what a message takes. None: when that is heard to be done.
    pub margin_us: Option<u64>,
    /// What a server does in a second, until it has been measured.
    pub bandwidth_bytes_per_s: u64,
    /// How much it is given to do.
    pub budget: Budget,
    /// A grant lasts for so long, and for what it is predicted to take several times over.
    pub lease_us: u64,
    /// How classes are treated. Requests of any other class are of the default one.
    pub classes: BTreeMap<ClassId, Quality>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            policy: Policy::Mlf(Mlf::DEFAULT),
            max_run_bytes: 16 << 20,
            window_us: 1_000,
            margin_us: None,
            bandwidth_bytes_per_s: 100_000_000,
            budget: Budget::default(),
            lease_us: 1_000_000,
            classes: BTreeMap::new(),
        }
    }
}

/// How a class is treated: mClock's three controls (Gulati, Merchant and Varman 2010).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quality {
    /// It is given so much, whatever others want. None: nothing is reserved.
    pub reservation_bytes_per_s: Option<u64>,
    /// It is given no more, though nobody wants it.
    pub limit_bytes_per_s: Option<u64>,
    /// Beyond reservations, it is given so many parts of what there is.
    pub weight: u32,
}

impl Default for Quality {
    fn default() -> Self {
        Quality { reservation_bytes_per_s: None, limit_bytes_per_s: None, weight: 1 }
    }
}
