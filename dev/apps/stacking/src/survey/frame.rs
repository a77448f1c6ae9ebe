//! One frame of the survey: its place on the sky, the stars and sources on it, and its file.

use std::f64::consts::TAU;
use std::io::Write;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::random::{Normal, SurveyRandom};
use crate::fits_write::Cards;

/// Scale of the camera, arcsec per pixel (SDSS).
pub const ARCSEC_PER_PIXEL: f64 = 0.396;

/// Noise of a pixel, counts, standard deviation. Small as in the SDSS, so that gzip compresses a
/// frame of 6 MB to between 2 and 2.5 MB.
pub const NOISE_COUNTS: f64 = 4.0;

/// Width of a point source, pixels, standard deviation of a Gaussian: 1.4 arcsec full width at half
/// maximum.
pub const PSF_SIGMA_PIXELS: f64 = 1.5;

/// Flux of an invisible source, in units of CAL × counts (nanomaggies: magnitude 25). At the mean
/// CAL it is 20 counts, and its brightest pixel 1.4: a third of the noise.
pub const SOURCE_FLUX: f64 = 0.1;

/// Least distance of invisible sources and empty places from the border and, in both directions,
/// from visible stars, in pixels. An ROI of 100 pixels around them is then whole and without stars,
/// as for a list of isolated objects. On smaller frames the distance is a third of the frame.
pub const CLEARANCE_PIXELS: f64 = 60.0;

/// Flux of one count, nanomaggies: the mean of the frames, and the largest deviation of a frame.
const CAL: (f64, f64) = (0.005, 0.001);

/// Background, counts: least and most.
const SKY: (f64, f64) = (1080.0, 1320.0);

/// Pixels of a frame for each visible star.
const PIXELS_PER_STAR: usize = 50_000;

/// Brightest pixel of the faintest visible star over the noise, and of the brightest.
const STAR_PEAK: (f64, f64) = (8.0, 2000.0);

/// A point source is drawn up to this distance from its centre, pixels; further out even the
/// brightest source is below a tenth of a count.
const STAMP_RADIUS: f64 = 8.0;

/// Distance of two invisible sources, pixels, if there is room.
const SEPARATION: f64 = 16.0;

/// Places that are tried for a source or star. After that, a source is put at the last place, and a
/// star left out.
const TRIES: usize = 50;

/// Largest rotation of a frame, degrees.
const TURN: f64 = 5.0;

/// Largest part of a circle of declination that frames occupy, degrees, so that no frame reaches a
/// pole.
const STRIPE: f64 = 300.0;

/// Level 1 of zlib-rs compresses a frame to 3.7 MB, level 2 to 2.2 MB in 46 ms, and level 6 to 2.0
/// MB in 380 ms.
const GZIP_LEVEL: u32 = 2;

/// A frame before its pixels are made. Places are pixels `(x, y)` from zero.
#[derive(Clone, Debug)]
pub struct SurveyFrame {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// The place of the sky at its middle: right ascension and declination, degrees.
    pub centre: (f64, f64),
    /// Its rotation from north up, degrees.
    pub turn: f64,
    /// Background, counts.
    pub sky: f64,
    /// Flux of one count, nanomaggies.
    pub cal: f64,
    /// Its band, if it has one.
    pub band: Option<&'static str>,
    /// Invisible sources.
    pub sources: Vec<(f64, f64)>,
    /// Places like those of the sources, with no source.
    pub empty: Vec<(f64, f64)>,
    /// Visible stars, and the counts of their brightest pixel.
    pub stars: Vec<((f64, f64), f64)>,
    noise: (u64, u64),
}

