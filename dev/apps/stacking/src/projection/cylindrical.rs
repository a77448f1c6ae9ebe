//! Cylindrical and pseudo-cylindrical projections, whose parallels are straight (Calabretta &
//! Greisen 2002 §5.2, 5.3).

use std::f64::consts::{FRAC_PI_2, PI, SQRT_2};

use super::MapProjection;
use super::search::rising;

/// Room for roundings at the border of a map of the whole sky.
const ROUNDING: f64 = 1e-12;

/// The kinds, with their parameters.
#[derive(Debug)]
pub enum Cylindrical {
    /// Perspective: seen from μ radii, onto a cylinder of λ radii.
    Cyp {
        /// Distance from the centre, in radii of the sphere.
        mu: f64,
        /// Radius of the cylinder, in radii of the sphere.
        lambda: f64,
    },
    /// Equal area, with this squeeze.
    Cea(f64),
    /// Plate carrée.
    Car,
    /// Mercator's.
    Mer,
    /// Sanson-Flamsteed.
    Sfl,
    /// Parabolic.
    Par,
    /// Mollweide's.
    Mol,
    /// Hammer-Aitoff.
    Ait,
}

impl MapProjection for Cylindrical {
    fn plane(&self, longitude: f64, latitude: f64) -> Option<(f64, f64)> {
        let (sin, cos) = latitude.sin_cos();
        Some(match *self {
            Cylindrical::Cyp { mu, .. } if mu + cos == 0.0 => return None,
            Cylindrical::Cyp { mu, lambda } => {
                (lambda * longitude, (mu + lambda) * sin / (mu + cos))
            }
            Cylindrical::Cea(lambda) => (longitude, sin / lambda),
            Cylindrical::Car => (longitude, latitude),
            Cylindrical::Mer if latitude.abs() >= FRAC_PI_2 => return None,
            Cylindrical::Mer => (longitude, latitude.tan().asinh()),
            Cylindrical::Sfl => (longitude * cos, latitude),
            Cylindrical::Par => {
                let part = (latitude / 3.0).sin();
                (longitude * (1.0 - 4.0 * part * part), PI * part)
            }
            Cylindrical::Mol => {
                let angle = 0.5 * rising(|twice| twice + twice.sin(), PI * sin, -PI, PI)?;
                (2.0 * SQRT_2 / PI * longitude * angle.cos(), SQRT_2 * angle.sin())
            }
            Cylindrical::Ait => {
                let (sin_half, cos_half) = (longitude / 2.0).sin_cos();
                let gamma = (2.0 / (1.0 + cos * cos_half)).sqrt();
                (2.0 * gamma * cos * sin_half, gamma * sin)
            }
        })
    }

    fn native(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        match *self {
            Cylindrical::Cyp { mu, lambda } => {
                let slope = y / (mu + lambda);
                let sine = slope * mu / slope.hypot(1.0);
                let latitude = (sine.abs() <= 1.0).then(|| slope.atan() + sine.asin())?;
                (latitude.abs() <= FRAC_PI_2 + ROUNDING).then_some((x / lambda, latitude))
            }
            Cylindrical::Cea(lambda) => Some((x, arc_sine(y * lambda)?)),
            Cylindrical::Car => (y.abs() <= FRAC_PI_2 + ROUNDING).then_some((x, y)),
            Cylindrical::Mer => Some((x, y.sinh().atan())),
            Cylindrical::Sfl => on_sky(x, y.cos(), (y.abs() <= FRAC_PI_2 + ROUNDING).then_some(y)?),
            Cylindrical::Par => {
                let part = y / PI;
                on_sky(
                    x,
                    1.0 - 4.0 * part * part,
                    3.0 * (part.abs() <= 0.5 + ROUNDING).then(|| part.asin())?,
                )
            }
            Cylindrical::Mol => {
                let angle = arc_sine(y / SQRT_2)?;
                let latitude = arc_sine((2.0 * angle + (2.0 * angle).sin()) / PI)?;
                on_sky(x, 2.0 * SQRT_2 / PI * angle.cos(), latitude)
            }
            Cylindrical::Ait => {
                let square = 1.0 - x * x / 16.0 - y * y / 4.0;
                if square < 0.5 - ROUNDING {
                    return None;
                }
                let z = square.sqrt();
                Some((2.0 * (z * x / 2.0).atan2(2.0 * square - 1.0), arc_sine(y * z)?))
            }
        }
    }

    fn reference(&self) -> (f64, f64) {
        (0.0, 0.0)
    }
}

/// The arc sine; none beyond the border.
fn arc_sine(sine: f64) -> Option<f64> {
    (sine.abs() <= 1.0 + ROUNDING).then(|| sine.clamp(-1.0, 1.0).asin())
}

/// The place on a parallel that is `scale` long for each radian of longitude; none beyond its end.
fn on_sky(x: f64, scale: f64, latitude: f64) -> Option<(f64, f64)> {
    let longitude = if x == 0.0 { 0.0 } else { x / scale };
    (longitude.abs() <= PI * (1.0 + ROUNDING)).then_some((longitude, latitude))
}
