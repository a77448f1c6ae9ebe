//! Overlap of staging and computing: which tasks are data-intensive, and what a node lends while it stages those.

use core::ops::{AddAssign, SubAssign};

/// How staging and computing overlap.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// If not, a task takes its slot before its inputs are staged, and holds it idle meanwhile. For comparison.
    pub is_on: bool,
    /// A task is data-intensive if so many bytes of its inputs are missing.
    pub data_intensive_bytes: u64,
    /// Or if fetching them would take so long, microseconds, at the rate that was observed.
    pub data_intensive_us: u64,
}

impl Default for Overlap {
    /// On, from 64 MB or two seconds.
    fn default() -> Self {
        Overlap { is_on: true, data_intensive_bytes: 64_000_000, data_intensive_us: 2_000_000 }
    }
}

impl Overlap {
    /// Missing bytes from which a task is data-intensive at that rate, 0 if none is known. At least one: a task without
    /// inputs only computes.
    pub(crate) fn threshold_bytes(&self, rate_bytes_per_s: u64) -> u64 {
        let in_time = u128::from(rate_bytes_per_s) * u128::from(self.data_intensive_us) / 1_000_000;
        let in_time = if rate_bytes_per_s == 0 { u64::MAX } else { u64::try_from(in_time).unwrap_or(u64::MAX) };
        self.data_intensive_bytes.min(in_time).max(1)
    }
}

/// Of smaller objects, the time to ask for them is most of what they take.
const LEAST_TELLING_BYTES: u64 = 1_000_000;

/// A moving average over about eight fetches.
pub(crate) fn learn_rate(known: u64, bytes: u64, took_us: u64) -> u64 {
    if bytes < LEAST_TELLING_BYTES {
        return known;
    }
    let observed = u128::from(bytes) * 1_000_000 / u128::from(took_us.max(1));
    let observed = u64::try_from(observed).unwrap_or(u64::MAX);
    if known == 0 { observed } else { (u128::from(known) * 7 + u128::from(observed)).div_ceil(8) as u64 }
}

/// Tasks that await data, and the processors that they will take, thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub tasks: u32,
    pub cpus_milli: u64,
}

impl AddAssign for Awaited {
    fn add_assign(&mut self, more: Awaited) {
        self.tasks += more.tasks;
        self.cpus_milli += more.cpus_milli;
    }
}

impl SubAssign for Awaited {
    fn sub_assign(&mut self, less: Awaited) {
        self.tasks -= less.tasks;
        self.cpus_milli -= less.cpus_milli;
    }
}
