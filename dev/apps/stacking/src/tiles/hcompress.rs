//! HCOMPRESS_1 (FITS standard 4.0 §10.4.4; White 1992): the H transform, a two-dimensional Haar
//! transform with whole numbers, whose bit planes are written as quadtrees.
//!
//! `rows` and `columns` are those of the image; a number of the transform is at `row * columns +
//! column`. All sums wrap, so that damaged data give wrong pixels and never a panic.

use super::bits::BitReader;

/// The first bytes of a tile.
const MAGIC: [u8; 2] = [0xdd, 0x99];

/// Largest number of bit planes: those of the 64-bit numbers that are written.
const MAX_PLANES: u8 = 62;

/// The pixels of a tile of `columns` times `rows`; none if it is damaged.
/// With `smooth`, differences that were rounded away follow from the neighbours.
pub(super) fn decode(bytes: &[u8], columns: usize, rows: usize, smooth: bool) -> Option<Vec<i64>> {
    let (head, body) = bytes.split_at_checked(25)?;
    let number = |at: usize| Some(i32::from_be_bytes(head[at..at + 4].try_into().ok()?));
    let size = [number(2)?, number(6)?].map(usize::try_from);
    if head[..2] != MAGIC || size != [Ok(rows), Ok(columns)] {
        return None;
    }
    let scale = i64::from(number(10)?);
    let sum = i64::from_be_bytes(head[14..22].try_into().ok()?);
    let planes = &head[22..25];
    if planes.iter().any(|&planes| planes > MAX_PLANES) {
        return None;
    }
    let mut transform = Transform { numbers: vec![0; rows * columns], rows, columns };
    transform.read(body, planes)?;
    transform.numbers[0] = sum;
    if scale > 1 {
        transform.numbers.iter_mut().for_each(|number| *number = number.wrapping_mul(scale));
    }
    transform.invert(if smooth { scale >> 1 } else { 0 });
    Some(transform.numbers)
}

/// A part of the transform: its first number, rows and columns.
#[derive(Clone, Copy)]
struct Quadrant {
    first: usize,
    rows: usize,
    columns: usize,
}

impl Quadrant {
    /// Doublings from one number to the longer edge.
    fn doublings(&self) -> u32 {
        self.rows.max(self.columns).max(1).next_power_of_two().trailing_zeros()
    }
}

struct Transform {
    numbers: Vec<i64>,
    rows: usize,
    columns: usize,
}

impl Transform {
    /// Reads the numbers: the bit planes of four quadrants, then signs.
    fn read(&mut self, bytes: &[u8], planes: &[u8]) -> Option<()> {
        let (rows, columns) = (self.rows.div_ceil(2), self.columns.div_ceil(2));
        let (below, right) = (self.rows / 2, self.columns / 2);
        let quadrants = [
            (Quadrant { first: 0, rows, columns }, planes[0]),
            (Quadrant { first: columns, rows, columns: right }, planes[1]),
            (Quadrant { first: rows * self.columns, rows: below, columns }, planes[1]),
            (
                Quadrant { first: rows * self.columns + columns, rows: below, columns: right },
                planes[2],
            ),
        ];
        let mut reader = BitReader::new(bytes);
        for (quadrant, planes) in quadrants {
            for plane in (0..planes).rev() {
                self.read_plane(&mut reader, quadrant, plane)?;
            }
        }
        if reader.take(4)? != 0 {
            return None;
        }
        reader.align();
        for number in self.numbers.iter_mut().filter(|number| **number != 0) {
            if reader.bit()? {
                *number = -*number;
            }
        }
        Some(())
    }

    /// Reads one bit of each number of a quadrant.
    fn read_plane(&mut self, reader: &mut BitReader<'_>, of: Quadrant, plane: u8) -> Option<()> {
        let codes = match reader.take(4)? {
            0 => {
                // Written directly: a code for each two by two numbers.
                let count = of.rows.div_ceil(2) * of.columns.div_ceil(2);
                (0..count).map(|_| Some(reader.take(4)? as u8)).collect::<Option<Vec<u8>>>()?
            }
            0xf => quadtree(reader, of)?,
            _ => return None,
        };
        let across = of.columns.div_ceil(2);
        for row in 0..of.rows {
            for column in 0..of.columns {
                let bit = child(codes[row / 2 * across + column / 2], row, column);
                let at = of.first + row * self.columns + column;
                self.numbers[at] |= i64::from(bit) << plane;
            }
        }
        Some(())
    }

    /// The inverse transform, from the sum of all pixels to the pixels. Smoothing changes a
    /// difference by no more than `most`, the amount that rounding may have removed.
    fn invert(&mut self, most: i64) {
        let whole = Quadrant { first: 0, rows: self.rows, columns: self.columns };
        let doublings = whole.doublings();
        if doublings == 0 {
            return;
        }
        let mut rounding = Rounding::new(doublings - 1);
        self.numbers[0] = Rounding::to_multiple(self.numbers[0], doublings + 1);
        for step in (0..doublings).rev() {
            // The size after this step: halves of the image, rounded up.
            let (rows, columns) = (halved(self.rows, step), halved(self.columns, step));
            for row in 0..rows {
                self.interleave(row * self.columns, 1, columns);
            }
            for column in 0..columns {
                self.interleave(column, self.columns, rows);
            }
            if most > 0 {
                self.smooth_slopes(rows, columns, most);
                self.smooth_curvatures(rows, columns, most);
            }
            rounding.is_last = step == 0;
            self.add_and_subtract(rows, columns, rounding);
            rounding.bit = rounding.bit.saturating_sub(1);
        }
    }

