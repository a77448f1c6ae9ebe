//! The paper's *radec2xy*: the pixel of a place of the sky, by the frame's world coordinate system (WCS).
//!
//! The `wcs` crate computes the projection (TAN for the SDSS, and the others of Calabretta & Greisen 2002). This file
//! checks the header first, because that crate has defaults for missing keywords and panics on invalid ones. It also
//! converts degrees, and FITS pixels, which count from one, to the units of this crate.

use fitsrs::{ImgXY, LonLat, WCS};

use crate::error::{FileProblem, StackingError};
use crate::fits_read::FitsFile;

/// Sky to pixel and back for one frame.
#[derive(Debug)]
pub struct Projection(WCS);

impl Projection {
    /// The projection in the header of `file`.
    pub fn of(file: &FitsFile) -> Result<Self, StackingError> {
        const PURPOSE: &str = "where the frame is on the sky";
        for (keyword, axis) in [("CTYPE1", "RA---"), ("CTYPE2", "DEC--")] {
            let ctype =
                file.text(keyword).ok_or_else(|| file.error(FileProblem::Missing { keyword, purpose: PURPOSE }))?;
            if !(ctype.is_ascii() && ctype.len() >= 8 && ctype.starts_with(axis)) {
                let trouble = format!("is '{ctype}', should be like '{axis}TAN'");
                return Err(file.error(FileProblem::Keyword { keyword, trouble }));
            }
        }
        for keyword in ["CRVAL1", "CRVAL2", "CRPIX1", "CRPIX2"] {
            file.number(keyword, PURPOSE)?;
        }
        let scale = |keyword| file.optional_number(keyword);
        if scale("CD1_1")?.or(scale("CD1_2")?).is_none() && scale("CDELT1")?.is_none() {
            return Err(
                file.error(FileProblem::Missing { keyword: "CD1_1", purpose: "the size of a pixel on the sky" })
            );
        }
        WCS::try_from(file.header()).map(Projection).map_err(|_| {
            // The error of the `wcs` crate has no details.
            let trouble = "a projection that we do not know, or with keywords that make no sense".to_owned();
            file.error(FileProblem::Keyword { keyword: "CTYPE1", trouble })
        })
    }

    /// The pixel of a place given in degrees; none if the projection does not show that part of the sky.
    pub fn pixel(&self, ra: f64, dec: f64) -> Option<(f64, f64)> {
        let fits = self.0.proj(&LonLat::new(ra.to_radians(), dec.to_radians()))?;
        Some((fits.x() - 1.0, fits.y() - 1.0))
    }

    /// The place in degrees (right ascension 0 to 360, declination) of a pixel.
    pub fn sky(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let place = self.0.unproj(&ImgXY::new(x + 1.0, y + 1.0))?;
        Some((place.lon().to_degrees().rem_euclid(360.0), place.lat().to_degrees()))
    }
}
