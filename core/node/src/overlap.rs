//! Overlap of staging and computing: which tasks are data-intensive. While a node stages a
//! data-intensive task, it lends the task's processors to other tasks.

use core::ops::{AddAssign, SubAssign};

/// How staging and computing overlap.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// Whether staging and computing overlap. Without overlap, a task holds its slot idle while
    /// its inputs are staged; this exists for comparison.
    pub is_on: bool,
    /// A task is data-intensive if at least this many bytes of its inputs are missing.
    pub data_intensive_bytes: u64,
    /// A task is also data-intensive if fetching the missing inputs would take this long at the
    /// observed rate, microseconds.
    pub data_intensive_us: u64,
}

impl Default for Overlap {
    /// Overlap is on; a task is data-intensive from 64 MB or two seconds.
    fn default() -> Self {
        Overlap { is_on: true, data_intensive_bytes: 64_000_000, data_intensive_us: 2_000_000 }
    }
}

impl Overlap {
    /// Number of missing bytes from which a task is data-intensive. `rate_bytes_per_s` is 0 if the
    /// rate is unknown. The result is at least 1, because a task without missing inputs only
    /// computes. With 64 MB or 2 s, it is 40 MB at 20 MB/s, and 64 MB at 100 MB/s or an unknown
    /// rate.
    pub(crate) fn threshold_bytes(&self, rate_bytes_per_s: u64) -> u64 {
        let in_time = u128::from(rate_bytes_per_s) * u128::from(self.data_intensive_us) / 1_000_000;
        let in_time = if rate_bytes_per_s == 0 {
            u64::MAX
        } else {
            u64::try_from(in_time).unwrap_or(u64::MAX)
        };
        self.data_intensive_bytes.min(in_time).max(1)
    }
}

/// Fetches of smaller objects say nothing about the rate: most of their time is the request.
const MIN_MEASURED_BYTES: u64 = 1_000_000;

/// Updates the rate, a moving average over about eight fetches, bytes per second. After 100 MB/s, a
/// fetch at 20 MB/s makes it 90 MB/s.
pub(crate) fn learn_rate(known: u64, bytes: u64, took_us: u64) -> u64 {
    if bytes < MIN_MEASURED_BYTES {
        return known;
    }
    let observed = u128::from(bytes) * 1_000_000 / u128::from(took_us.max(1));
    let observed = u64::try_from(observed).unwrap_or(u64::MAX);
    if known == 0 {
        observed
    } else {
        (u128::from(known) * 7 + u128::from(observed)).div_ceil(8) as u64
    }
}

/// Number of data-intensive tasks that wait for inputs, and their processors in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StagingLoad {
    pub tasks: u32,
    pub cpus_milli: u64,
}

impl AddAssign for StagingLoad {
    fn add_assign(&mut self, more: StagingLoad) {
        self.tasks += more.tasks;
        self.cpus_milli += more.cpus_milli;
    }
}

impl SubAssign for StagingLoad {
    fn sub_assign(&mut self, less: StagingLoad) {
        self.tasks -= less.tasks;
        self.cpus_milli -= less.cpus_milli;
    }
}
