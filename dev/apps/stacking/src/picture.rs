//! A stacked image as a PNG for people: grey, asinh-stretched between two percentiles, enlarged,
//! north up.

use std::path::Path;

use crate::error::StackingError;
use crate::output;
use crate::stack::Image;

/// Pictures are enlarged by a whole factor to about this many pixels an edge.
const PICTURE_PIXELS: usize = 600;

/// Share of pixels shown black, and share shown white.
const CUT: (f64, f64) = (0.01, 0.999);

/// Strength of the asinh stretch, which brightens faint pixels; 0 is linear (Lupton et al. 2004).
const SOFTENING: f64 = 3.0;

/// Writes `image` to the PNG file `path`.
pub fn write(path: &Path, image: &Image) -> Result<(), StackingError> {
    let factor = (PICTURE_PIXELS / image.size).max(1);
    let edge = image.size * factor;
    let grey = grey_levels(image);
    let mut picture = Vec::with_capacity(edge * edge);
    // The first row of a FITS image is its lowest, that of a PNG its highest.
    for row in grey.chunks_exact(image.size).rev() {
        let wide: Vec<u8> =
            row.iter().flat_map(|&level| std::iter::repeat_n(level, factor)).collect();
        (0..factor).for_each(|_| picture.extend_from_slice(&wide));
    }
    let file = encode(&picture, edge).map_err(|error| StackingError::new(path, error.into()))?;
    output::write_whole(path, &file)
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

fn encode(picture: &[u8], edge: usize) -> Result<Vec<u8>, png::EncodingError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, edge as u32, edge as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(picture)?;
    writer.finish()?;
    Ok(file)
}
