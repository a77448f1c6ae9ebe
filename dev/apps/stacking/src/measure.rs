//! Is there a source at the centre of a stacked image, and how certain is it?
//!
//! Aperture photometry: the flux within a circle around the centre, less the background beside it.
//! The noise of that flux is not derived from single pixels, because the sub-pixel shift correlates
//! the noise of neighbours. It is measured: the same circle is laid on many empty places of the
//! same image, and the noise is the scatter of their fluxes.

use crate::stack::Image;

/// Radius of the aperture, pixels. It contains 86 % of a point source of 1.4 arcsec (FWHM) at the
/// SDSS's 0.396 arcsec per pixel.
pub const APERTURE_RADIUS: usize = 3;

/// Empty places nearer to the centre than this, pixels, might contain light of the source.
const CLEAR_RADIUS: usize = 4 * APERTURE_RADIUS;

/// Fewest empty apertures; the scatter of fewer says little.
const FEWEST_APERTURES: usize = 8;

/// Standard deviation of a normal distribution, divided by its median absolute deviation.
const SIGMA_OVER_MAD: f64 = 1.4826;

/// A measurement of the central source, in the flux unit of CAL.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Flux of the source in the aperture, without the background.
    pub flux: f64,
    /// Standard deviation of the flux in an empty aperture.
    pub flux_sigma: f64,
    /// Standard deviation of a background pixel.
    pub pixel_sigma: f64,
}

impl Measurement {
    /// Measures the central source; none if the image is too small (below some 36 pixels) to
    /// measure its noise. All averages are medians, so that single stars in the background do
    /// little harm.
    pub fn of(image: &Image) -> Option<Self> {
        let (centre, size, step) = (image.size / 2, image.size, 2 * APERTURE_RADIUS + 1);
        let far = |x: usize, y: usize| {
            x.abs_diff(centre).pow(2) + y.abs_diff(centre).pow(2) >= CLEAR_RADIUS.pow(2)
        };

        let places = || (APERTURE_RADIUS..size.saturating_sub(APERTURE_RADIUS)).step_by(step);
        let mut empty: Vec<f64> = places()
            .flat_map(|y| places().map(move |x| (x, y)))
            .filter(|&(x, y)| far(x, y))
            .map(|(x, y)| aperture_flux(image, x, y))
            .collect();
        if empty.len() < FEWEST_APERTURES {
            return None;
        }
        let (background, flux_sigma) = median_and_sigma(&mut empty);
        let mut pixels: Vec<f64> =
            (0..size * size).filter(|i| far(i % size, i / size)).map(|i| image.pixels[i]).collect();
        let (_, pixel_sigma) = median_and_sigma(&mut pixels);
        Some(Self {
            flux: aperture_flux(image, centre, centre) - background,
            flux_sigma,
            pixel_sigma,
        })
    }

    /// Flux over its noise. Above 5 the source is certain.
    pub fn signal_to_noise(&self) -> f64 {
        self.flux / self.flux_sigma
    }
}

/// The sum of the pixels whose centres are within the aperture around pixel `(x, y)`.
fn aperture_flux(image: &Image, x: usize, y: usize) -> f64 {
    let reach = APERTURE_RADIUS;
    let square = (y - reach..=y + reach)
        .flat_map(|row| (x - reach..=x + reach).map(move |column| (column, row)));
    square
        .filter(|&(column, row)| column.abs_diff(x).pow(2) + row.abs_diff(y).pow(2) <= reach.pow(2))
        .map(|(column, row)| image.pixels[row * image.size + column])
        .sum()
}

/// Median, and standard deviation by the median absolute deviation. `values` must not be empty, and
/// is reordered.
pub(crate) fn median_and_sigma(values: &mut [f64]) -> (f64, f64) {
    let middle = values.len() / 2;
    let median = *values.select_nth_unstable_by(middle, f64::total_cmp).1;
    for value in &mut *values {
        *value = (*value - median).abs();
    }
    (median, SIGMA_OVER_MAD * *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
