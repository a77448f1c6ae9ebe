//! A stacked image as a PNG or JPEG for people: grey, asinh-stretched between two percentiles,
//! enlarged, north up.

use std::path::Path;

use jpeg_encoder::{ColorType, Encoder};

use crate::error::{FileProblem, StackingError};
use crate::output;
use crate::stack::Image;

/// Pictures are enlarged by a whole factor to about this many pixels an edge.
const PICTURE_PIXELS: usize = 600;

/// Share of pixels shown black, and share shown white.
const CUT: (f64, f64) = (0.01, 0.999);

/// Strength of the asinh stretch, which brightens faint pixels; 0 is linear (Lupton et al. 2004).
const SOFTENING: f64 = 3.0;

/// Quality of a JPEG, from 1 to 100: at 90 the noise of single pixels is still seen.
const QUALITY: u8 = 90;

/// The form of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFormat {
    /// PNG: exact, and small, as enlarged pixels repeat.
    Png,
    /// JPEG, as the paper's portal shows it.
    Jpeg,
}

/// Writes `image` to the file `path`.
pub fn write(path: &Path, image: &Image, format: PictureFormat) -> Result<(), StackingError> {
    let factor = (PICTURE_PIXELS / image.size).max(1);
    let edge = image.size * factor;
    let grey = grey_levels(image);
    let mut picture = Vec::with_capacity(edge * edge);
    // The first row of a FITS image is its lowest, that of a picture its highest.
    for row in grey.chunks_exact(image.size).rev() {
        let wide: Vec<u8> =
            row.iter().flat_map(|&level| std::iter::repeat_n(level, factor)).collect();
        (0..factor).for_each(|_| picture.extend_from_slice(&wide));
    }
    let file = match format {
        PictureFormat::Png => png(&picture, edge).map_err(FileProblem::from),
        PictureFormat::Jpeg => jpeg(&picture, edge),
    };
    output::write_whole(path, &file.map_err(|problem| StackingError::new(path, problem))?)
}

fn grey_levels(image: &Image) -> Vec<u8> {
    let mut sorted = image.pixels.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let percentile = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let (black, white) = (percentile(CUT.0), percentile(CUT.1));
    let range = if white > black { white - black } else { 1.0 };
    let level = |pixel: &f64| {
        let linear = ((pixel - black) / range).clamp(0.0, 1.0);
        ((SOFTENING * linear).asinh() / SOFTENING.asinh() * 255.0).round() as u8
    };
    image.pixels.iter().map(level).collect()
}

fn png(picture: &[u8], edge: usize) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, edge as u32, edge as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(picture)?;
    writer.finish()?;
    Ok(file)
}

fn jpeg(picture: &[u8], edge: usize) -> Result<Vec<u8>, FileProblem> {
    // An image is at most 8192 pixels wide when it is cut; a partial stack may say more.
    let short = u16::try_from(edge).map_err(|_| FileProblem::JpegEdge(edge))?;
    let mut file = Vec::new();
    Encoder::new(&mut file, QUALITY).encode(picture, short, short, ColorType::Luma)?;
    Ok(file)
}
