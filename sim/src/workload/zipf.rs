//! Zipf: few objects are read very often, and very many rarely; the `k`-th object `1 / k^exponent` times as often as the
//! first (data-diffusion §5 names it as the easier case, with hot spots).

use smallvec::smallvec;

use super::Workload;
use crate::arrival::Arrival;
use crate::random::Random;

/// Each task reads one object; they come at a constant rate.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Objects, the first being read the most often.
    pub objects: u32,
    /// Bytes of each.
    pub object_bytes: u64,
    /// 0: all equally often; around 1: as words, files and web pages are.
    pub exponent: f64,
    /// Tasks.
    pub tasks: u64,
    /// From one task to the next, microseconds; 0: all are there from the beginning.
    pub interval_us: u64,
    /// How long a task computes, microseconds.
    pub compute_us: u64,
    /// Which object each reads.
    pub seed: u64,
}

impl Default for Zipf {
    /// As much data and computing as [MI](super::MonotonicallyIncreasing), at 500 tasks a second.
    fn default() -> Self {
        Zipf {
            objects: 10_000,
            object_bytes: 10_000_000,
            exponent: 1.0,
            tasks: 250_000,
            interval_us: 2_000,
            compute_us: 10_000,
            seed: 1,
        }
    }
}

impl Workload for Zipf {
    fn objects(&self) -> u32 {
        self.objects
    }

    fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    fn tasks(&self) -> u64 {
        self.tasks
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let weight = |rank: u32| libm::pow(f64::from(rank), -self.exponent);
        let sum = |sum: &mut f64, rank| {
            *sum += weight(rank);
            Some(*sum)
        };
        let sums: Vec<f64> = (1..=self.objects).scan(0.0, sum).collect();
        let mut dice = Random::new(self.seed);
        Box::new((0..self.tasks).map(move |task| {
            let thrown = dice.share() * sums.last().expect("there are objects");
            let object = sums.partition_point(|sum| *sum <= thrown).min(sums.len() - 1) as u32;
            Arrival {
                at_us: task * self.interval_us,
                inputs: smallvec![object],
                compute_us: self.compute_us,
                ..Arrival::default()
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_as_often_as_their_rank_says() {
        let workload = Zipf { objects: 100, tasks: 500_000, ..Zipf::default() };
        let mut reads = vec![0.0; 100];
        workload.arrivals().for_each(|task| reads[task.inputs[0] as usize] += 1.0);
        let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for (place, reads) in reads.iter().enumerate() {
            let expected = 500_000.0 / harmonic / (place + 1) as f64;
            // Five standard deviations.
            assert!((reads - expected).abs() < 5.0 * expected.sqrt(), "object {place}: {reads} against {expected}");
        }
    }
}
