//! Configuration of one server.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::ClassId;
use crate::ordering::policies::{Mlf, Policy};

/// Configuration of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Policy that chooses the next run within a class.
    pub policy: Policy,
    /// Largest run in bytes, the paper's M of §5.1. A single request may be larger.
    pub max_run_bytes: u64,
    /// Anticipation window: an idle server is held this long for a request that would continue a
    /// chain. 0: never.
    pub window_us: u64,
    /// The next grant leaves this long after the predicted end of the previous one, the paper's k
    /// of §4.1: from 0 to twice the time of a message. `None`: grants are not predicted; the next
    /// one leaves when the end is reported.
    pub margin_us: Option<u64>,
    /// Assumed bandwidth until the server's own has been measured.
    pub bandwidth_bytes_per_s: u64,
    /// Limits on the work that the server is given.
    pub budget: Budget,
    /// Lease of a grant beside four times its predicted duration.
    pub lease_us: u64,
    /// Quality of service of each class. A request of any other class belongs to the default
    /// class, 0.
    pub classes: BTreeMap<ClassId, ClassQos>,
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

/// Limits on the work that a server is given at a time and in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Outstanding grants: 1 for a disk with one arm, many for an object store, which serves them
    /// in parallel. 0 means
    /// 1. `None`: found by trial.
    pub concurrency: Option<u32>,
    /// Bytes a second, if limited.
    pub bytes_per_s: Option<u64>,
    /// Requests a second, if limited.
    pub requests_per_s: Option<u64>,
}

/// Quality of service of a class: the three controls of mClock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassQos {
    /// Granted to the class before anything else, if the class has requests. `None`: nothing is
    /// reserved.
    pub reservation_bytes_per_s: Option<u64>,
    /// The class is granted no more than this, even if the server would be idle. `None`: no limit.
    pub limit_bytes_per_s: Option<u64>,
    /// Relative share of the bandwidth that is left after reservations.
    pub weight: u32,
}

impl Default for ClassQos {
    fn default() -> Self {
        ClassQos { reservation_bytes_per_s: None, limit_bytes_per_s: None, weight: 1 }
    }
}
