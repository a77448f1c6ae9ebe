//! Stacking of survey images: the astronomy application of "Accelerating Large-scale Data
//! Exploration through Data Diffusion", section 6.
//!
//! A source too faint for any single image of the sky is found by cutting out the same small region
//! around many such sources (or the same one, many times), and summing the cutouts: the source adds
//! up as N, the noise as the square root of N. One *frame* is one image of a survey; one *ROI*
//! (region of interest) is the cutout around one sky object.
//!
//! The crate does not know the system that runs it. `stack` reads frames and writes one small
//! partial sum; any number of partial sums make the final image. `survey` makes frames to practise
//! on.
//!
//! Reading order: [`source`] (bytes, gzip or not) → [`header`] (cards) → [`fits_read`] (rows) →
//! [`projection`] (sky to pixel) → [`roi`] (cut, convert, calibrate, shift) → [`frame_work`] (one
//! frame) → [`stack`](mod@stack) (sum) → [`measure`], [`picture`]. Before that, [`index`] and
//! [`find`] say which frames show the objects of a list.
//!
//! Coordinates everywhere: right ascension and declination in degrees (ICRS); pixels count from
//! zero, `x` along a row, `y` from the first row in the file, and a whole number is the *centre* of
//! a pixel.

#![forbid(unsafe_code)]

pub mod cells;
pub mod coverage;
pub mod error;
pub mod find;
pub mod fits_read;
pub mod fits_write;
pub mod frame_work;
pub mod hdu;
pub mod header;
pub mod index;
pub mod lists;
pub mod measure;
pub mod objects;
pub mod output;
pub mod picture;
pub mod profile;
pub mod projection;
pub mod report;
pub mod roi;
pub mod source;
pub mod stack;
pub mod survey;
pub mod tiles;
