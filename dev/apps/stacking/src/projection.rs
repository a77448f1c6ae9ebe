//! The paper's *radec2xy*: the pixel of a place of the sky, and back, by the frame's world
//! coordinate system (WCS).
//!
//! Follows Greisen & Calabretta 2002 (the linear part), Calabretta & Greisen 2002 (projections),
//! Calabretta & Roukema 2007 (HPX), and the conventions SIP (Shupe et al. 2005) and TPV for
//! distorted images. The right values are those of WCSLIB: tests compare with a table of them, and
//! `dev/judges/positions.sh` with astropy over random headers.
//!
//! Our own, in some 1,000 lines: the crates that do this have wrong values for common headers and
//! no errors, and WCSLIB itself is in C, and under a licence (LGPL) that a program with everything
//! linked in cannot take.
//!
//! A pixel goes through these steps, and a place of the sky through their inverses: SIP
//! (`polynomial`), the matrix of CD or PC and CDELT, TPV, the map projection to the native sphere
//! (`sphere`) and the rotation to the sky. `keywords` reads all that from the header. It must
//! refuse what this code does not compute: a frame at a wrong place is worse than none. What is
//! left, the round trip from pixels to the sky and back shows.

mod conic;
mod cylindrical;
mod healpix;
mod keywords;
mod polynomial;
mod search;
mod sphere;
mod zenithal;

use crate::error::{FileProblem, StackingError};
use crate::fits_read::{FitsFile, ImageHeader};
use crate::header::Header;
use polynomial::Polynomials;
use sphere::Rotation;

/// Points along each edge of a frame for which the round trip is tried: corners, centre, and some
/// between.
const TRIED: usize = 9;

/// How far from its place a pixel may return, in pixels.
const TOLERANCE: f64 = 1e-3;

/// Sky to pixel and back for one frame.
#[derive(Debug)]
pub struct Projection {
    /// The reference pixel: CRPIX, which counts from one.
    reference: [f64; 2],
    sip: Option<Polynomials>,
    /// Degrees on the plane per pixel, by axes of the image, and the inverse.
    linear: [[f64; 2]; 2],
    inverse: [[f64; 2]; 2],
    /// The axis of the image, 0 or 1, that is right ascension.
    longitude: usize,
    tpv: Option<Polynomials>,
    map: Box<dyn MapProjection>,
    rotation: Rotation,
}

/// A projection of the native sphere to the plane. All in radians; longitudes are from -π to π.
trait MapProjection: std::fmt::Debug + Send + Sync {
    /// The place on the plane of a native longitude and latitude; none if the projection does not
    /// show it.
    fn plane(&self, longitude: f64, latitude: f64) -> Option<(f64, f64)>;

    /// The native longitude and latitude of a place on the plane; none if it is not on the sky.
    fn native(&self, x: f64, y: f64) -> Option<(f64, f64)>;

    /// The native longitude and latitude that CRVAL gives the place of, degrees.
    fn reference(&self) -> (f64, f64);
}

impl Projection {
    /// The projection in the header of `file`.
    pub fn of(file: &FitsFile) -> Result<Self, StackingError> {
        Self::of_image(file.image()).map_err(|problem| file.error(problem))
    }

    /// The projection of an image.
    pub fn of_image(image: &ImageHeader) -> Result<Self, FileProblem> {
        Self::new(image.header(), image.width(), image.height())
    }

    /// The keywords and values of a header that say where its pixels are, each on a line.
    pub fn values(header: &Header) -> String {
        header.values(keywords::is_read)
    }

    /// The projection of values that made one before, so that its pixels need no check.
    pub fn of_values(values: &str) -> Result<Self, FileProblem> {
        keywords::read(&Header::of_values(values))
    }

    /// The projection in the header of a frame of `width` times `height` pixels. Refused if it is
    /// not understood, or if pixels do not return from the sky to where they were.
    pub fn new(header: &Header, width: usize, height: usize) -> Result<Self, FileProblem> {
        let projection = keywords::read(header)?;
        projection.check(width, height)?;
        Ok(projection)
    }

    /// The pixel of a place given in degrees; none if the projection does not show that part of the
    /// sky.
    pub fn pixel(&self, ra: f64, dec: f64) -> Option<(f64, f64)> {
        let (longitude, latitude) = self.rotation.native(ra, dec);
        let (x, y) = self.map.plane(longitude, latitude)?;
        let mut plane = [x.to_degrees(), y.to_degrees()];
        if let Some(tpv) = &self.tpv {
            plane = tpv.solve(plane)?;
        }
        let mut offset = times(&self.inverse, self.swapped(plane));
        if let Some(sip) = &self.sip {
            offset = sip.solve(offset)?;
        }
        // FITS counts pixels from one.
        let at = |axis: usize| offset[axis] + self.reference[axis] - 1.0;
        Some((at(0), at(1))).filter(|(x, y)| x.is_finite() && y.is_finite())
    }

    /// The place in degrees (right ascension 0 to 360, declination) of a pixel; none if it is not
    /// on the sky.
    pub fn sky(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let mut offset = [x + 1.0 - self.reference[0], y + 1.0 - self.reference[1]];
        if let Some(sip) = &self.sip {
            offset = sip.at(offset);
        }
        let mut plane = self.swapped(times(&self.linear, offset));
        if let Some(tpv) = &self.tpv {
            plane = tpv.at(plane);
        }
        let (longitude, latitude) =
            self.map.native(plane[0].to_radians(), plane[1].to_radians())?;
        Some(self.rotation.sky(longitude, latitude))
    }

    /// Axes of the image to right ascension and declination, and back.
    fn swapped(&self, [first, second]: [f64; 2]) -> [f64; 2] {
        if self.longitude == 0 { [first, second] } else { [second, first] }
    }

    /// Pixels all over the frame must return to where they were. Those that a map of the whole sky
    /// has beside the sky do not count, unless there are no others.
    fn check(&self, width: usize, height: usize) -> Result<(), FileProblem> {
        let along = |edge: usize, step: usize| (edge - 1) as f64 * step as f64 / (TRIED - 1) as f64;
        let mut shown = false;
        for number in 0..TRIED * TRIED {
            let (x, y) = (along(width, number % TRIED), along(height, number / TRIED));
            let Some((ra, dec)) = self.sky(x, y) else { continue };
            shown = true;
            let back = self.pixel(ra, dec);
            if !back.is_some_and(|back| (back.0 - x).hypot(back.1 - y) < TOLERANCE) {
                let place = |(x, y): (f64, f64)| format!("pixel ({:.3}, {:.3})", x + 1.0, y + 1.0);
                let back = back.map_or("none".to_owned(), place);
                let trouble = format!(
                    "{} is at {ra:.6}, {dec:.6}, but that place is at {back}",
                    place((x, y))
                );
                return Err(FileProblem::Positions(trouble));
            }
        }
        if shown {
            Ok(())
        } else {
            Err(FileProblem::Positions("no pixel is on the sky".to_owned()))
        }
    }
}

fn times(matrix: &[[f64; 2]; 2], [u, v]: [f64; 2]) -> [f64; 2] {
    [matrix[0][0] * u + matrix[0][1] * v, matrix[1][0] * u + matrix[1][1] * v]
}