    /// Puts the second half of a line between the numbers of its first half.
    fn interleave(&mut self, first: usize, step: usize, length: usize) {
        let half = length.div_ceil(2);
        let line: Vec<i64> = (0..length).map(|at| self.numbers[first + at * step]).collect();
        for (at, number) in line.into_iter().enumerate() {
            let to = if at < half { 2 * at } else { 2 * (at - half) + 1 };
            self.numbers[first + to * step] = number;
        }
    }

    /// Differences along rows and columns become those that the sums beside them suggest.
    fn smooth_slopes(&mut self, rows: usize, columns: usize, most: i64) {
        let width = self.columns;
        let inner = |edge: usize| (2..edge.saturating_sub(2)).step_by(2);
        for row in inner(rows) {
            for column in (0..columns).step_by(2) {
                self.smooth_slope(row * width + column, 2 * width, width, most);
            }
        }
        for row in (0..rows).step_by(2) {
            for column in inner(columns) {
                self.smooth_slope(row * width + column, 2, 1, most);
            }
        }
    }

    /// The difference at `step` after `here`, by the sums at `apart` before and after.
    fn smooth_slope(&mut self, here: usize, apart: usize, step: usize, most: i64) {
        let [before, own, after] =
            [here - apart, here, here + apart].map(|place| self.numbers[place]);
        let (up, down) = (after.wrapping_sub(own), own.wrapping_sub(before));
        // The slope stays between the sums: where they have a peak it does not change.
        let high = up.min(down).max(0).wrapping_shl(2);
        let low = up.max(down).min(0).wrapping_shl(2);
        if low < high {
            let wanted = after.wrapping_sub(before).min(high).max(low);
            let there = here + step;
            self.numbers[there] = nearer(self.numbers[there], wanted, 3, most);
        }
    }

    /// The same for differences across, by the sums at the corners.
    fn smooth_curvatures(&mut self, rows: usize, columns: usize, most: i64) {
        let width = self.columns;
        for row in (2..rows.saturating_sub(2)).step_by(2) {
            for column in (2..columns.saturating_sub(2)).step_by(2) {
                let here = row * width + column;
                let at = |place: usize| self.numbers[place];
                let own = at(here);
                let corner = |row: usize, column: usize| at(row * width + column);
                let (below_left, above_left) =
                    (corner(row - 2, column - 2), corner(row + 2, column - 2));
                let (below_right, above_right) =
                    (corner(row - 2, column + 2), corner(row + 2, column + 2));
                let (x, y) = (at(here + width).wrapping_shl(1), at(here + 1).wrapping_shl(1));
                let differences = [
                    (above_right.wrapping_sub(own), x.wrapping_neg().wrapping_sub(y)),
                    (own.wrapping_sub(above_left), x.wrapping_sub(y)),
                    (own.wrapping_sub(below_right), y.wrapping_sub(x)),
                    (below_left.wrapping_sub(own), x.wrapping_add(y)),
                ];
                let bound = |limit: fn(i64) -> i64| {
                    differences.map(|(difference, slope)| limit(difference).wrapping_add(slope))
                };
                let high = bound(|number| number.max(0)).into_iter().min().unwrap_or(0);
                let low = bound(|number| number.min(0)).into_iter().max().unwrap_or(0);
                let (high, low) = (high.wrapping_shl(4), low.wrapping_shl(4));
                if low < high {
                    let wanted = above_right
                        .wrapping_add(below_left)
                        .wrapping_sub(below_right)
                        .wrapping_sub(above_left);
                    let wanted = wanted.min(high).max(low);
                    let cross = here + width + 1;
                    self.numbers[cross] = nearer(self.numbers[cross], wanted, 6, most);
                }
            }
        }
    }

    /// From sums and differences of two by two numbers to the numbers.
    fn add_and_subtract(&mut self, rows: usize, columns: usize, rounding: Rounding) {
        for row in (0..rows).step_by(2) {
            for column in (0..columns).step_by(2) {
                let here = row * self.columns + column;
                let (right, below) = (here + 1, here + self.columns);
                match (row + 1 < rows, column + 1 < columns) {
                    (true, true) => self.invert_four([here, right, below, below + 1], rounding),
                    (true, false) => self.invert_two(here, below, rounding),
                    (false, true) => self.invert_two(here, right, rounding),
                    (false, false) => self.numbers[here] >>= rounding.shift(),
                }
            }
        }
    }

