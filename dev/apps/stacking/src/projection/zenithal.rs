//! Zenithal projections (Calabretta & Greisen 2002 §5.1): the distance from the native pole becomes
//! a radius.

use std::f64::consts::{FRAC_PI_2, PI};

use super::search::rising;
use super::{MapProjection, sphere};

/// The kinds, with their parameters.
#[derive(Debug)]
pub enum Zenithal {
    /// Gnomonic.
    Tan,
    /// Stereographic.
    Stg,
    /// Zenithal equidistant.
    Arc,
    /// Zenithal equal area.
    Zea,
    /// Airy's: the factor of its second part.
    Air(f64),
    /// Zenithal polynomial.
    Zpn(Zpn),
    /// Perspective onto a tilted plane: distance μ, and sine and cosine of the tilt γ.
    Azp {
        /// Distance from the centre, in radii of the sphere.
        mu: f64,
        /// Sine and cosine of the tilt.
        gamma: (f64, f64),
    },
    /// Seen from the point (x, y, z), z up to the plane: SZP. From infinity, SIN.
    Slant(Slant),
}

/// The radius as a polynomial of the distance from the pole.
#[derive(Debug)]
pub struct Zpn {
    coefficients: Vec<f64>,
    /// The distance from the pole up to which the radius grows.
    end: f64,
}

/// Where the sphere is seen from.
#[derive(Debug)]
pub enum Slant {
    /// From infinity, in the direction (ξ, η).
    Far(f64, f64),
    /// From a point.
    Near([f64; 3]),
}

impl Zenithal {
    /// AIR with the least error within `theta_b` degrees of latitude; none if that is no such
    /// latitude.
    pub fn air(theta_b: f64) -> Option<Self> {
        let (sine, cosine) = sphere::sin_cos((90.0 - theta_b) / 2.0);
        match theta_b {
            90.0 => Some(Zenithal::Air(-0.5)),
            _ if theta_b > -90.0 && theta_b < 90.0 => {
                Some(Zenithal::Air(cosine.ln() * (cosine / sine).powi(2)))
            }
            _ => None,
        }
    }

    /// AZP seen from `mu` radii, with a plane tilted by `gamma` degrees; none if there is no such
    /// projection.
    pub fn azp(mu: f64, gamma: f64) -> Option<Self> {
        let gamma = sphere::sin_cos(gamma);
        (mu != -1.0 && gamma.1 != 0.0).then_some(Zenithal::Azp { mu, gamma })
    }

    /// SZP seen from `mu` radii, in the direction of a native place in degrees; none if there is no
    /// such projection.
    pub fn szp(mu: f64, longitude: f64, latitude: f64) -> Option<Self> {
        let ((sin_lon, cos_lon), (sin_lat, cos_lat)) =
            (sphere::sin_cos(longitude), sphere::sin_cos(latitude));
        let up = mu * sin_lat + 1.0;
        let near = Slant::Near([-mu * cos_lat * sin_lon, mu * cos_lat * cos_lon, up]);
        (up != 0.0).then_some(Zenithal::Slant(near))
    }

    /// ZPN with these coefficients; none if the radius does not grow from the pole.
    pub fn zpn(mut coefficients: Vec<f64>) -> Option<Self> {
        while coefficients.last() == Some(&0.0) {
            coefficients.pop();
        }
        let slope = |distance: f64| -> f64 {
            let terms = coefficients.iter().enumerate().skip(1);
            terms
                .map(|(power, factor)| power as f64 * factor * distance.powi(power as i32 - 1))
                .sum()
        };
        if slope(0.0) <= 0.0 {
            return None;
        }
        let degrees = |degree: u32| f64::from(degree).to_radians();
        let end = match (1..=180).find(|&degree| slope(degrees(degree)) <= 0.0) {
            Some(degree) => {
                rising(|distance| -slope(distance), 0.0, degrees(degree - 1), degrees(degree))?
            }
            None => PI,
        };
        Some(Zenithal::Zpn(Zpn { coefficients, end }))
    }
}

impl Zpn {
    fn radius(&self, distance: f64) -> f64 {
        self.coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * distance + coefficient)
    }
}

impl MapProjection for Zenithal {
    fn plane(&self, longitude: f64, latitude: f64) -> Option<(f64, f64)> {
        let distance = FRAC_PI_2 - latitude;
        let radius = match self {
            Zenithal::Tan if latitude <= 0.0 => return None,
            Zenithal::Tan => distance.tan(),
            Zenithal::Stg if latitude <= -FRAC_PI_2 => return None,
            Zenithal::Stg => 2.0 * (distance / 2.0).tan(),
            Zenithal::Arc => distance,
            Zenithal::Zea => 2.0 * (distance / 2.0).sin(),
            Zenithal::Air(_) if latitude <= -FRAC_PI_2 => return None,
            Zenithal::Air(factor) => airy(distance / 2.0, *factor),
            Zenithal::Zpn(zpn) if distance > zpn.end => return None,
            Zenithal::Zpn(zpn) => zpn.radius(distance),
            Zenithal::Azp { mu, gamma } => return tilted(*mu, *gamma, longitude, latitude),
            Zenithal::Slant(slant) => return slant.plane(longitude, latitude),
        };
        Some((radius * longitude.sin(), -radius * longitude.cos()))
    }

