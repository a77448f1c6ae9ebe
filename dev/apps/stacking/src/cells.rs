//! Cells of the sky: HEALPix, nested (Górski et al. 2005, §4 and appendix).
//!
//! The sphere has 12 base cells. Each order cuts every cell into four, so that the number of a
//! cell, without its last two bits, is the number of the cell around it. All cells of one order
//! have the same area: 13.7 arcmin wide at order 8. The right values are those of astropy-healpix:
//! a test compares with a table of them.

use std::f64::consts::{FRAC_PI_2, PI};

/// The finest order: numbers of cells fill 62 bits, and a cell is 0.4 milliarcseconds wide.
pub const MAX_ORDER: u8 = 29;

/// Cells of order 0.
pub const BASE_CELLS: u64 = 12;

/// The ring of cells, in units of their edge, at which each base cell has its southern corner.
const RING: [i64; 12] = [2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4];

/// The longitude of the middle of each base cell, in units of 45 degrees.
const LONGITUDE: [i64; 12] = [1, 3, 5, 7, 0, 2, 4, 6, 1, 3, 5, 7];

/// A direction: a vector of length 1.
pub type Direction = [f64; 3];

/// The direction of a place, degrees.
pub fn direction(ra: f64, dec: f64) -> Direction {
    let (sin_ra, cos_ra) = ra.to_radians().sin_cos();
    let (sin_dec, cos_dec) = dec.to_radians().sin_cos();
    [cos_dec * cos_ra, cos_dec * sin_ra, sin_dec]
}

/// The square of the distance of two directions along the straight line between them: it has digits
/// where the cosine of a small angle has none.
pub fn chord_squared(one: Direction, other: Direction) -> f64 {
    (0..3).map(|axis| (one[axis] - other[axis]).powi(2)).sum()
}

/// The number of the cell of `order` at a place, degrees. The declination is from -90 to 90.
pub fn cell_at(ra: f64, dec: f64, order: u8) -> u64 {
    let side = 1_u64 << order;
    let edge = side as f64;
    let (z, cos_dec) = dec.to_radians().sin_cos();
    let quarters = ra.rem_euclid(360.0) / 90.0;
    let whole = |number: f64| (number as u64).min(side - 1);
    let (face, x, y) = if z.abs() <= 2.0 / 3.0 {
        let (middle, up) = (edge * (0.5 + quarters), edge * z * 0.75);
        // Lines that rise, and lines that fall.
        let (falling, rising) = ((middle - up) as u64, (middle + up) as u64);
        let (low, high) = (falling >> order, rising >> order);
        let face = match low.cmp(&high) {
            std::cmp::Ordering::Equal => (low & 3) | 4,
            std::cmp::Ordering::Less => low,
            std::cmp::Ordering::Greater => high + 8,
        };
        (face, rising & (side - 1), side - 1 - (falling & (side - 1)))
    } else {
        let quarter = quarters.floor().min(3.0);
        let along = quarters - quarter;
        // 1 - |z| has no digits near a pole; the cosine has.
        let from_pole = edge * cos_dec * (3.0 / (1.0 + z.abs())).sqrt();
        let (right, left) = (whole(along * from_pole), whole((1.0 - along) * from_pole));
        if z > 0.0 {
            (quarter as u64, side - 1 - left, side - 1 - right)
        } else {
            (quarter as u64 + 8, right, left)
        }
    };
    (face << (2 * order)) | spread(x) | (spread(y) << 1)
}

/// The direction of the middle of a cell.
pub fn middle_of(cell: u64, order: u8) -> Direction {
    let side = 1_i64 << order;
    let face = (cell >> (2 * order)) as usize;
    let within = cell & ((1 << (2 * order)) - 1);
    let (x, y) = (gather(within) as i64, gather(within >> 1) as i64);
    let ring = RING[face] * side - x - y - 1;
    // Rings of the caps are shorter by one cell for each base cell, towards the pole.
    let (cells, z, cos_dec) = if ring < side || ring > 3 * side {
        let cells = if ring < side { ring } else { 4 * side - ring };
        let below = (cells * cells) as f64 / (3.0 * (side * side) as f64);
        let z = if ring < side { 1.0 - below } else { below - 1.0 };
        (cells, z, (below * (2.0 - below)).sqrt())
    } else {
        let z = (2 * side - ring) as f64 * 2.0 / (3.0 * side as f64);
        (side, z, (1.0 - z * z).sqrt())
    };
    let along = (LONGITUDE[face] * cells + x - y).rem_euclid(8 * cells);
    let (sin, cos) = (FRAC_PI_2 * 0.5 * along as f64 / cells as f64).sin_cos();
    [cos_dec * cos, cos_dec * sin, z]
}

/// The largest distance from the middle of a cell of `order` to a place in it, radians: that of the
/// cells whose middles are at a latitude of asin(2/3).
pub fn radius(order: u8) -> f64 {
    let edge = f64::from(1_u32 << order);
    let angle = PI / (4.0 * edge);
    let ring = (5.0_f64 / 9.0).sqrt();
    let corner = 1.0 - (1.0 - 1.0 / edge).powi(2) / 3.0;
    let corner = [(1.0 - corner * corner).sqrt(), 0.0, corner];
    let chord = chord_squared([ring * angle.cos(), ring * angle.sin(), 2.0 / 3.0], corner).sqrt();
    2.0 * (chord / 2.0).asin()
}

/// Puts a zero before each bit.
fn spread(number: u64) -> u64 {
    const STEPS: [(u32, u64); 5] = [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ];
    STEPS.iter().fold(number, |bits, (shift, mask)| (bits | (bits << shift)) & mask)
}

/// Takes every second bit, from the last one.
fn gather(number: u64) -> u64 {
    const STEPS: [(u32, u64); 5] = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    STEPS
        .iter()
        .fold(number & 0x5555_5555_5555_5555, |bits, (shift, mask)| (bits | (bits >> shift)) & mask)
}
