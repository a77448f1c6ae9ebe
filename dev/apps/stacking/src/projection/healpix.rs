//! HPX: the projection of the HEALPix grid (Calabretta & Roukema 2007). It has H facets along the
//! equator, and K from pole to pole.

use std::f64::consts::{FRAC_PI_2, PI};

use super::MapProjection;

/// The grid.
#[derive(Debug)]
pub struct Healpix {
    /// Facets along the equator.
    h: f64,
    /// Facets from pole to pole.
    k: f64,
}

impl Healpix {
    /// The grid of `h` by `k` facets; none if these are no numbers of facets.
    pub fn new(h: f64, k: f64) -> Option<Self> {
        let count = |number: f64| number >= 1.0 && number.fract() == 0.0;
        (count(h) && count(k)).then_some(Self { h, k })
    }

    /// The middle of the polar facet of a longitude, or of a place along the plane.
    fn facet(&self, along: f64, north: bool) -> f64 {
        let odd = if self.k.rem_euclid(2.0) == 1.0 || north { 1.0 } else { 0.0 };
        let number = ((along + PI) * self.h / (2.0 * PI) + (1.0 - odd) / 2.0).floor();
        -PI + (2.0 * number + odd) * PI / self.h
    }
}

impl MapProjection for Healpix {
    fn plane(&self, longitude: f64, latitude: f64) -> Option<(f64, f64)> {
        let sin = latitude.sin();
        if sin.abs() <= (self.k - 1.0) / self.k {
            return Some((longitude, FRAC_PI_2 * self.k / self.h * sin));
        }
        let sigma = (self.k * (1.0 - sin.abs())).sqrt();
        let middle = self.facet(longitude, latitude > 0.0);
        let up = PI / self.h * ((self.k + 1.0) / 2.0 - sigma);
        Some((middle + (longitude - middle) * sigma, up.copysign(latitude)))
    }

    fn native(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (height, edge) = (y.abs() * self.h / PI, 1e-12);
        if x.abs() > PI * (1.0 + edge) || height > (self.k + 1.0) / 2.0 {
            return None;
        }
        if height <= (self.k - 1.0) / 2.0 {
            return Some((x, (2.0 * y * self.h / (PI * self.k)).clamp(-1.0, 1.0).asin()));
        }
        let sigma = (self.k + 1.0) / 2.0 - height;
        let middle = self.facet(x, y > 0.0);
        let aside = if sigma == 0.0 { 0.0 } else { (x - middle) / sigma };
        let latitude = (1.0 - sigma * sigma / self.k).asin().copysign(y);
        (aside.abs() <= PI / self.h * (1.0 + edge)).then_some((middle + aside, latitude))
    }

    fn reference(&self) -> (f64, f64) {
        (0.0, 0.0)
    }
}
