//! The rotation between the sky and the native sphere of a projection (Calabretta & Greisen 2002
//! §2.2 to 2.4).

/// Roundings of angles, degrees.
const TOLERANCE: f64 = 1e-10;

/// Between the sky and the native sphere.
#[derive(Debug)]
pub struct Rotation {
    /// Right ascension of the native pole, degrees.
    pole_ra: f64,
    /// Sine and cosine of its declination.
    pole_dec: (f64, f64),
    /// Native longitude of the celestial pole, degrees (LONPOLE).
    pole_longitude: f64,
}

/// The angles of a header, degrees.
#[derive(Clone, Copy, Debug)]
pub struct Angles {
    /// The place on the sky of the native reference: CRVAL.
    pub sky: (f64, f64),
    /// Longitude and latitude of the native reference.
    pub native: (f64, f64),
    /// LONPOLE, if it is given.
    pub lonpole: Option<f64>,
    /// LATPOLE, if it is given.
    pub latpole: Option<f64>,
}

impl Rotation {
    /// The rotation that puts the native reference at CRVAL; none if there is no such one.
    pub fn new(angles: Angles) -> Option<Self> {
        let Angles { sky: (ra, dec), native: (longitude, latitude), .. } = angles;
        let default = longitude + if dec < latitude { 180.0 } else { 0.0 };
        let pole_longitude = angles.lonpole.unwrap_or(default);
        let (pole_ra, pole_dec) = if latitude == 90.0 {
            (ra, dec)
        } else {
            let turn = pole_longitude - longitude;
            let pole_dec = pole_declination(dec, latitude, turn, angles.latpole.unwrap_or(90.0))?;
            (pole_right_ascension(ra, dec, latitude, turn, pole_dec)?, pole_dec)
        };
        Some(Self { pole_ra, pole_dec: sin_cos(pole_dec), pole_longitude })
    }

    /// Native longitude (-π to π) and latitude of a place on the sky, degrees to radians.
    pub fn native(&self, ra: f64, dec: f64) -> (f64, f64) {
        let (sin_dec, cos_dec) = sin_cos(dec);
        let (sin_ra, cos_ra) = sin_cos(ra - self.pole_ra);
        let (sin_pole, cos_pole) = self.pole_dec;
        let (north, east) = (cos_dec * cos_ra, cos_dec * sin_ra);
        let along = sin_dec * cos_pole - north * sin_pole;
        let latitude = (sin_dec * sin_pole + north * cos_pole).atan2(along.hypot(east));
        let longitude = self.pole_longitude + (-east).atan2(along).to_degrees();
        (half_turns(longitude).to_radians(), latitude)
    }

    /// Right ascension (0 to 360) and declination of a native place, radians to degrees.
    pub fn sky(&self, longitude: f64, latitude: f64) -> (f64, f64) {
        let (sin_lat, cos_lat) = sin_cos(latitude.to_degrees());
        let (sin_lon, cos_lon) = sin_cos(longitude.to_degrees() - self.pole_longitude);
        let (sin_pole, cos_pole) = self.pole_dec;
        let (along, across) = (cos_lat * cos_lon, cos_lat * sin_lon);
        let north = sin_lat * cos_pole - along * sin_pole;
        let dec = (sin_lat * sin_pole + along * cos_pole).atan2(north.hypot(across));
        let ra = (self.pole_ra + (-across).atan2(north).to_degrees()).rem_euclid(360.0);
        // The remainder of a tiny negative number is rounded to 360.
        (if ra < 360.0 { ra } else { 0.0 }, dec.to_degrees())
    }
}

/// Declination of the native pole (equations 8 to 10): of two solutions the one nearer to LATPOLE.
fn pole_declination(dec: f64, latitude: f64, turn: f64, latpole: f64) -> Option<f64> {
    let (sin_latitude, cos_latitude) = sin_cos(latitude);
    let along = cos_latitude * sin_cos(turn).1;
    let length = along.hypot(sin_latitude);
    if length < 1e-15 {
        // Then only LATPOLE says it, and the reference is on the equator. Other latitudes than
        // those of the poles are taken for a pole by WCSLIB where it rounds, as in astropy.
        return (dec.abs() < TOLERANCE && latpole.abs() == 90.0).then_some(latpole);
    }
    let sine = sin_cos(dec).0 / length;
    if sine.abs() > 1.0 + TOLERANCE {
        return None;
    }
    let middle = sin_latitude.atan2(along).to_degrees();
    let aside = sine.clamp(-1.0, 1.0).acos().to_degrees();
    let solutions = [half_turns(middle - aside), half_turns(middle + aside)];
    let possible = solutions.into_iter().filter(|solution| solution.abs() <= 90.0 + TOLERANCE);
    let nearest = possible.min_by(|a, b| (a - latpole).abs().total_cmp(&(b - latpole).abs()))?;
    Some(nearest.clamp(-90.0, 90.0))
}

/// Right ascension of the native pole (equations 11 and 12 of its declination); none if nothing
/// fixes it.
fn pole_right_ascension(ra: f64, dec: f64, latitude: f64, turn: f64, pole_dec: f64) -> Option<f64> {
    let ((sin_dec, cos_dec), (sin_pole, cos_pole)) = (sin_cos(dec), sin_cos(pole_dec));
    let (sin_latitude, cos_latitude) = sin_cos(latitude);
    if cos_dec.abs() < 1e-12 {
        return Some(ra);
    }
    if cos_pole.abs() < 1e-12 {
        return Some(if pole_dec > 0.0 { ra + turn - 180.0 } else { ra - turn });
    }
    let north = (sin_latitude - sin_pole * sin_dec) / (cos_pole * cos_dec);
    let east = sin_cos(turn).0 * cos_latitude / cos_dec;
    (north != 0.0 || east != 0.0).then(|| ra - east.atan2(north).to_degrees())
}

/// Sine and cosine of degrees, exact at whole quarters of a turn, so that longitudes are not lost
/// at poles.
pub fn sin_cos(degrees: f64) -> (f64, f64) {
    match degrees.rem_euclid(360.0) {
        0.0 => (0.0, 1.0),
        90.0 => (1.0, 0.0),
        180.0 => (0.0, -1.0),
        270.0 => (-1.0, 0.0),
        _ => degrees.to_radians().sin_cos(),
    }
}

/// The same angle from -180 to 180 degrees.
fn half_turns(degrees: f64) -> f64 {
    if degrees.abs() <= 180.0 { degrees } else { degrees - 360.0 * (degrees / 360.0).round() }
}