impl SurveyFrame {
    pub(super) fn plan(number: u64, objects: u64, width: usize, height: usize, seed: u64) -> Self {
        let mut random = SurveyRandom::new(seed, 2 * number);
        let mut frame = Self {
            width,
            height,
            centre: centre(number, width as f64, height as f64),
            turn: random.between(-TURN, TURN),
            sky: random.between(SKY.0, SKY.1),
            cal: random.between(CAL.0 - CAL.1, CAL.0 + CAL.1),
            band: None,
            sources: Vec::new(),
            empty: Vec::new(),
            stars: Vec::new(),
            noise: (seed, 2 * number + 1),
        };
        let (w, h) = (width as f64, height as f64);
        for _ in 0..objects {
            let place = frame.place(&mut random, |frame, place| frame.clear_of_sources(place));
            frame.sources.push(place);
        }
        for _ in 0..objects {
            let place = frame.place(&mut random, |frame, place| frame.clear_of_sources(place));
            if frame.clear_of_sources(place) {
                frame.empty.push(place);
            }
        }
        for _ in 0..width * height / PIXELS_PER_STAR {
            let try_one = |_| (random.between(0.0, w - 1.0), random.between(0.0, h - 1.0));
            let place = (0..TRIES).map(try_one).find(|&place| frame.clear_of_rois(place));
            // The number of stars above a brightness falls as one over it.
            let peak = STAR_PEAK.0 / random.between(STAR_PEAK.0 / STAR_PEAK.1, 1.0);
            frame.stars.extend(place.map(|place| (place, peak * NOISE_COUNTS)));
        }
        frame
    }

    /// A random place away from the border for which `free` is true; after some tries, one for
    /// which it is not.
    fn place(
        &self,
        random: &mut SurveyRandom,
        free: impl Fn(&Self, (f64, f64)) -> bool,
    ) -> (f64, f64) {
        let margin = |edge: usize| CLEARANCE_PIXELS.min(edge as f64 / 3.0);
        let mut along =
            |edge: usize| random.between(margin(edge), edge as f64 - 1.0 - margin(edge));
        let mut place = (0.0, 0.0);
        for _ in 0..TRIES {
            place = (along(self.width), along(self.height));
            if free(self, place) {
                break;
            }
        }
        place
    }

    fn clear_of_sources(&self, (x, y): (f64, f64)) -> bool {
        self.sources
            .iter()
            .chain(&self.empty)
            .all(|other| (other.0 - x).hypot(other.1 - y) >= SEPARATION)
    }

    fn clear_of_rois(&self, (x, y): (f64, f64)) -> bool {
        let far =
            |other: &(f64, f64)| (other.0 - x).abs().max((other.1 - y).abs()) > CLEARANCE_PIXELS;
        self.sources.iter().chain(&self.empty).all(far)
    }

    /// The place of the sky, degrees, of a pixel: the inverse gnomonic (TAN) projection (Calabretta
    /// & Greisen 2002 §5.1.3). It is written here so that tests compare the code that reads frames
    /// with other code.
    pub fn sky(&self, x: f64, y: f64) -> (f64, f64) {
        let [[cd11, cd12], [cd21, cd22]] = self.cd();
        let (right, up) = (x - (self.width - 1) as f64 / 2.0, y - (self.height - 1) as f64 / 2.0);
        let east = (cd11 * right + cd12 * up).to_radians();
        let north = (cd21 * right + cd22 * up).to_radians();
        let (ra, dec) = (self.centre.0.to_radians(), self.centre.1.to_radians());
        let (sin_dec, cos_dec) = dec.sin_cos();
        let depth = cos_dec - north * sin_dec;
        let place = (ra + east.atan2(depth), (sin_dec + north * cos_dec).atan2(east.hypot(depth)));
        (place.0.to_degrees().rem_euclid(360.0), place.1.to_degrees())
    }

    /// Degrees east and north per pixel right and up; east is left, as seen from below the sky.
    fn cd(&self) -> [[f64; 2]; 2] {
        let (sin, cos) = self.turn.to_radians().sin_cos();
        let scale = ARCSEC_PER_PIXEL / 3600.0;
        [[-scale * cos, scale * sin], [scale * sin, scale * cos]]
    }

    /// Background, noise, stars and sources, in counts.
    fn counts(&self) -> Vec<f32> {
        static NORMAL: LazyLock<Normal> = LazyLock::new(Normal::new);
        let mut counts = vec![0.0; self.width * self.height];
        let mut random = SurveyRandom::new(self.noise.0, self.noise.1);
        NORMAL.fill(&mut random, self.sky as f32, NOISE_COUNTS as f32, &mut counts);
        for &(place, peak) in &self.stars {
            self.add_point(&mut counts, place, peak);
        }
        let peak = SOURCE_FLUX / self.cal / (TAU * PSF_SIGMA_PIXELS.powi(2));
        for &place in &self.sources {
            self.add_point(&mut counts, place, peak);
        }
        counts
    }

