//! Reported measurements: the load of nodes, and moving averages of the read rates of workers.

/// Time constant: the past counts as much as what was reported in this time.
const MEMORY_US: u64 = 10_000_000;

/// Weight of a report that covers this time: 1/2 for 10 s, and 1/11 for 1 s.
fn weight(over_us: u64) -> f64 {
    over_us as f64 / (over_us + MEMORY_US) as f64
}

/// The load of a node, as the node last reported it; both values are fractions from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MeasuredLoad {
    pub disk: f64,
    pub load: f64,
}

impl MeasuredLoad {
    /// A load of these values; what is no number counts as 0.
    pub fn new(disk: f64, load: f64) -> Self {
        let fraction = |part: f64| if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        MeasuredLoad { disk: fraction(disk), load: fraction(load) }
    }

    /// The mean of loads; 0 if there are none. The mean of (0.2, 0) and (0.4, 1) is (0.3, 0.5).
    pub fn mean(loads: impl Iterator<Item = MeasuredLoad>) -> Self {
        let (mut sum, mut count) = (MeasuredLoad::default(), 0.0_f64);
        for MeasuredLoad { disk, load } in loads {
            sum = MeasuredLoad { disk: sum.disk + disk, load: sum.load + load };
            count += 1.0;
        }
        let count = count.max(1.0);
        MeasuredLoad { disk: sum.disk / count, load: sum.load / count }
    }
}

/// The read rate of a worker, bytes per second, never 0; `None` before the first report.
pub(crate) type ReadRate = Option<u64>;

/// The rate after another report of `bytes` in `over_us`, the last part of `elapsed_us` in which
/// the rate was measured. After 2 MB/s for 2 s, 8 MB in another 2 s make it 3 MB/s; after 2 MB/s
/// for 16 minutes, 40 MB in 10 s do.
pub(crate) fn measured(rate: ReadRate, bytes: u64, over_us: u64, elapsed_us: u64) -> ReadRate {
    let over_us = over_us.max(1);
    let seen =
        (u128::from(bytes) * 1_000_000 / u128::from(over_us)).clamp(1, u64::MAX.into()) as u64;
    // At first all reports count by their duration, so that the first bytes that fill a pipe do not
    // count for ten seconds.
    let weight = weight(over_us).max(over_us as f64 / elapsed_us.max(over_us) as f64);
    Some(rate.map_or(seen, |before| {
        ((1.0 - weight) * before as f64 + weight * seen as f64).max(1.0) as u64
    }))
}

/// Time to read `bytes` at `rate`, microseconds: 2 s for 4 MB at 2 MB/s.
pub(crate) fn duration_us(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000 / u128::from(rate)).min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_what_lasts() {
        let rate = measured(None, 4_000_000, 2_000_000, 2_000_000);
        assert_eq!(rate, Some(2_000_000));
        assert_eq!(
            measured(rate, 8_000_000, 2_000_000, 4_000_000),
            Some(3_000_000),
            "early, it is the mean"
        );
        assert_eq!(measured(rate, 40_000_000, MEMORY_US, 100 * MEMORY_US), Some(3_000_000));
        assert_eq!(measured(None, 0, 0, 0), Some(1), "a rate is never 0");
        assert_eq!(duration_us(4_000_000, 2_000_000), 2_000_000);
    }
}
