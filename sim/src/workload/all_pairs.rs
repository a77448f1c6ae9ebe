//! All-Pairs: each object of one set with each of another (data-diffusion §5.3, figure 34).
//!
//! In which order they come matters: row by row, a task shares an object with the one before it; in random order, hardly
//! ever.

use smallvec::smallvec;

use super::Workload;
use crate::arrival::Arrival;
use crate::random::Random;

/// The order in which tasks come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Row by row, as the two loops of figure 34 submit them.
    Rows,
    /// Any, by a seed.
    Random(u64),
}

/// `side` times `side` tasks, all there from the beginning; task `i * side + j` reads the objects `i` and `side + j`.
#[derive(Clone, Debug)]
pub struct AllPairs {
    /// Objects in each set.
    pub side: u32,
    /// Bytes of each.
    pub object_bytes: u64,
    /// How long a task computes, microseconds.
    pub compute_us: u64,
    /// The order in which they come.
    pub order: Order,
}

impl AllPairs {
    /// That of the cluster of 200 processors: 500 times 500 objects of 12 MB, 1 s of computing.
    pub fn cluster(order: Order) -> Self {
        AllPairs { side: 500, object_bytes: 12_000_000, compute_us: 1_000_000, order }
    }

    /// That of BlueGene/P and SiCortex, whose processors are a quarter as fast: 1,000 times 1,000 objects, 4 s.
    pub fn supercomputer(order: Order) -> Self {
        AllPairs { side: 1_000, object_bytes: 12_000_000, compute_us: 4_000_000, order }
    }
}

impl Workload for AllPairs {
    fn objects(&self) -> u32 {
        2 * self.side
    }

    fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    fn tasks(&self) -> u64 {
        u64::from(self.side).pow(2)
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let rows = 0..u32::try_from(self.tasks()).expect("at most 65,535 objects in each set");
        let task = |task: u32| Arrival {
            at_us: 0,
            inputs: smallvec![task / self.side, self.side + task % self.side],
            compute_us: self.compute_us,
        };
        match self.order {
            Order::Rows => Box::new(rows.map(task)),
            Order::Random(seed) => {
                let mut tasks: Vec<u32> = rows.collect();
                Random::new(seed).shuffle(&mut tasks);
                Box::new(tasks.into_iter().map(task))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_the_papers() {
        let rows = include_str!("../../tests/data/ap_shapes.csv").lines().skip(1);
        let workloads = [AllPairs::cluster(Order::Rows), AllPairs::supercomputer(Order::Rows)];
        assert_eq!(rows.clone().count(), workloads.len());
        for (row, workload) in rows.zip(workloads) {
            let expected: Vec<f64> = row.split(',').take(6).map(|cell| cell.parse().expect("a number")).collect();
            let read_bytes = workload.tasks() * 2 * workload.object_bytes;
            let shape = [
                f64::from(workload.side),
                workload.tasks() as f64,
                f64::from(workload.objects()),
                workload.object_bytes as f64 / 1e6,
                workload.data_bytes() as f64 / 1e9,
                read_bytes as f64 / 1e9,
            ];
            assert_eq!(expected, shape);
        }
    }

    #[test]
    fn each_pair_comes_once_in_either_order() {
        let pairs = |order| {
            let workload = AllPairs { side: 40, ..AllPairs::cluster(order) };
            workload.arrivals().map(|task| (task.inputs[0], task.inputs[1])).collect::<Vec<_>>()
        };
        let rows = pairs(Order::Rows);
        assert_eq!(rows[..2], [(0, 40), (0, 41)]);
        assert_eq!(rows[1599], (39, 79));
        let mut random = pairs(Order::Random(1));
        assert_ne!(random, pairs(Order::Random(2)));
        let neighbours = random.windows(2).filter(|two| two[0].0 == two[1].0 || two[0].1 == two[1].1).count();
        assert!(neighbours < 160, "{neighbours} of 1,600 tasks share an object with the one before");
        random.sort_unstable();
        assert_eq!(random, rows);
    }
}