    fn invert_four(&mut self, places: [usize; 4], rounding: Rounding) {
        let [sum, y, x, cross] = places.map(|place| self.numbers[place]);
        let [x, y] = [x, y].map(|number| Rounding::to_multiple(number, rounding.bit + 1));
        let cross = rounding.of_cross(cross);
        // Bits that the forward transform has dropped follow from those that are there.
        let low = cross & (1 << rounding.bit);
        let inward = |number: i64| {
            if number >= 0 { number.wrapping_sub(low) } else { number.wrapping_add(low) }
        };
        let (x, y) = (inward(x), inward(y));
        let next = (cross ^ x ^ y) & (1 << (rounding.bit + 1));
        let sum = if sum < 0 && low == 0 {
            sum.wrapping_add(next)
        } else {
            sum.wrapping_add(low).wrapping_sub(next)
        };
        let total = |x: i64, y: i64, cross: i64| {
            sum.wrapping_add(x).wrapping_add(y).wrapping_add(cross) >> rounding.shift()
        };
        let (no_x, no_y, no_cross) = (x.wrapping_neg(), y.wrapping_neg(), cross.wrapping_neg());
        let found = [
            total(no_x, no_y, cross),
            total(no_x, y, no_cross),
            total(x, no_y, no_cross),
            total(x, y, cross),
        ];
        for (place, number) in places.into_iter().zip(found) {
            self.numbers[place] = number;
        }
    }

    /// The same at an odd edge, where there are two numbers.
    fn invert_two(&mut self, here: usize, there: usize, rounding: Rounding) {
        let (sum, difference) = (self.numbers[here], self.numbers[there]);
        let difference = Rounding::to_multiple(difference, rounding.bit + 1);
        let next = difference & (1 << (rounding.bit + 1));
        let sum = if sum >= 0 { sum.wrapping_sub(next) } else { sum.wrapping_add(next) };
        self.numbers[there] = sum.wrapping_add(difference) >> rounding.shift();
        self.numbers[here] = sum.wrapping_sub(difference) >> rounding.shift();
    }
}

/// A number that has gone towards `wanted / 2^bits`, by `most` at most.
fn nearer(number: i64, wanted: i64, bits: u32, most: i64) -> i64 {
    let change = wanted.wrapping_sub(number.wrapping_shl(bits)) / (1 << bits);
    number.wrapping_add(change.min(most).max(-most))
}

/// The length of an edge, halved `steps` times and rounded up.
fn halved(edge: usize, steps: u32) -> usize {
    edge.div_ceil(1 << steps)
}

/// To which bits numbers are rounded in a step.
#[derive(Clone, Copy)]
struct Rounding {
    bit: u32,
    is_last: bool,
}

impl Rounding {
    fn new(bit: u32) -> Self {
        Self { bit, is_last: false }
    }

    /// Sums are divided by 2, and by 4 in the last step.
    fn shift(self) -> u32 {
        if self.is_last { 2 } else { 1 }
    }

    /// Rounds to a multiple of `2^bit`; a half goes away from zero.
    fn to_multiple(number: i64, bit: u32) -> i64 {
        if bit == 0 {
            return number;
        }
        let half = (1_i64 << bit) >> 1;
        number.wrapping_add(if number >= 0 { half } else { half - 1 }) & -(1_i64 << bit)
    }

    fn of_cross(self, number: i64) -> i64 {
        Self::to_multiple(number, self.bit)
    }
}

/// The bit of a code for one of its two by two numbers: the first one has the highest bit.
fn child(code: u8, row: usize, column: usize) -> u8 {
    (code >> (3 - (2 * (row % 2) + column % 2))) & 1
}

/// The codes of the numbers of a quadrant, two by two, from a quadtree: a code says which of the
/// four parts have a code of their own.
fn quadtree(reader: &mut BitReader<'_>, of: Quadrant) -> Option<Vec<u8>> {
    let doublings = of.doublings();
    let mut codes = vec![huffman(reader)?];
    let mut across = 1;
    for step in (1..doublings).rev() {
        let (rows, columns) = (halved(of.rows, step), halved(of.columns, step));
        let mut finer = vec![0; rows * columns];
        for row in 0..rows {
            for column in 0..columns {
                let code = codes[row / 2 * across + column / 2];
                finer[row * columns + column] = child(code, row, column);
            }
        }
        for code in finer.iter_mut().rev().filter(|code| **code != 0) {
            *code = huffman(reader)?;
        }
        (codes, across) = (finer, columns);
    }
    Some(codes)
}

/// A code of the quadtree, with fewer bits if it is frequent.
fn huffman(reader: &mut BitReader<'_>) -> Option<u8> {
    let mut code = reader.take(3)? as u8;
    if code < 4 {
        return Some(1 << code);
    }
    let mut longer = |code: u8| Some((code << 1) | u8::from(reader.bit()?));
    code = longer(code)?;
    if let Some(found) = [3, 5, 10, 12, 15].get(usize::from(code) - 8) {
        return Some(*found);
    }
    code = longer(code)?;
    if let Some(found) = [6, 7, 9, 11, 13].get(usize::from(code) - 26) {
        return Some(*found);
    }
    Some(if longer(code)? == 62 { 0 } else { 14 })
}
