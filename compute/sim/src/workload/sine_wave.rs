//! SW: waves of arrivals, each higher than the one before, up to 1,000 tasks per second
//! (data-diffusion §5.2, equation 13).
//!
//! The equation gives tasks per second as a function of minutes. Evaluated at each whole second and
//! rounded down, it gives exactly the paper's 2,000,000 tasks in 6,505 s.

use super::{Workload, of_any_file, spread};
use crate::arrival::Arrival;

/// Seconds in which tasks arrive.
const SECONDS: u64 = 6_505;
const TASKS: u64 = 2_000_000;

/// Each task reads one file; all files are equally likely.
#[derive(Clone, Debug)]
pub struct SineWave {
    /// Number of files.
    pub files: u32,
    /// Size of each file in bytes.
    pub file_bytes: u64,
    /// Computing time of a task, in microseconds.
    pub compute_us: u64,
    /// Seed of the choice of files.
    pub seed: u64,
}

impl SineWave {
    /// 100,000 files of 10 MB and 10 ms of computing.
    pub fn paper(seed: u64) -> Self {
        SineWave { files: 100_000, file_bytes: 10_000_000, compute_us: 10_000, seed }
    }

    /// Number of arrivals in each second.
    pub fn rates() -> impl Iterator<Item = u64> {
        (0..SECONDS).map(|second| rate(second) as u64)
    }
}

/// `A = (sin(sqrt(t + 0.11) * 2.859678) + 1) * (t + 0.11) * 5.705`, where `t` is in minutes.
fn rate(second: u64) -> f64 {
    let minutes = second as f64 / 60.0 + 0.11;
    (libm::sin(minutes.sqrt() * 2.859678) + 1.0) * minutes * 5.705
}

impl Workload for SineWave {
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
        let times = Self::rates()
            .zip(0..)
            .flat_map(|(rate, second): (u64, u64)| spread(second * 1_000_000, 1_000_000, rate));
        Box::new(of_any_file(times, self.files, self.compute_us, self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_the_papers() {
        let rows = include_str!("../../tests/data/sw_rates.csv").lines().skip(1);
        let expected: Vec<u64> = rows
            .map(|row| {
                row.split_once(',').and_then(|(_, tasks)| tasks.parse().ok()).expect("second,tasks")
            })
            .collect();
        assert_eq!(SineWave::rates().collect::<Vec<_>>(), expected);
        assert_eq!((expected.iter().sum(), expected.iter().max()), (TASKS, Some(&1_000)));
    }
}
