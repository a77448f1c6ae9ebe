//! One region of interest: the square of pixels around a sky object, calibrated, with the object on
//! a pixel's centre.
//!
//! The blocks of section 6.4 in their order: *getTile* and *convertArray* (in
//! [`fits_read`](crate::fits_read)), then *calibration* and *interpolation*. ROIs are shifted,
//! never rotated or scaled, as in the paper. That is right for point sources, and for frames of one
//! survey.

use std::str::FromStr;

use crate::fits_read::RowTable;
use crate::measure::median_and_sigma;
use crate::objects::SkyObject;
use crate::profile::{BlockProfile, CodeBlock};
use crate::projection::Projection;

/// The background of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sky {
    /// This number of counts everywhere.
    Counts(f64),
    /// The median pixel of each ROI: stars and the object itself cover few of its pixels.
    Median,
}

impl Sky {
    fn counts(self, pixels: &[f64]) -> f64 {
        match self {
            Sky::Counts(counts) => counts,
            Sky::Median => {
                let mut sorted = pixels.to_vec();
                let middle = sorted.len() / 2;
                *sorted.select_nth_unstable_by(middle, f64::total_cmp).1
            }
        }
    }
}

/// A text is not a background.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a number of counts nor `median`")]
pub struct SkyError(pub String);

impl FromStr for Sky {
    type Err = SkyError;

    fn from_str(text: &str) -> Result<Self, SkyError> {
        match text.parse::<f64>() {
            _ if text == "median" => Ok(Sky::Median),
            Ok(counts) if counts.is_finite() => Ok(Sky::Counts(counts)),
            _ => Err(SkyError(text.to_owned())),
        }
    }
}

/// How a frame shows an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// With its whole ROI.
    Whole(Window),
    /// The border cuts its ROI.
    Border,
    /// Not at all.
    Outside,
}

impl Placement {
    /// How a frame of `width` times `height` pixels shows the ROI of `size` pixels around an
    /// object.
    pub fn of(
        projection: &Projection,
        object: SkyObject,
        size: usize,
        width: usize,
        height: usize,
    ) -> Self {
        let on = |at: f64, edge: usize| at >= -0.5 && at < edge as f64 - 0.5;
        match projection.pixel(object.ra, object.dec) {
            Some((x, y)) if on(x, width) && on(y, height) => {
                Window::around(x, y, size, width, height)
                    .map_or(Placement::Border, Placement::Whole)
            }
            _ => Placement::Outside,
        }
    }
}

/// Where the ROI of one object lies on its frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Column of its first pixel.
    pub x: usize,
    /// Row of its first pixel.
    pub y: usize,
    /// How far right of a pixel's centre the object is: 0 up to 1 pixel.
    pub shift_x: f64,
    /// How far above a pixel's centre the object is: 0 up to 1 pixel.
    pub shift_y: f64,
    /// Edge of the ROI, pixels. The object goes to pixel `size / 2` of it, in both directions.
    pub size: usize,
}

impl Window {
    /// The window for an object at pixel `(x, y)` of a frame; none if the frame's border cuts it.
    ///
    /// The shift needs one more column and row than the ROI has, so the tile to cut is `size + 1`
    /// pixels wide.
    pub fn around(
        x: f64,
        y: f64,
        size: usize,
        frame_width: usize,
        frame_height: usize,
    ) -> Option<Self> {
        let first = |centre: f64, frame: usize| {
            let first = centre.floor() - (size / 2) as f64;
            (first >= 0.0 && first + (size + 1) as f64 <= frame as f64).then_some(first as usize)
        };
        let (left, bottom) = (first(x, frame_width)?, first(y, frame_height)?);
        Some(Self { x: left, y: bottom, shift_x: x - x.floor(), shift_y: y - y.floor(), size })
    }

    /// Edge of the tile to cut, pixels.
    pub fn tile_size(&self) -> usize {
        self.size + 1
    }

    /// Cuts this window out of `rows` and makes it ready to be summed. None if one of its pixels is
    /// undefined (BLANK or NaN), or if its noise is asked for and there is none.
    pub fn cut(
        &self,
        rows: &RowTable<'_>,
        calibration: Calibration,
        profile: &mut BlockProfile,
    ) -> Option<Region> {
        let edge = self.tile_size();
        let tile = profile.time(CodeBlock::GetTile, || rows.tile(self.x, self.y, edge, edge));
        let mut pixels = profile.time(CodeBlock::ConvertArray, || tile.convert());
        if pixels.iter().any(|pixel| !pixel.is_finite()) {
            return None;
        }
        let weight = profile.time(CodeBlock::Calibration, || {
            calibration.apply(&mut pixels);
            calibration.weigh(&pixels)
        })?;
        let pixels = profile.time(CodeBlock::Interpolation, || {
            interpolate(&pixels, self.size, self.shift_x, self.shift_y)
        });
        Some(Region { pixels, weight })
    }
}