    fn native(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let radius = x.hypot(y);
        let distance = match self {
            Zenithal::Tan => radius.atan(),
            Zenithal::Stg => 2.0 * (radius / 2.0).atan(),
            Zenithal::Arc => radius,
            Zenithal::Zea if radius > 2.0 => return None,
            Zenithal::Zea => 2.0 * (radius / 2.0).asin(),
            Zenithal::Air(factor) => {
                2.0 * rising(|half| airy(half, *factor), radius, 0.0, FRAC_PI_2)?
            }
            Zenithal::Zpn(zpn) => rising(|distance| zpn.radius(distance), radius, 0.0, zpn.end)?,
            Zenithal::Azp { mu, gamma } => return untilted(*mu, *gamma, x, y),
            Zenithal::Slant(slant) => return slant.native(x, y),
        };
        (distance <= PI)
            .then(|| (if radius == 0.0 { 0.0 } else { x.atan2(-y) }, FRAC_PI_2 - distance))
    }

    fn reference(&self) -> (f64, f64) {
        (0.0, 90.0)
    }
}

/// Radius of AIR by half the distance from the pole.
fn airy(half: f64, factor: f64) -> f64 {
    if half == 0.0 {
        return 0.0;
    }
    // The logarithm of the cosine, exact near the pole, too.
    let log = 0.5 * (-half.sin().powi(2)).ln_1p();
    -2.0 * (log / half.tan() + factor * half.tan())
}

fn tilted(
    mu: f64,
    (sin_gamma, cos_gamma): (f64, f64),
    longitude: f64,
    latitude: f64,
) -> Option<(f64, f64)> {
    let lean = longitude.cos() * sin_gamma / cos_gamma;
    let depth = mu + latitude.sin() + latitude.cos() * lean;
    // From outside, the sphere hides the part that is nearer.
    let hidden = mu.abs() > 1.0 && mu * latitude.sin() < -1.0;
    let radius = (mu + 1.0) * latitude.cos() / depth;
    (depth > 0.0 && !hidden)
        .then(|| (radius * longitude.sin(), -radius * longitude.cos() / cos_gamma))
}

/// Of two latitudes on one line of sight, the nearer one: sums of angles that are beyond the pole
/// are turned back.
fn nearer(first: f64, second: f64) -> f64 {
    let turned = |angle: f64| if angle > FRAC_PI_2 { angle - 2.0 * PI } else { angle };
    turned(first - second).max(turned(first + second + PI))
}

fn untilted(mu: f64, (sin_gamma, cos_gamma): (f64, f64), x: f64, y: f64) -> Option<(f64, f64)> {
    let upright = y * cos_gamma;
    let radius = x.hypot(upright);
    if radius == 0.0 {
        return Some((0.0, FRAC_PI_2));
    }
    let slope = radius / (mu + 1.0 + y * sin_gamma);
    let sine = slope * mu / slope.hypot(1.0);
    (sine.abs() <= 1.0).then(|| (x.atan2(-upright), nearer(1.0_f64.atan2(slope), sine.asin())))
}

impl Slant {
    fn plane(&self, longitude: f64, latitude: f64) -> Option<(f64, f64)> {
        // How far the place is below the plane, without rounding near the pole.
        let below = 2.0 * ((FRAC_PI_2 - latitude) / 2.0).sin().powi(2);
        let (right, up) = (latitude.cos() * longitude.sin(), -latitude.cos() * longitude.cos());
        match *self {
            Slant::Far(xi, eta) => {
                let limit = -(xi * longitude.sin() - eta * longitude.cos()).atan();
                (latitude >= limit).then_some((right + xi * below, up + eta * below))
            }
            Slant::Near([x, y, z]) => {
                let depth = z - below;
                let is_outside = x * x + y * y + (z - 1.0).powi(2) > 1.0;
                // From outside, the sphere hides the part that is nearer.
                let hidden = is_outside && (z - 1.0) * latitude.sin() - x * right - y * up < -1.0;
                let at = |along: f64, point: f64| (z * along - point * below) / depth;
                (depth * z > 0.0 && !hidden).then(|| (at(right, x), at(up, y)))
            }
        }
    }

    fn native(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (xi, eta) = match *self {
            Slant::Far(xi, eta) => (xi, eta),
            Slant::Near([right, up, z]) => ((x - right) / z, (y - up) / z),
        };
        // The line of sight meets the sphere so far below the plane: the nearer root, in the form
        // that keeps digits.
        let half = xi * x + eta * y + 1.0;
        let square = half * half - (xi * xi + eta * eta + 1.0) * (x * x + y * y);
        if square < 0.0 {
            return None;
        }
        let below = (x * x + y * y) / (half + square.sqrt());
        let (right, up) = (x - xi * below, y - eta * below);
        Some((
            if below == 0.0 { 0.0 } else { right.atan2(-up) },
            (1.0 - below).atan2(right.hypot(up)),
        ))
    }
}