    fn add_point(&self, counts: &mut [f32], (x, y): (f64, f64), peak: f64) {
        let range = |centre: f64, edge: usize| {
            let first = (centre - STAMP_RADIUS).ceil().max(0.0) as usize;
            let last = (centre + STAMP_RADIUS).floor().min((edge - 1) as f64) as usize;
            first..=last
        };
        for row in range(y, self.height) {
            for column in range(x, self.width) {
                let squared = (column as f64 - x).powi(2) + (row as f64 - y).powi(2);
                let light = peak * (-0.5 * squared / PSF_SIGMA_PIXELS.powi(2)).exp();
                counts[row * self.width + column] += light as f32;
            }
        }
    }

    /// The whole FITS file: unsigned 16-bit counts, as the SDSS's.
    pub fn file(&self, gzip: bool) -> Vec<u8> {
        const BZERO: f32 = 32_768.0;
        let pixels: Vec<u8> = self
            .counts()
            .into_iter()
            // A cast saturates, as a camera does.
            .flat_map(|counts| ((counts - BZERO).round() as i16).to_be_bytes())
            .collect();
        let file = self.cards(f64::from(BZERO)).file(&pixels);
        if !gzip {
            return file;
        }
        let mut packed =
            GzEncoder::new(Vec::with_capacity(file.len() / 2), Compression::new(GZIP_LEVEL));
        packed.write_all(&file).and_then(|()| packed.finish()).expect("a vector takes all bytes")
    }

    fn cards(&self, bzero: f64) -> Cards {
        let [[cd11, cd12], [cd21, cd22]] = self.cd();
        let cards = Cards::image(16, self.width, self.height);
        let cards = match self.band {
            Some(band) => cards.text("FILTER", band, "band"),
            None => cards,
        };
        cards
            .real("BSCALE", 1.0, "counts = BZERO + BSCALE * stored")
            .real("BZERO", bzero, "makes 16 bits unsigned")
            .text("BUNIT", "counts", "")
            .real("SKY", self.sky, "background, counts")
            .real("CAL", self.cal, "flux of one count, nanomaggies")
            .text("RADESYS", "ICRS", "")
            .text("CTYPE1", "RA---TAN", "gnomonic projection")
            .text("CTYPE2", "DEC--TAN", "")
            .text("CUNIT1", "deg", "")
            .text("CUNIT2", "deg", "")
            .real("CRPIX1", (self.width + 1) as f64 / 2.0, "the middle, pixels from 1")
            .real("CRPIX2", (self.height + 1) as f64 / 2.0, "")
            .real("CRVAL1", self.centre.0, "its right ascension")
            .real("CRVAL2", self.centre.1, "its declination")
            .real("CD1_1", cd11, "degrees per pixel")
            .real("CD1_2", cd12, "")
            .real("CD2_1", cd21, "")
            .real("CD2_2", cd22, "")
            .text("CREATOR", "eyas-stacking survey", "made up: not of the sky")
    }
}

/// Frames are laid side by side along stripes of one declination, with room to turn, so that no
/// object is on two.
fn centre(number: u64, width: f64, height: f64) -> (f64, f64) {
    let turned = |edge: f64, other: f64| {
        1.02 * (edge + other * TURN.to_radians().sin()) * ARCSEC_PER_PIXEL / 3600.0
    };
    let (step_ra, step_dec) = (turned(width, height), turned(height, width));
    let columns = (STRIPE / step_ra).floor().max(1.0) as u64;
    let stripe = number / columns;
    // 0, 1, -1, 2, -2 … stripes from the equator, where a degree of right ascension is longest.
    let dec = step_dec * (stripe.div_ceil(2) as f64) * if stripe % 2 == 1 { 1.0 } else { -1.0 };
    let ra = (number % columns) as f64 * step_ra / (dec.abs() + step_dec).to_radians().cos();
    (ra.rem_euclid(360.0), dec)
}