/// A region that is ready to be summed.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// Flux, row after row.
    pub pixels: Vec<f64>,
    /// The weight that its noise gives it; 1 if noise does not count.
    pub weight: f64,
}

/// How the counts of a frame become flux.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The background.
    pub sky: Sky,
    /// Flux of one count.
    pub cal: f64,
    /// Whether the noise of a region decides on its weight.
    pub by_variance: bool,
}

impl Calibration {
    /// Counts to flux.
    fn apply(&self, pixels: &mut [f64]) {
        let sky = self.sky.counts(pixels);
        calibrate(pixels, sky, self.cal);
    }

    /// The inverse of the variance of a background pixel: with such weights, the noise of a mean is
    /// the least (Cochran 1937). The variance is that of the calibrated pixels before the shift,
    /// which smooths them; it is taken from the median deviation, so that stars count little.
    fn weigh(&self, pixels: &[f64]) -> Option<f64> {
        if !self.by_variance {
            return Some(1.0);
        }
        let (_, sigma) = median_and_sigma(&mut pixels.to_vec());
        let weight = sigma.powi(-2);
        (weight.is_finite() && weight > 0.0).then_some(weight)
    }
}

/// Counts to flux: subtracts the background of `sky` counts, and multiplies by `cal`, the flux of
/// one count.
pub fn calibrate(pixels: &mut [f64], sky: f64, cal: f64) {
    for pixel in pixels {
        *pixel = (*pixel - sky) * cal;
    }
}

/// Moves an image by `(-shift_x, -shift_y)`, each 0 up to 1 pixel, by bilinear interpolation. The
/// edge is `size + 1` pixels before, and `size` after.
///
/// Bilinear interpolation keeps the flux of a source. It smooths by up to half a pixel. That lowers
/// the noise of single pixels and correlates neighbours; [`measure`](crate::measure) allows for
/// both.
pub fn interpolate(pixels: &[f64], size: usize, shift_x: f64, shift_y: f64) -> Vec<f64> {
    let edge = size + 1;
    assert_eq!(pixels.len(), edge * edge, "a tile of {edge} x {edge} pixels");
    let (left, right) = (1.0 - shift_x, shift_x);
    let mut moved = Vec::with_capacity(size * size);
    for (below, above) in pixels.chunks_exact(edge).zip(pixels.chunks_exact(edge).skip(1)) {
        moved.extend(below.windows(2).zip(above.windows(2)).map(|(below, above)| {
            let below = left * below[0] + right * below[1];
            let above = left * above[0] + right * above[1];
            (1.0 - shift_y) * below + shift_y * above
        }));
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_stop_at_the_border() {
        // A 10-pixel ROI around pixel 5 needs pixels 0 to 10.
        let window = |x, y| Window::around(x, y, 10, 11, 20);
        assert_eq!(
            window(5.0, 5.25),
            Some(Window { x: 0, y: 0, shift_x: 0.0, shift_y: 0.25, size: 10 })
        );
        assert_eq!(window(4.99, 5.0), None);
        assert_eq!(window(6.0, 5.0), None);
        assert!(window(5.0, 14.9).is_some());
        assert_eq!(window(5.0, 15.0), None);
        assert_eq!(window(f64::NAN, 5.0), None);
    }

    #[test]
    fn a_sky_is_a_number_or_the_median() {
        assert_eq!(("12.5".parse(), "median".parse()), (Ok(Sky::Counts(12.5)), Ok(Sky::Median)));
        assert!(["", "mean", "nan", "inf"].iter().all(|text| text.parse::<Sky>().is_err()));
        assert_eq!(Sky::Median.counts(&[3.0, 900.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(Sky::Counts(7.0).counts(&[1.0]), 7.0);
    }

    #[test]
    fn interpolation_of_a_plane_is_exact() {
        let plane = |x: f64, y: f64| 3.0 + 2.0 * x - 5.0 * y;
        let tile: Vec<f64> = (0..25).map(|i| plane((i % 5) as f64, (i / 5) as f64)).collect();
        for (i, pixel) in interpolate(&tile, 4, 0.3, 0.8).into_iter().enumerate() {
            assert!((pixel - plane((i % 4) as f64 + 0.3, (i / 4) as f64 + 0.8)).abs() < 1e-12);
        }
    }
}
