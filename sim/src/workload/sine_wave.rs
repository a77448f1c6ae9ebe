//! SW: waves of arrivals, each higher than the last, to 1,000 tasks a second (data-diffusion §5.2, equation 13).
//!
//! The equation gives tasks a second as a function of minutes. Read at each whole second and rounded down, it gives the
//! paper's 2,000,000 tasks by 6,505 s exactly.

use super::{Workload, of_any_file, spread};
use crate::arrival::Arrival;

/// Seconds in which tasks come.
const SECONDS: u64 = 6_505;
const TASKS: u64 = 2_000_000;

/// Each task reads one file, any of them equally likely.
#[derive(Clone, Debug)]
pub struct SineWave {
    /// Files.
    pub files: u32,
    /// Bytes of each.
    pub file_bytes: u64,
    /// How long a task computes, microseconds.
    pub compute_us: u64,
    /// Which file each reads.
    pub seed: u64,
}

impl SineWave {
    /// 100,000 files of 10 MB and 10 ms of computing.
    pub fn paper(seed: u64) -> Self {
        SineWave { files: 100_000, file_bytes: 10_000_000, compute_us: 10_000, seed }
    }

    /// Tasks that come in each second.
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
        let times =
            Self::rates().zip(0..).flat_map(|(rate, second): (u64, u64)| spread(second * 1_000_000, 1_000_000, rate));
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
            .map(|row| row.split_once(',').and_then(|(_, tasks)| tasks.parse().ok()).expect("second,tasks"))
            .collect();
        assert_eq!(SineWave::rates().collect::<Vec<_>>(), expected);
        assert_eq!((expected.iter().sum(), expected.iter().max()), (TASKS, Some(&1_000)));
    }
}
