//! MI: the rate of arrivals grows by the factor 1.3 every minute, up to 1,000 tasks per second
//! (data-diffusion §5.1, equation 12).
//!
//! All 24 minutes would have 275,100 tasks. The paper's 250,000 tasks and 1,415 s result when the
//! last minute is cut at 34.9 s.

use super::{Workload, of_any_file, spread};
use crate::arrival::Arrival;

const INTERVALS: u32 = 24;
const INTERVAL_US: u64 = 60_000_000;
const MAX_TASKS_PER_S: u64 = 1_000;
/// Tasks of the paper's workload, which ends before its equation does.
const TASKS: u64 = 250_000;

/// Each task reads one file; all files are equally likely.
#[derive(Clone, Debug)]
pub struct MonotonicallyIncreasing {
    /// Number of files.
    pub files: u32,
    /// Size of each file in bytes.
    pub file_bytes: u64,
    /// Computing time of a task, in microseconds.
    pub compute_us: u64,
    /// Seed of the choice of files.
    pub seed: u64,
}

impl MonotonicallyIncreasing {
    /// 10,000 files of 10 MB and 10 ms of computing.
    pub fn paper(seed: u64) -> Self {
        MonotonicallyIncreasing { files: 10_000, file_bytes: 10_000_000, compute_us: 10_000, seed }
    }

    /// Tasks per second in each minute: `A_0 = 1`, `A_i = min(ceil(1.3 A_(i-1)), 1000)`.
    pub fn rates() -> impl Iterator<Item = u64> {
        let next = |rate: &u64| Some((rate * 13).div_ceil(10).min(MAX_TASKS_PER_S));
        std::iter::successors(Some(1), next).take(INTERVALS as usize)
    }
}

impl Workload for MonotonicallyIncreasing {
    fn objects(&self) -> u32 {
        self.files
    }

    fn object_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn tasks(&self) -> u64 {
        TASKS
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let seconds = INTERVAL_US / 1_000_000;
        let times = Self::rates().zip(0..).flat_map(move |(rate, interval)| {
            spread(interval * INTERVAL_US, INTERVAL_US, rate * seconds)
        });
        Box::new(of_any_file(times.take(TASKS as usize), self.files, self.compute_us, self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_counts_are_the_papers() {
        let mut rows = include_str!("../../tests/data/mi_rates.csv").lines().skip(1);
        let workload = MonotonicallyIncreasing::paper(1);
        let mut times = workload.arrivals().map(|task| task.at_us).peekable();
        for (interval, rate) in MonotonicallyIncreasing::rates().enumerate() {
            let end_us = (interval as u64 + 1) * INTERVAL_US;
            let tasks = std::iter::from_fn(|| times.next_if(|at_us| *at_us < end_us)).count();
            let row: Vec<_> = rows.next().expect("24 rows").split(',').collect();
            assert_eq!(
                (row[1].parse(), row[4].parse()),
                (Ok(rate), Ok(tasks)),
                "minute {interval}"
            );
        }
        assert_eq!((rows.next(), times.next()), (None, None));
        // The last task takes a thousandth of a second like the tasks before it.
        assert_eq!(workload.arrivals().last().map(|task| task.at_us + 1_000), Some(1_414_900_000));
    }
}
