//! All-Pairs: each object of one set with each object of another (data-diffusion §5.3, figure 34).
//!
//! The order of the tasks matters. Row by row, a task shares an object with the task before it. In
//! random order, it hardly ever does. In tiles, the job reveals its pattern: all tiles start at
//! once at one corner and grow as squares. Each node then finds a tile of its own, whose objects
//! fit in its store. While a tile has few objects, they form as many pairs as possible.

use smallvec::smallvec;

use super::Workload;
use crate::arrival::Arrival;
use crate::random::Random;

/// The order in which tasks arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Row by row, as the two loops of figure 34 submit them.
    Rows,
    /// Random, by this seed.
    Random(u64),
    /// The first pair of each tile, then the second pair of each, and so on. A tile has this number
    /// of rows and columns; tiles at the far edges are smaller.
    Tiles(u32),
}

/// `side` times `side` tasks, which all arrive at the start. Task `i * side + j` reads the objects
/// `i` and `side + j`.
#[derive(Clone, Debug)]
pub struct AllPairs {
    /// Objects in each set.
    pub side: u32,
    /// Size of each object in bytes.
    pub object_bytes: u64,
    /// Computing time of a task, in microseconds.
    pub compute_us: u64,
    /// The order in which tasks arrive.
    pub order: Order,
}

impl AllPairs {
    /// The workload of the cluster with 200 processors: 500 times 500 objects of 12 MB, 1 s of
    /// computing.
    pub fn cluster(order: Order) -> Self {
        AllPairs { side: 500, object_bytes: 12_000_000, compute_us: 1_000_000, order }
    }

    /// The workload of BlueGene/P and SiCortex, whose processors have a quarter of the speed: 1,000
    /// times 1,000 objects, 4 s.
    pub fn supercomputer(order: Order) -> Self {
        AllPairs { side: 1_000, object_bytes: 12_000_000, compute_us: 4_000_000, order }
    }
}

/// The cells of a square, in an order in which every smaller square at the same corner comes first.
fn growing_squares(side: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..side).flat_map(|last| {
        let column = (0..last).map(move |row| (row, last));
        column.chain((0..=last).map(move |column| (last, column)))
    })
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
        let side = self.side;
        let rows = 0..u32::try_from(self.tasks()).expect("at most 65,535 objects in each set");
        let task = move |task: u32| Arrival {
            inputs: smallvec![task / side, side + task % side],
            compute_us: self.compute_us,
            ..Arrival::default()
        };
        match self.order {
            Order::Rows => Box::new(rows.map(task)),
            Order::Random(seed) => {
                let mut tasks: Vec<u32> = rows.collect();
                Random::new(seed).shuffle(&mut tasks);
                Box::new(tasks.into_iter().map(task))
            }
            Order::Tiles(tile) => {
                let tile = tile.min(side);
                let corners = move || (0..side).step_by(tile as usize);
                let of_each = move |(row, column)| {
                    let rows = corners().map(move |top| top + row).filter(move |row| *row < side);
                    rows.flat_map(move |row| {
                        let columns = corners()
                            .map(move |left| left + column)
                            .filter(move |column| *column < side);
                        columns.map(move |column| row * side + column)
                    })
                };
                Box::new(growing_squares(tile).flat_map(of_each).map(task))
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
            let expected: Vec<f64> =
                row.split(',').take(6).map(|cell| cell.parse().expect("a number")).collect();
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
    fn each_pair_comes_once_in_any_order() {
        let pairs = |order| {
            let workload = AllPairs { side: 40, ..AllPairs::cluster(order) };
            workload.arrivals().map(|task| (task.inputs[0], task.inputs[1])).collect::<Vec<_>>()
        };
        let rows = pairs(Order::Rows);
        assert_eq!(rows[..2], [(0, 40), (0, 41)]);
        assert_eq!(rows[1599], (39, 79));
        let mut random = pairs(Order::Random(1));
        assert_ne!(random, pairs(Order::Random(2)));
        let neighbours =
            random.windows(2).filter(|two| two[0].0 == two[1].0 || two[0].1 == two[1].1).count();
        assert!(
            neighbours < 160,
            "{neighbours} of 1,600 tasks share an object with the one before"
        );
        random.sort_unstable();
        assert_eq!(random, rows);
        let mut tiles = pairs(Order::Tiles(16));
        let corners = [0, 16, 32].map(|top| [40, 56, 72].map(|left| (top, left)));
        assert_eq!(tiles[..9], corners.concat(), "all tiles begin at their corners");
        assert_eq!(tiles[9..12], [(0, 41), (0, 57), (0, 73)]);
        let first: std::collections::BTreeSet<_> =
            tiles[..9 * 16].iter().flat_map(|(row, column)| [*row, *column]).collect();
        assert_eq!(
            first.len(),
            2 * 3 * 4,
            "sixteen pairs of each tile are of eight objects of each"
        );
        tiles.sort_unstable();
        assert_eq!(tiles, rows);
    }
}
