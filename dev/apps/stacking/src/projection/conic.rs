//! Conic projections (Calabretta & Greisen 2002 §5.4), whose parallels are arcs around one point.

use std::f64::consts::{FRAC_PI_2, PI};

use super::{MapProjection, sphere};

/// A conic projection by its constants.
#[derive(Debug)]
pub struct Conic {
    kind: Kind,
    /// Latitude in the middle of the two standard parallels, degrees.
    middle: f64,
    /// Angle on the plane for a radian of longitude.
    constant: f64,
    /// Distance of the parallel in the middle from the point around which all are.
    radius: f64,
}

#[derive(Debug)]
enum Kind {
    /// Perspective: cosine of half the distance of the standard parallels, and cotangent of the
    /// latitude in the middle.
    Cop(f64, f64),
    /// Equal area: the sum of the sines of the standard parallels, and one plus their product.
    Coe(f64, f64),
    /// Equidistant: the distance of the pole's image from the point.
    Cod(f64),
    /// Orthomorphic: the factor of the radius.
    Coo(f64),
}

impl Conic {
    /// The projection `code` with standard parallels at `middle - half` and `middle + half`
    /// degrees; none if there is none.
    pub fn new(code: &str, middle: f64, half: f64) -> Option<Self> {
        let ((sin, cos), (sin_half, cos_half)) = (sphere::sin_cos(middle), sphere::sin_cos(half));
        let parallels = [middle - half, middle + half];
        if sin == 0.0 || parallels.iter().any(|parallel| parallel.abs() > 90.0) {
            return None;
        }
        let [(sin_1, cos_1), (sin_2, cos_2)] = parallels.map(sphere::sin_cos);
        let (kind, constant) = match code {
            "COP" => (Kind::Cop(cos_half, cos / sin), sin),
            "COE" => (Kind::Coe(sin_1 + sin_2, 1.0 + sin_1 * sin_2), (sin_1 + sin_2) / 2.0),
            "COD" => {
                let ratio = if half == 0.0 { 1.0 } else { sin_half / half.to_radians() };
                (Kind::Cod(middle.to_radians() + cos_half / ratio * cos / sin), sin * ratio)
            }
            "COO" => {
                let [near, far] = parallels.map(half_distance);
                let constant =
                    if half == 0.0 { sin } else { (cos_2 / cos_1).ln() / (far / near).ln() };
                (Kind::Coo(cos_1 / (constant * near.powf(constant))), constant)
            }
            _ => return None,
        };
        let mut conic = Self { kind, middle, constant, radius: 0.0 };
        conic.radius = conic.radius_of(middle.to_radians())?;
        (constant.is_finite() && constant != 0.0 && conic.radius.is_finite()).then_some(conic)
    }

    /// The radius of a parallel.
    fn radius_of(&self, latitude: f64) -> Option<f64> {
        Some(match self.kind {
            Kind::Cop(cos_half, cotangent) => {
                let aside = latitude - self.middle.to_radians();
                if aside.abs() >= FRAC_PI_2 {
                    return None;
                }
                cos_half * (cotangent - aside.tan())
            }
            Kind::Coe(sum, product) => 2.0 / sum * (product - sum * latitude.sin()).max(0.0).sqrt(),
            Kind::Cod(pole) => pole - latitude,
            Kind::Coo(factor) => {
                let scaled = half_distance(latitude.to_degrees()).max(0.0).powf(self.constant);
                (factor * scaled).is_finite().then_some(factor * scaled)?
            }
        })
    }

    /// The latitude of the parallel with a radius, whose sign is that of the latitude in the
    /// middle.
    fn latitude_of(&self, radius: f64) -> Option<f64> {
        let latitude = match self.kind {
            Kind::Cop(cos_half, cotangent) => {
                self.middle.to_radians() + (cotangent - radius / cos_half).atan()
            }
            Kind::Coe(sum, product) => {
                let sine = (product - (radius * sum / 2.0).powi(2)) / sum;
                (sine.abs() <= 1.0 + 1e-12).then(|| sine.clamp(-1.0, 1.0).asin())?
            }
            Kind::Cod(pole) => pole - radius,
            Kind::Coo(factor) => {
                FRAC_PI_2 - 2.0 * (radius / factor).powf(1.0 / self.constant).atan()
            }
        };
        (latitude.abs() <= FRAC_PI_2 + 1e-12).then_some(latitude)
    }
}

/// The tangent of half the distance from the pole.
fn half_distance(latitude: f64) -> f64 {
    ((90.0 - latitude) / 2.0).to_radians().tan()
}

impl MapProjection for Conic {
    fn plane(&self, longitude: f64, latitude: f64) -> Option<(f64, f64)> {
        let radius = self.radius_of(latitude)?;
        let (sin, cos) = (self.constant * longitude).sin_cos();
        // Perspective shows no parallel beyond the point.
        let beyond = matches!(self.kind, Kind::Cop(..)) && radius * self.middle < 0.0;
        (!beyond).then_some((radius * sin, self.radius - radius * cos))
    }

    fn native(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let down = self.radius - y;
        let radius = x.hypot(down).copysign(self.middle);
        let angle = if radius == 0.0 { 0.0 } else { (x / radius).atan2(down / radius) };
        let longitude = angle / self.constant;
        (longitude.abs() <= PI * (1.0 + 1e-12)).then_some((longitude, self.latitude_of(radius)?))
    }

    fn reference(&self) -> (f64, f64) {
        (0.0, self.middle)
    }
}
