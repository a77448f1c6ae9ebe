//! The cells of the sky that a frame touches: all of them, and few others.
//!
//! A frame is sampled on a grid. No pixel is further from a sample than neighbours of the grid are
//! from each other, so that a cell which the frame touches has a sample within that distance. Cells
//! are found from the base cells down, each with the samples that are near enough.

use serde::{Deserialize, Serialize};

use crate::cells::{BASE_CELLS, Direction, chord_squared, direction, middle_of, radius};
use crate::projection::Projection;

/// Samples along each edge of a frame.
const SAMPLED: usize = 17;

/// Frames whose samples are further apart, radians (5 degrees), and maps with places beside the sky
/// are found by their pixels alone: they touch every base cell.
const MAX_APART: f64 = 0.087;

/// Edges of cells in the diagonal of a frame, at least: a frame touches some 20 cells.
const CELLS_ALONG: f64 = 4.0;

/// Width of a base cell, radians.
const BASE_WIDTH: f64 = 1.023;

/// The finest order of a coverage: cells of 0.2 arcsec.
pub const MAX_COVERAGE_ORDER: u8 = 20;

/// Cells of one order, in rising order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Their order.
    pub order: u8,
    /// Their numbers.
    pub cells: Vec<u64>,
}

impl Coverage {
    /// The cells that a frame of `width` times `height` pixels touches.
    pub fn of(projection: &Projection, width: usize, height: usize) -> Self {
        let along =
            |edge: usize, step: usize| edge as f64 * step as f64 / (SAMPLED - 1) as f64 - 0.5;
        let samples: Option<Vec<Direction>> = (0..SAMPLED * SAMPLED)
            .map(|number| {
                let (x, y) = (along(width, number % SAMPLED), along(height, number / SAMPLED));
                let (ra, dec) = projection.sky(x, y)?;
                Some(direction(ra, dec))
            })
            .collect();
        let whole = Self { order: 0, cells: (0..BASE_CELLS).collect() };
        let Some(samples) = samples else { return whole };
        let apart = farthest_neighbours(&samples);
        if apart > MAX_APART {
            return whole;
        }
        let corner = samples[0];
        let extent = samples
            .iter()
            .map(|&sample| chord_squared(corner, sample))
            .fold(0.0, f64::max)
            .sqrt()
            .max(1e-9);
        let order = (BASE_WIDTH * CELLS_ALONG / extent).log2().floor();
        let order = order.clamp(0.0, f64::from(MAX_COVERAGE_ORDER)) as u8;
        let mut cells = Vec::new();
        let reach = Reach { order, apart };
        for base in 0..BASE_CELLS {
            reach.descend(0, base, &samples, &mut cells);
        }
        Self { order, cells }
    }
}

/// The largest distance between neighbours of the grid, diagonals as well, radians.
fn farthest_neighbours(samples: &[Direction]) -> f64 {
    let pairs = (0..samples.len()).flat_map(|at| {
        let column = at % SAMPLED;
        let right = (column + 1 < SAMPLED).then_some(at + 1);
        let above = (at + SAMPLED < samples.len()).then_some(at + SAMPLED);
        let across = above.and(right).map(|right| right + SAMPLED);
        let back = above.filter(|_| column > 0).map(|above| above - 1);
        [right, above, across, back].into_iter().flatten().map(move |other| (at, other))
    });
    let longest = pairs.map(|(at, other)| chord_squared(samples[at], samples[other]));
    2.0 * (longest.fold(0.0, f64::max).sqrt() / 2.0).min(1.0).asin()
}

/// How far cells are looked for.
struct Reach {
    /// The order of the cells.
    order: u8,
    /// The distance of a pixel from the next sample, radians, at most.
    apart: f64,
}

impl Reach {
    fn descend(&self, order: u8, cell: u64, samples: &[Direction], cells: &mut Vec<u64>) {
        let angle = radius(order) + self.apart;
        let middle = middle_of(cell, order);
        // 1e-12 is the room for roundings: 0.2 arcsec.
        let limit = (2.0 * (angle / 2.0).sin()).powi(2) + 1e-12;
        let near: Vec<Direction> = samples
            .iter()
            .copied()
            .filter(|&sample| chord_squared(middle, sample) <= limit)
            .collect();
        if near.is_empty() {
            return;
        }
        if order == self.order {
            cells.push(cell);
            return;
        }
        (0..4).for_each(|part| self.descend(order + 1, 4 * cell + part, &near, cells));
    }
}
