//! Floating-point pixels that were stored as whole numbers (FITS standard 4.0 §10.2). Random
//! numbers were added before they were rounded, so that faint sources keep their mean; the same
//! numbers are subtracted.

use std::sync::LazyLock;

use crate::error::FileProblem;
use crate::header::Header;

/// Random numbers of the standard (§10.2.3).
const RANDOM_NUMBERS: usize = 10_000;

/// The number that stands for an exact zero (SUBTRACTIVE_DITHER_2).
const ZERO: i64 = -2_147_483_646;

/// The random numbers, by Park and Miller (1988); cfitsio keeps them in single precision.
static RANDOM: LazyLock<Vec<f32>> = LazyLock::new(|| {
    const MODULUS: u64 = 2_147_483_647;
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed * 16_807 % MODULUS;
        (seed as f64 / MODULUS as f64) as f32
    };
    (0..RANDOM_NUMBERS).map(|_| next()).collect()
});

/// How random numbers were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dither {
    /// Where the numbers of the first tile begin: ZDITHER0.
    seed: usize,
    /// Whether exact zeros have a number of their own.
    keeps_zeros: bool,
}

impl Dither {
    /// What ZQUANTIZ says; none without random numbers.
    pub(super) fn read(header: &Header) -> Result<Option<Self>, FileProblem> {
        let keeps_zeros = match header.text("ZQUANTIZ")?.unwrap_or("NO_DITHER") {
            "SUBTRACTIVE_DITHER_1" => false,
            "SUBTRACTIVE_DITHER_2" => true,
            "NO_DITHER" | "NONE" => return Ok(None),
            other => return Err(FileProblem::Tiles(format!("ZQUANTIZ is '{other}'"))),
        };
        let seed = header.integer("ZDITHER0")?.unwrap_or(1);
        let seed = usize::try_from(seed).ok().filter(|seed| (1..=RANDOM_NUMBERS).contains(seed));
        let seed = seed.ok_or_else(|| FileProblem::Tiles("ZDITHER0 is no seed".to_owned()))?;
        Ok(Some(Self { seed, keeps_zeros }))
    }
}

/// What the whole numbers of a tile stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantized {
    pub(super) scale: f64,
    pub(super) zero: f64,
    pub(super) blank: Option<i64>,
    pub(super) dither: Option<Dither>,
    /// Whether pixels have single precision.
    pub(super) is_single: bool,
}

impl Quantized {
    /// The pixels of the tile `number`, from zero.
    pub(super) fn physical(&self, stored: &[i64], number: usize) -> Vec<f64> {
        let seed = self.dither.map_or(1, |dither| dither.seed);
        let mut start = (number + seed - 1) % RANDOM_NUMBERS;
        let mut next = (f64::from(RANDOM[start]) * 500.0) as usize;
        let mut pixels = Vec::with_capacity(stored.len());
        for &stored in stored {
            let offset = match self.dither {
                Some(_) => 0.5 - f64::from(RANDOM[next]),
                None => 0.0,
            };
            let value = (stored as f64 + offset) * self.scale + self.zero;
            let keeps_zeros = self.dither.is_some_and(|dither| dither.keeps_zeros);
            pixels.push(match value {
                _ if self.blank == Some(stored) => f64::NAN,
                _ if keeps_zeros && stored == ZERO => 0.0,
                value if self.is_single => f64::from(value as f32),
                value => value,
            });
            next += 1;
            if next == RANDOM_NUMBERS {
                start = (start + 1) % RANDOM_NUMBERS;
                next = (f64::from(RANDOM[start]) * 500.0) as usize;
            }
        }
        pixels
    }
}
