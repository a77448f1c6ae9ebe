//! Stacking: many sources are cut out of a few images of the sky (data-diffusion §6.3, table 3).
//!
//! A workload's *locality* is the mean number of tasks that read the same file. With ideal
//! placement, `1 - 1/locality` of all reads find their file in a store (figure 46).

use smallvec::smallvec;

use super::Workload;
use crate::arrival::Arrival;
use crate::random::Random;

/// One row of table 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locality {
    /// Locality, rounded as in the paper.
    pub locality: f64,
    /// Number of sources in the sky, which the paper calls objects: one task for each.
    pub sources: u32,
    /// Number of files that contain the sources.
    pub files: u32,
}

const fn row(locality: f64, sources: u32, files: u32) -> Locality {
    Locality { locality, sources, files }
}

/// Table 3.
pub const LOCALITIES: [Locality; 9] = [
    row(1.0, 111_700, 111_700),
    row(1.38, 154_345, 111_699),
    row(2.0, 97_999, 49_000),
    row(3.0, 88_857, 29_620),
    row(4.0, 76_575, 19_145),
    row(5.0, 60_590, 12_120),
    row(10.0, 46_480, 4_650),
    row(20.0, 40_460, 2_025),
    row(30.0, 23_695, 790),
];

/// Each task reads the file with its source. All files have the same number of sources, up to
/// rounding. Sources are requested in random order, all at the start.
#[derive(Clone, Debug)]
pub struct Stacking {
    /// Numbers of sources and files.
    pub locality: Locality,
    /// Size of a file in bytes.
    pub file_bytes: u64,
    /// Computing time of a task, in microseconds.
    pub compute_us: u64,
    /// Seed of the order of the sources.
    pub seed: u64,
}

impl Stacking {
    /// Compressed files, locality 30. Beyond metadata and I/O, the paper's figure 43 gives only
    /// "less than 1 ms" for each of three steps.
    pub fn paper(seed: u64) -> Self {
        Stacking { locality: LOCALITIES[8], file_bytes: 2_000_000, compute_us: 3_000, seed }
    }
}

impl Workload for Stacking {
    fn objects(&self) -> u32 {
        self.locality.files
    }

    fn object_bytes(&self) -> u64 {
        self.file_bytes
    }

    fn tasks(&self) -> u64 {
        self.locality.sources.into()
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let Locality { sources, files, .. } = self.locality;
        let file_of = |source| (u64::from(source) * u64::from(files) / u64::from(sources)) as u32;
        let mut reads: Vec<u32> = (0..sources).map(file_of).collect();
        Random::new(self.seed).shuffle(&mut reads);
        let task = |file| Arrival {
            inputs: smallvec![file],
            compute_us: self.compute_us,
            ..Arrival::default()
        };
        Box::new(reads.into_iter().map(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_and_as_often_as_the_others() {
        for locality in LOCALITIES {
            let workload = Stacking { locality, ..Stacking::paper(1) };
            let mut reads = vec![0; locality.files as usize];
            workload.arrivals().for_each(|task| reads[task.inputs[0] as usize] += 1);
            let (least, most) = (reads.iter().min().copied(), reads.iter().max().copied());
            let average = f64::from(locality.sources) / f64::from(locality.files);
            assert_eq!((least, most), (Some(average.floor() as u32), Some(average.ceil() as u32)));
            assert!(
                (average / locality.locality - 1.0).abs() < 0.003,
                "{average} against {}",
                locality.locality
            );
        }
    }
}
