//! Zipf: a few objects are read very often, and most of them rarely. The `k`-th object is read `1 /
//! k^exponent` times as often as the first (data-diffusion §5 names it as the easier case, with hot
//! spots).

use smallvec::smallvec;

use super::Workload;
use crate::arrival::Arrival;
use crate::random::Random;

/// Each task reads one object. Tasks arrive at a constant rate.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// Number of objects. The first is read most often.
    pub objects: u32,
    /// Size of each object in bytes.
    pub object_bytes: u64,
    /// Skew of the reads. 0: all objects equally often; about 1: as for words, files and web
    /// pages.
    pub exponent: f64,
    /// Number of tasks.
    pub tasks: u64,
    /// Time between two arrivals, in microseconds. 0: all tasks arrive at the start.
    pub interval_us: u64,
    /// Computing time of a task, in microseconds.
    pub compute_us: u64,
    /// Seed of the choice of objects.
    pub seed: u64,
}

impl Default for Zipf {
    /// The data and computing time of [MI](super::MonotonicallyIncreasing), at 500 tasks per
    /// second.
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
            assert!(
                (reads - expected).abs() < 5.0 * expected.sqrt(),
                "object {place}: {reads} against {expected}"
            );
        }
    }
}
